//! What the admin API says, as JSON: written by the server, read by the command line.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

use crate::shard::seen;

/// `GET /api/info`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Info {
    pub(crate) version: String,
    pub(crate) uptime_ms: u64,
    pub(crate) config: Config,
    /// Locks with a holder or a queue.
    pub(crate) locks: u64,
    /// Holders and waiters.
    pub(crate) sessions: u64,
}

/// The settings that the server runs with. What is off is empty.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Config {
    pub(crate) listen: String,
    pub(crate) ops_listen: String,
    pub(crate) admin_listen: String,
    pub(crate) tls: bool,
    pub(crate) mtls: bool,
    pub(crate) acl_file: String,
    pub(crate) audit_log: String,
    pub(crate) io_timeout_ms: u64,
    pub(crate) shards: u64,
}

/// `GET /api/locks`, with as much of each lock as its reader wants.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub(crate) struct Listing<L = Lock> {
    /// In the order of their names' bytes.
    pub(crate) locks: Vec<L>,
    /// What to pass as `after`; none when there are no more.
    pub(crate) next: Option<String>,
}

/// `GET /api/locks/{name}`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Lock {
    pub(crate) name: String,
    pub(crate) holder: Option<Holder>,
    /// First come first.
    pub(crate) waiters: Vec<Waiter>,
}

/// Who holds a lock.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Holder {
    pub(crate) identity: String,
    pub(crate) remote_addr: String,
    pub(crate) since: Time,
    pub(crate) lease_ms: u32,
    pub(crate) token: u64,
}

/// One that waits.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Waiter {
    pub(crate) identity: String,
    pub(crate) remote_addr: String,
    pub(crate) queued_at: Time,
}

/// The answer to a force-release: the holder as it was.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Released {
    pub(crate) name: String,
    pub(crate) released: Holder,
}

/// The answer to a kick: the waiter as it was.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Kicked {
    pub(crate) name: String,
    pub(crate) kicked: Waiter,
}

/// The answer of every call that failed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Error {
    pub(crate) error: String,
}

/// A time, in JSON as RFC 3339 in UTC with microseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Time(pub(crate) SystemTime);

impl Time {
    fn from_unix_ns(ns: u64) -> Self {
        Self(UNIX_EPOCH + Duration::from_nanos(ns))
    }
}

impl Serialize for Time {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&humantime::format_rfc3339_micros(self.0))
    }
}

impl<'de> Deserialize<'de> for Time {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        humantime::parse_rfc3339(&text).map(Self).map_err(de::Error::custom)
    }
}

impl From<&seen::Lock> for Lock {
    fn from(lock: &seen::Lock) -> Self {
        Self {
            name: (*lock.name).to_owned(),
            holder: lock.holder.as_ref().map(Holder::from),
            waiters: lock.waiters.iter().map(Waiter::from).collect(),
        }
    }
}

impl From<&seen::Holder> for Holder {
    fn from(holder: &seen::Holder) -> Self {
        Self {
            identity: identity(&holder.who),
            remote_addr: holder.who.peer.to_string(),
            since: Time::from_unix_ns(holder.since_ns),
            lease_ms: holder.lease.as_ms(),
            token: holder.token.0,
        }
    }
}

impl From<&seen::Waiter> for Waiter {
    fn from(waiter: &seen::Waiter) -> Self {
        Self {
            identity: identity(&waiter.who),
            remote_addr: waiter.who.peer.to_string(),
            queued_at: Time::from_unix_ns(waiter.queued_at_ns),
        }
    }
}

fn identity(who: &seen::Who) -> String {
    who.identity.as_deref().unwrap_or_default().to_owned()
}
