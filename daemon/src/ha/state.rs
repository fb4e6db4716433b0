//! The state directory: what this node must not forget over a crash, and the lock that keeps a second process
//! of this node away.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use agent::{LOCK_FILE, STATE_FILE, STATE_KIND};
use durable::{Fault, Lock, Problem, Record};
use ha::ceiling::Ceiling;
use ha::identity::{BootId, HostId};
use ha::stored::Stored;
use protocol::Token;
use tracing::info;

use crate::clock;

/// Beside the state: which machine it belongs to.
const MACHINE_FILE: &str = "machine";
const MACHINE_KIND: &str = "machine-id";

/// How long a server that starts waits for one that ends, or for the agent, which has the lock for moments.
const LOCK_WAIT_MAX: Duration = Duration::from_secs(5);

/// Why there is no state to work with.
#[derive(Debug, thiserror::Error)]
pub(crate) enum StateError {
    #[error("-ha-state {fault}{}", remedy(fault))]
    File {
        #[from]
        fault: Fault,
    },
    #[error(
        "-ha-state {}: it is the state of another machine (a copied disk?): give this node an empty directory; its peer \
         then takes it for a new host", .0.display()
    )]
    Foreign(PathBuf),
    #[error("cannot read {path}: {error}")]
    Machine { path: &'static str, error: io::Error },
}

fn remedy(fault: &Fault) -> &'static str {
    match fault.problem {
        Problem::Damaged(_) | Problem::Foreign { .. } => {
            ": put a copy back, or start with an empty directory; its peer then takes this node for a new host"
        }
        Problem::InUse { .. } => ": another server of this node runs",
        Problem::System { .. } => "",
    }
}

impl StateError {
    /// Whether another process uses it, or the system fails: no matter of the configuration.
    pub(crate) fn is_system(&self) -> bool {
        match self {
            Self::File { fault } => matches!(fault.problem, Problem::InUse { .. } | Problem::System { .. }),
            Self::Foreign(_) => false,
            Self::Machine { .. } => true,
        }
    }
}

/// The state directory of a running node.
#[derive(Debug)]
pub(crate) struct StateDir {
    record: Record<Stored>,
    _lock: Lock,
}

impl StateDir {
    /// Takes the directory for this process, and reads its state; makes one where it is empty. May wait for a
    /// disk, and for a server that ends.
    pub(crate) fn open(directory: &Path) -> Result<(Self, Stored), StateError> {
        let lock = Lock::take(&directory.join(LOCK_FILE), LOCK_WAIT_MAX)?;
        let state = Self { record: Record::new(directory.join(STATE_FILE), STATE_KIND), _lock: lock };
        // A copied disk is another host.
        let of_machine = Record::<String>::new(directory.join(MACHINE_FILE), MACHINE_KIND);
        let machine = machine_id()?;
        match (state.record.read()?, of_machine.read()?) {
            (Some(stored), Some(of)) if of == machine => Ok((state, stored)),
            (Some(_), _) => Err(StateError::Foreign(state.record.path().into())),
            (None, _) => {
                let (boot, now_ns) = (boot_id()?, clock::boot_ns());
                let host = HostId(random_id()?);
                let ceiling = Ceiling(Token::from_unix_ns(clock::unix_ns()).0);
                let stored = Stored::new(host, boot, ceiling, now_ns);
                info!(%host, path = %state.record.path().display(), "a new node: its state begins here");
                of_machine.write(&machine)?;
                state.store(&stored)?;
                Ok((state, stored))
            }
        }
    }

    /// Replaces the state. When this returns, it is on the disk.
    pub(crate) fn store(&self, stored: &Stored) -> Result<(), Fault> {
        self.record.write(stored)
    }
}

/// The boot of this host.
pub(crate) fn boot_id() -> Result<BootId, StateError> {
    const PATH: &str = "/proc/sys/kernel/random/boot_id";
    let text = fs::read_to_string(PATH).map_err(|error| StateError::Machine { path: PATH, error })?;
    text.parse().map_err(|bad| StateError::Machine { path: PATH, error: io::Error::other(bad) })
}

/// Empty where the machine has none, as in a container: then a copy is not noticed.
fn machine_id() -> Result<String, StateError> {
    const PATH: &str = "/etc/machine-id";
    match fs::read_to_string(PATH) {
        Ok(text) => Ok(text.trim().to_owned()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(String::new()),
        Err(error) => Err(StateError::Machine { path: PATH, error }),
    }
}

fn random_id() -> Result<u128, StateError> {
    const PATH: &str = "/proc/sys/kernel/random/uuid";
    let text = fs::read_to_string(PATH).map_err(|error| StateError::Machine { path: PATH, error })?;
    let id: Result<HostId, _> = text.parse();
    id.map(|id| id.0).map_err(|bad| StateError::Machine { path: PATH, error: io::Error::other(bad) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_keeps_its_host_id_and_what_it_promised() {
        let dir = tempfile::tempdir().unwrap();
        let (state, mut stored) = StateDir::open(dir.path()).unwrap();
        let host = stored.host;
        stored.promise = Some("7.b".parse().unwrap());
        state.store(&stored).unwrap();
        assert!(
            Lock::take(&dir.path().join("lock"), Duration::ZERO).is_err(),
            "no second process has this node's state"
        );
        drop(state);
        let (_, again) = StateDir::open(dir.path()).unwrap();
        assert_eq!((again.host, again.promise), (host, stored.promise));
    }

    #[test]
    fn the_state_of_another_machine_and_a_damaged_one_are_refused_with_a_remedy() {
        let dir = tempfile::tempdir().unwrap();
        drop(StateDir::open(dir.path()).unwrap());
        let of_machine = Record::<String>::new(dir.path().join(MACHINE_FILE), MACHINE_KIND);
        of_machine.write(&"0123".into()).unwrap();
        let error = StateDir::open(dir.path()).unwrap_err();
        assert!(matches!(error, StateError::Foreign(_)) && !error.is_system());
        assert!(error.to_string().contains("give this node an empty directory"), "{error}");

        fs::write(dir.path().join("state"), "monolock ha-state 1 crc32 00000000\n{}\n").unwrap();
        let error = StateDir::open(dir.path()).unwrap_err();
        assert!(error.to_string().contains("put a copy back") && !error.is_system(), "{error}");
        let error = StateDir::open(&dir.path().join("missing")).unwrap_err();
        assert!(error.to_string().contains("No such file") && error.is_system(), "{error}");
    }
}
