//! The names of a soak: of its locks, and of the files in its folder.

use std::path::{Path, PathBuf};

use super::entry::ClientId;

/// What the names of its locks begin with.
const LOCK: &str = "soak-";

/// The name of a lock.
pub fn lock_name(lock: u32) -> String {
    format!("{LOCK}{lock}")
}

/// The lock of this name, if it is one of a soak's.
pub fn lock_of(name: &str) -> Option<u32> {
    name.strip_prefix(LOCK)?.parse().ok()
}

/// The server's own log, of all its lives.
pub fn audit_log(dir: &Path) -> PathBuf {
    dir.join("audit.log")
}

/// Where the server's admin API listens.
pub fn admin_socket(dir: &Path) -> PathBuf {
    dir.join("admin.sock")
}

/// What the soak did.
pub fn acts_log(dir: &Path) -> PathBuf {
    dir.join("acts.log")
}

/// What a client saw.
pub fn client_log(dir: &Path, client: ClientId) -> PathBuf {
    dir.join(format!("client-{client}.log"))
}

/// What a lock guards.
pub fn register(dir: &Path, lock: u32) -> PathBuf {
    dir.join(format!("register-{lock}.log"))
}
