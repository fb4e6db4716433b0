//! The logs in a folder become a history.

use std::error::Error;
use std::fs;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use super::audit::Audit;
use super::entry::{ActLine, ClientId, Malformed};
use super::history::{History, Life};
use super::names::{acts_log, audit_log};

/// Why logs tell no history: a file that is missing, or that no soak writes.
#[derive(Debug, thiserror::Error)]
#[error("{}: {why}", path.display())]
pub struct Unreadable {
    path: PathBuf,
    why: String,
}

impl Unreadable {
    fn new(path: &Path, why: impl Into<Box<dyn Error>>) -> Self {
        Self { path: path.to_owned(), why: why.into().to_string() }
    }
}

/// Reads a folder. A torn last line of a file is passed over.
///
/// # Errors
///
/// A file is missing, or another line is not right.
pub fn read(dir: &Path) -> Result<History, Unreadable> {
    let mut history = History::default();
    let acts = acts_log(dir);
    for line in lines::<ActLine>(&acts)? {
        history.act(line).map_err(|why| Unreadable::new(&acts, why))?;
    }
    for file in fs::read_dir(dir).map_err(|why| Unreadable::new(dir, why))? {
        let path = file.map_err(|why| Unreadable::new(dir, why))?.path();
        let Some(name) = path.file_stem().and_then(|name| name.to_str()) else { continue };
        if let Some(client) = name.strip_prefix("client-") {
            let client: ClientId = client.parse().map_err(|why: Malformed| Unreadable::new(&path, why))?;
            for line in lines(&path)? {
                history.see(client, line).map_err(|why| Unreadable::new(&path, why))?;
            }
        } else if let Some(lock) = name.strip_prefix("register-") {
            let lock = lock.parse().map_err(|_| Unreadable::new(&path, "a lock has a number"))?;
            history.registers.insert(lock, lines(&path)?);
        }
    }
    history.audit = read_audit(&audit_log(dir), &history.lives)?;
    Ok(history)
}

/// Reads the audit log of these lives.
fn read_audit(path: &Path, lives: &[Life]) -> Result<Audit, Unreadable> {
    let bytes = fs::read(path).map_err(|why| Unreadable::new(path, why))?;
    let mut audit = Audit::default();
    for (number, life) in lives.iter().enumerate() {
        let end = lives.get(number + 1).map_or(bytes.len(), |next| next.audit_bytes);
        let part = bytes.get(life.audit_bytes..end);
        let part = part.ok_or_else(|| Unreadable::new(path, "it is shorter than it was"))?;
        audit.take(part, life.ended_in_order());
    }
    Ok(audit)
}

/// The lines of a file that were written to their end.
pub(crate) fn lines<T: FromStr<Err = Malformed>>(path: &Path) -> Result<Vec<T>, Unreadable> {
    let bytes = fs::read(path).map_err(|why| Unreadable::new(path, why))?;
    let whole = bytes.iter().rposition(|&byte| byte == b'\n').map_or(0, |last| last + 1);
    let text = str::from_utf8(&bytes[..whole]).map_err(|why| Unreadable::new(path, why))?;
    let parse = |line: &str| line.parse().map_err(|why| Unreadable::new(path, format!("{line:?}: {why}")));
    text.lines().map(parse).collect()
}
