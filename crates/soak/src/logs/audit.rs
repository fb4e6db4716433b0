//! The audit log of a soak: what each life of the server wrote, event by event.

use std::net::SocketAddr;

use protocol::Token;
use serde::{Deserialize, Deserializer, de};

use super::names::lock_of;

/// What was written, and what of it cannot be read.
#[derive(Debug, Default)]
pub(crate) struct Audit {
    /// By the life of the server, in the order of writing.
    pub(crate) lives: Vec<Vec<Event>>,
    /// What no server should have written, in words.
    pub(crate) unreadable: Vec<String>,
    /// Whether the last life that wrote ended within a line.
    ends_torn: bool,
}

/// Something that happened to a lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
pub(crate) struct Event {
    /// Since the Unix epoch.
    #[serde(rename = "time", deserialize_with = "unix_us")]
    pub(crate) unix_us: u64,
    #[serde(deserialize_with = "lock")]
    pub(crate) lock: u32,
    #[serde(rename = "remote_addr")]
    pub(crate) peer: SocketAddr,
    #[serde(flatten)]
    pub(crate) what: What,
}

/// What happened. Nothing else does in a soak: no client is denied, and no event is lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub(crate) enum What {
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
pub(crate) enum Reason {
    Graceful,
    Expired,
    Force,
    Shutdown,
}

impl Audit {
    /// Takes what the next life of the server wrote. Only a life that did not end in order may tear its last
    /// line.
    pub(super) fn take(&mut self, part: &[u8], ended_in_order: bool) {
        let number = self.lives.len();
        let mut rest = part;
        if self.ends_torn && !part.is_empty() {
            match part.strip_prefix(b"\n") {
                Some(after) => rest = after,
                None => self.unreadable.push(format!("server life {number} went on within a torn line")),
            }
        }
        let whole = rest.iter().rposition(|&byte| byte == b'\n').map_or(0, |last| last + 1);
        let (lines, torn) = rest.split_at(whole);
        let mut events = Vec::new();
        for line in lines.split_inclusive(|&byte| byte == b'\n') {
            match serde_json::from_slice(line) {
                Ok(event) => events.push(event),
                Err(error) => {
                    let line = String::from_utf8_lossy(line);
                    self.unreadable.push(format!("this has no place here: {error}: {}", line.trim_end()));
                }
            }
        }
        self.lives.push(events);
        if !torn.is_empty() && ended_in_order {
            self.unreadable.push(format!("server life {number} was not killed, and its last line is torn"));
        }
        if !part.is_empty() {
            self.ends_torn = !torn.is_empty();
        }
    }
}

impl Event {
    /// The token of a grant.
    pub(crate) fn granted(&self) -> Option<Token> {
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
