//! The audit log of a soak, read: what each life of the server wrote, event by event.

use std::fs;
use std::net::SocketAddr;
use std::path::Path;

use anyhow::{Context, Result};
use protocol::Token;
use serde::{Deserialize, Deserializer, de};

use super::check::Violation;
use super::history::Life;
use super::lock_of;

/// What was written, and what of it cannot be read.
#[derive(Debug, Default)]
pub(super) struct Audit {
    /// By the life of the server, in the order of writing.
    pub(super) lives: Vec<Vec<Event>>,
    pub(super) unreadable: Vec<Violation>,
}

/// Something that happened to a lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
pub(super) struct Event {
    /// Since the Unix epoch.
    #[serde(rename = "time", deserialize_with = "unix_us")]
    pub(super) unix_us: u64,
    #[serde(deserialize_with = "lock")]
    pub(super) lock: u32,
    #[serde(rename = "remote_addr")]
    pub(super) peer: SocketAddr,
    #[serde(flatten)]
    pub(super) what: What,
}

/// What happened. Nothing else does in a soak: no client is denied, and no event is lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub(super) enum What {
    Granted {
        #[serde(deserialize_with = "token")]
        token: Token,
        wait_ms: u64,
    },
    Released {
        #[serde(deserialize_with = "token")]
        token: Token,
        held_ms: u64,
        reason: Reason,
    },
    ForceRelease {
        #[serde(deserialize_with = "token")]
        token: Token,
    },
    KickWaiter,
}

/// Why an ownership ended. Nothing in a soak asks for the other reasons that a server has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Reason {
    Graceful,
    Expired,
    Force,
    Shutdown,
}

impl Audit {
    /// Reads the log of these lives.
    pub(super) fn read(path: &Path, lives: &[Life]) -> Result<Self> {
        let bytes = fs::read(path).with_context(|| path.display().to_string())?;
        let mut audit = Self::default();
        let mut torn = false;
        for (number, life) in lives.iter().enumerate() {
            let end = lives.get(number + 1).map_or(bytes.len(), |next| next.audit_bytes);
            let part = bytes.get(life.audit_bytes..end).context("the audit log is shorter than it was")?;
            torn = audit.take(number, life, part, torn);
        }
        Ok(audit)
    }

    /// Takes what one life wrote, after a torn line or not. Whether it ends with one.
    fn take(&mut self, number: usize, life: &Life, part: &[u8], after_torn: bool) -> bool {
        let mut part = part;
        if after_torn && !part.is_empty() {
            match part.strip_prefix(b"\n") {
                Some(rest) => part = rest,
                None => self.fault(format!("server life {number} went on within a torn line")),
            }
        }
        let whole = part.iter().rposition(|&byte| byte == b'\n').map_or(0, |last| last + 1);
        let (lines, rest) = part.split_at(whole);
        let mut events = Vec::new();
        for line in lines.split_inclusive(|&byte| byte == b'\n') {
            match serde_json::from_slice(line) {
                Ok(event) => events.push(event),
                Err(error) => {
                    let line = String::from_utf8_lossy(line);
                    self.fault(format!("this has no place here: {error}: {}", line.trim_end()));
                }
            }
        }
        self.lives.push(events);
        if !rest.is_empty() && life.ended_in_order() {
            self.fault(format!("server life {number} was not killed, and its last line is torn"));
        }
        if part.is_empty() { after_torn } else { !rest.is_empty() }
    }

    fn fault(&mut self, what: String) {
        self.unreadable.push(Violation::of_audit(what));
    }
}

impl Event {
    /// The token of a grant.
    pub(super) fn granted(&self) -> Option<Token> {
        if let What::Granted { token, .. } = self.what { Some(token) } else { None }
    }
}

fn token<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Token, D::Error> {
    u64::deserialize(deserializer).map(Token)
}

fn lock<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u32, D::Error> {
    let name = String::deserialize(deserializer)?;
    lock_of(&name).ok_or_else(|| de::Error::custom(format_args!("{name:?} is no lock of this soak")))
}

fn unix_us<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u64, D::Error> {
    let text = String::deserialize(deserializer)?;
    let time = humantime::parse_rfc3339(&text).map_err(de::Error::custom)?;
    let since = time.duration_since(std::time::UNIX_EPOCH).map_err(de::Error::custom)?;
    u64::try_from(since.as_micros()).map_err(de::Error::custom)
}
