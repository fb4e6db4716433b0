//! `-token-file`: tokens are put aside on disk before they are issued, so that a later server begins above
//! them, whatever its clock shows.
//!
//! The file has the *ceiling*, the largest token that may have been issued. It is raised in steps, ahead of
//! use, and only while tokens are issued: an idle server writes nothing.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use durable::{Fault, Lock, Problem, Record};
use locks::TokenSource;
use protocol::Token;
use tracing::{error, info};

use crate::clock;

const KIND: &str = "token-ceiling";

/// A second has 2²⁰ tokens.
const STEP: u64 = 2 << 20;

/// How often the room below the ceiling is looked at. A step lasts longer than ten such looks at the rate at
/// which clocks issue tokens, and no server grants a million locks a second.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// How long a server that starts waits for one that ends.
const LOCK_WAIT_MAX: Duration = Duration::from_secs(5);

/// One line in so long says that the file cannot be written.
const COMPLAIN_EVERY: Duration = Duration::from_secs(10);

/// Why there are no tokens.
#[derive(Debug, thiserror::Error)]
#[error("-token-file {fault}{remedy}")]
pub(crate) struct TokenFileError {
    fault: Fault,
    remedy: &'static str,
}

impl TokenFileError {
    /// Whether another server uses the file, or the system fails: no matter of the configuration.
    pub(crate) fn is_system(&self) -> bool {
        matches!(self.fault.problem, Problem::InUse { .. } | Problem::System { .. })
    }
}

impl From<Fault> for TokenFileError {
    fn from(fault: Fault) -> Self {
        let remedy = match fault.problem {
            Problem::Damaged(_) | Problem::Foreign { .. } => {
                ": put a copy back, or move it away, which is safe if the clock has not been set back since the \
                 last server ran"
            }
            Problem::InUse { .. } => ": each server needs a file of its own",
            Problem::System { .. } => "",
        };
        Self { fault, remedy }
    }
}

/// The ceiling of a server, in its file.
#[derive(Debug)]
pub(crate) struct TokenFile {
    record: Record<u64>,
    tokens: Arc<TokenSource>,
    ceiling: u64,
    /// The last token that was issued before the ceiling was raised.
    last_at_raise: Token,
    _lock: Lock,
}

impl TokenFile {
    /// Takes the file for this server, and puts the first tokens aside. May wait for a disk, and for a server
    /// that ends.
    pub(crate) fn open(path: &Path) -> Result<Self, TokenFileError> {
        let lock = Lock::take(&lock_of(path), LOCK_WAIT_MAX)?;
        let record = Record::new(path, KIND);
        let found = record.read()?;
        let floor = found.unwrap_or(0);
        let now = Token::from_unix_ns(clock::unix_ns()).0;
        if floor > now {
            let seconds = (floor - now) >> 20;
            info!(seconds, "the token file is ahead of the clock: tokens count on from it");
        }
        let tokens = Arc::new(TokenSource::with_ceiling(Token(floor)));
        let mut file = Self { record, tokens, ceiling: floor, last_at_raise: Token(floor), _lock: lock };
        file.raise(now)?;
        Ok(file)
    }

    /// Where the server's tokens come from.
    pub(crate) fn tokens(&self) -> Arc<TokenSource> {
        Arc::clone(&self.tokens)
    }

    /// Starts the thread that raises the ceiling, and then has the shards look.
    pub(crate) fn keep_ahead(mut self, wake_shards: impl Fn() + Send + 'static) -> std::io::Result<()> {
        threads::start("tokens", move || {
            let mut complained: Option<Instant> = None;
            loop {
                thread::sleep(LOOK_EVERY);
                let now = Token::from_unix_ns(clock::unix_ns()).0;
                match self.raise_if_used(now) {
                    Ok(false) => {}
                    Ok(true) => {
                        complained = None;
                        wake_shards();
                    }
                    Err(fault) if complained.is_none_or(|at| at.elapsed() >= COMPLAIN_EVERY) => {
                        complained = Some(Instant::now());
                        error!("-token-file {fault}: no tokens are left soon, and then nothing is granted");
                    }
                    Err(_) => {}
                }
            }
        })?;
        Ok(())
    }

    /// Raises the ceiling when grants have left less than a step below it.
    fn raise_if_used(&mut self, now: u64) -> Result<bool, Fault> {
        let last = self.tokens.last();
        let room = self.ceiling.saturating_sub(now.max(last.0));
        if last == self.last_at_raise || room >= STEP {
            return Ok(false);
        }
        self.raise(now)?;
        Ok(true)
    }

    fn raise(&mut self, now: u64) -> Result<(), Fault> {
        let last = self.tokens.last();
        let ceiling = now.max(last.0).saturating_add(2 * STEP).max(self.ceiling);
        self.record.write(&ceiling)?;
        (self.ceiling, self.last_at_raise) = (ceiling, last);
        self.tokens.raise_ceiling(Token(ceiling));
        Ok(())
    }
}

/// What a server would find there, for people. Takes no lock, and writes nothing.
pub(crate) fn look(path: &Path) -> Result<Option<String>, TokenFileError> {
    let ceiling = Record::<u64>::new(path, KIND).read()?;
    Ok(ceiling.map(|ceiling| format!("tokens go on above {ceiling}")))
}

fn lock_of(path: &Path) -> PathBuf {
    let mut lock = path.as_os_str().to_owned();
    lock.push(".lock");
    lock.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Later than every clock shows.
    const NOW: u64 = 1 << 52;

    fn unix_ns(token: u64) -> u64 {
        u64::try_from((u128::from(token) * 1_000_000_000).div_ceil(1 << 20)).unwrap()
    }

    #[test]
    fn the_ceiling_is_raised_for_grants_in_steps_and_never_for_an_idle_server() {
        let dir = tempfile::tempdir().unwrap();
        let mut file = TokenFile::open(&dir.path().join("tokens")).unwrap();
        file.raise(NOW).unwrap();
        assert_eq!(file.ceiling, NOW + 2 * STEP);
        assert!(!file.raise_if_used(NOW + 10 * STEP).unwrap(), "nothing was granted");
        file.tokens.next(unix_ns(NOW)).unwrap();
        assert!(!file.raise_if_used(NOW + STEP).unwrap(), "a step is left");
        assert!(file.raise_if_used(NOW + STEP + 1).unwrap());
        assert_eq!(file.ceiling, NOW + 3 * STEP + 1);
        assert_eq!(file.record.read().unwrap(), Some(file.ceiling));
    }

    #[test]
    fn a_clock_that_stands_behind_the_file_writes_a_step_for_so_many_grants() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("tokens");
        Record::<u64>::new(&path, KIND).write(&NOW).unwrap();
        let mut file = TokenFile::open(&path).unwrap();
        assert_eq!(file.ceiling, NOW + 2 * STEP);
        assert_eq!(file.tokens.next(0), Some(Token(NOW + 1)));
        assert!(!file.raise_if_used(1).unwrap());
        file.tokens.stay_above(Token(NOW + STEP));
        assert!(!file.raise_if_used(1).unwrap());
        file.tokens.next(0).unwrap();
        assert!(file.raise_if_used(1).unwrap());
        assert_eq!(file.ceiling, NOW + 3 * STEP + 1);
    }

    #[test]
    fn a_disk_that_refuses_leaves_the_ceiling_where_it_is_on_disk() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("tokens");
        let mut file = TokenFile::open(&path).unwrap();
        let on_disk = file.record.read().unwrap().unwrap();
        std::fs::create_dir(dir.path().join("tokens.new")).unwrap();
        file.tokens.stay_above(Token(on_disk - 1));
        assert!(file.raise_if_used(NOW).is_err());
        assert_eq!(file.tokens.ceiling(), Some(Token(on_disk)));
        assert_eq!(file.tokens.next(unix_ns(NOW)), Some(Token(on_disk)));
        assert_eq!(file.tokens.next(unix_ns(NOW)), None);
        std::fs::remove_dir(dir.path().join("tokens.new")).unwrap();
        assert!(file.raise_if_used(NOW).unwrap());
        assert!(file.tokens.next(unix_ns(NOW)).is_some());
    }
}
