//! The logs in a folder become a history.

use std::fs;
use std::path::Path;
use std::str::FromStr;

use anyhow::{Context, Result};

use super::audit::Audit;
use super::entry::{ActLine, ClientId};
use super::history::{History, Life};
use super::names::{acts_log, audit_log};

/// Reads a folder. A torn last line of a file is passed over; any other line must be right.
pub(crate) fn read(dir: &Path) -> Result<History> {
    let mut history = History::default();
    for line in lines::<ActLine>(&acts_log(dir))? {
        history.act(line)?;
    }
    for file in fs::read_dir(dir).with_context(|| dir.display().to_string())? {
        let path = file?.path();
        let Some(name) = path.file_stem().and_then(|name| name.to_str()) else { continue };
        if let Some(client) = name.strip_prefix("client-") {
            let client: ClientId = client.parse()?;
            for line in lines(&path)? {
                history.see(client, line)?;
            }
        } else if let Some(lock) = name.strip_prefix("register-") {
            history.registers.insert(lock.parse()?, lines(&path)?);
        }
    }
    history.audit = read_audit(&audit_log(dir), &history.lives)?;
    Ok(history)
}

/// Reads the audit log of these lives.
fn read_audit(path: &Path, lives: &[Life]) -> Result<Audit> {
    let bytes = fs::read(path).with_context(|| path.display().to_string())?;
    let mut audit = Audit::default();
    for (number, life) in lives.iter().enumerate() {
        let end = lives.get(number + 1).map_or(bytes.len(), |next| next.audit_bytes);
        let part = bytes.get(life.audit_bytes..end).context("the audit log is shorter than it was")?;
        audit.take(part, life.ended_in_order());
    }
    Ok(audit)
}

/// The lines of a file that were written to their end.
pub(crate) fn lines<T: FromStr<Err = anyhow::Error>>(path: &Path) -> Result<Vec<T>> {
    let bytes = fs::read(path).with_context(|| path.display().to_string())?;
    let whole = bytes.iter().rposition(|&byte| byte == b'\n').map_or(0, |last| last + 1);
    let text = str::from_utf8(&bytes[..whole]).with_context(|| path.display().to_string())?;
    let parse = |line: &str| line.parse().with_context(|| format!("{}: {line:?}", path.display()));
    text.lines().map(parse).collect()
}
