//! The health file: what keepalived's `track_file` watches.
//!
//! It has `1` while this node is fit to have the address, and else it is not there: with `weight 0 reverse`
//! a missing file is a fault. It comes by a rename of a whole file, not by a write: keepalived reads it at a
//! start and at a reload of its own too, and a file that is open for writing is empty for a moment.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use logging::seldom::Seldom;
use tracing::{Level, info, warn};

/// What a healthy node's file has.
const HEALTHY: &str = "1\n";

/// How often a file that cannot be made is logged. It is tried at each beat.
const WARN_INTERVAL: std::time::Duration = std::time::Duration::from_secs(10);

/// The file of this node.
#[derive(Debug)]
pub(crate) struct HealthFile {
    path: PathBuf,
    aside: PathBuf,
    trouble: Seldom,
}

impl HealthFile {
    /// Takes away what another process has left there.
    ///
    /// # Errors
    ///
    /// It is there and stays.
    pub(crate) fn new(path: PathBuf) -> io::Result<Self> {
        let mut aside = path.clone().into_os_string();
        aside.push(".new");
        unlink(&path)?;
        let trouble = Seldom::new("the health file cannot be made or removed", Level::WARN, WARN_INTERVAL);
        Ok(Self { path, aside: aside.into(), trouble })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Makes it so that it is there without a fault. What fails, and what somebody else undoes, is done
    /// again with the next call: at each beat.
    pub(crate) fn set(&mut self, fault: Option<&str>) {
        let healthy = fault.is_none();
        if healthy == fs::symlink_metadata(&self.path).is_ok() {
            return;
        }
        let done = if healthy {
            fs::write(&self.aside, HEALTHY).and_then(|()| fs::rename(&self.aside, &self.path))
        } else {
            unlink(&self.path)
        };
        match done {
            Ok(()) => info!(healthy, fault, "health file"),
            Err(error) if self.trouble.may_log() => {
                warn!(%error, path = %self.path.display(), healthy, "the health file cannot be changed");
            }
            Err(_) => {}
        }
    }
}

/// Removes a file that may have gone already.
pub(crate) fn unlink(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}
