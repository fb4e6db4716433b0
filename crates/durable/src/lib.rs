//! Small records that outlast the process and the machine's power.
//!
//! A [`Record`] is one file with one value: it is replaced as a whole, and when [`Record::write`] returns it
//! is on the disk. What was read is what was written, or there is an error: a record that is cut, changed, or
//! of another kind is refused and never guessed at. A [`Lock`] keeps a second process away from it.
//!
//! This crate does not know what records mean: whether a lost one may be made anew, its owner says. It never
//! deletes a record.
//!
//! ```
//! # let dir = tempfile::tempdir()?;
//! use durable::{Lock, Record};
//! use std::time::Duration;
//!
//! let _lock = Lock::take(&dir.path().join("lock"), Duration::from_secs(5))?;
//! let record = Record::<u64>::new(dir.path().join("ceiling"), "token-ceiling");
//! assert_eq!(record.read()?, None);
//! record.write(&1_048_576)?;
//! assert_eq!(record.read()?, Some(1_048_576));
//! # Ok::<_, Box<dyn std::error::Error>>(())
//! ```
//!
//! A file is a line for people and programs, `monolock KIND 1 crc32 HEX`, and then the value as JSON. The
//! checksum is of the JSON.
#![forbid(unsafe_code)]

mod lock;
mod record;

use std::io;
use std::path::{Path, PathBuf};

use logging::escape::escaped;

pub use lock::Lock;
pub use record::Record;

/// Why a record or a lock is not to be had. Its message is one line that names the file.
#[derive(Debug, thiserror::Error)]
#[error("{}: {problem}", escaped(&path.to_string_lossy()))]
pub struct Fault {
    /// The file.
    pub path: PathBuf,
    /// What is wrong with it.
    pub problem: Problem,
}

/// What is wrong with a file.
#[derive(Debug, thiserror::Error)]
pub enum Problem {
    /// The system refuses it.
    #[error("cannot {what} it: {error}")]
    System {
        /// What was tried.
        what: &'static str,
        /// The system's reason.
        error: io::Error,
    },
    /// Another process has the lock.
    #[error("in use by another process{}", holder.map(|id| format!(" ({id})")).unwrap_or_default())]
    InUse {
        /// Its id, as far as it has written one.
        holder: Option<u32>,
    },
    /// It is no record, or one of another kind.
    #[error("not a {expected} file of monolock: {found}")]
    Foreign {
        /// The kind that was looked for.
        expected: &'static str,
        /// How it begins.
        found: String,
    },
    /// It was cut or changed.
    #[error("damaged: {0}")]
    Damaged(String),
}

impl Problem {
    fn of(self, path: &Path) -> Fault {
        Fault { path: path.into(), problem: self }
    }
}

fn cannot<'a>(what: &'static str, path: &'a Path) -> impl Fn(io::Error) -> Fault + 'a {
    move |error| Problem::System { what, error }.of(path)
}
