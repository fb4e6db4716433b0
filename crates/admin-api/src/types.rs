//! What the admin API says, as JSON: written by the server, read by the command line.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

/// `GET /api/info`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Info {
    pub version: String,
    pub uptime_ms: u64,
    pub config: Config,
    /// Locks with a holder or a queue.
    pub locks: u64,
    /// Holders and waiters.
    pub sessions: u64,
}

/// The settings that the server runs with. What is off is empty.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Config {
    pub listen: String,
    pub ops_listen: String,
    pub admin_listen: String,
    pub tls: bool,
    pub mtls: bool,
    pub acl_file: String,
    pub audit_log: String,
    pub io_timeout_ms: u64,
    pub shards: u64,
}

/// `GET /api/locks`, with as much of each lock as its reader wants.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct Listing<L = Lock> {
    /// In the order of their names' bytes.
    pub locks: Vec<L>,
    /// What to pass as `after`; none when there are no more.
    pub next: Option<String>,
}

/// `GET /api/locks/{name}`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lock {
    pub name: String,
    pub holder: Option<Holder>,
    /// First come first.
    pub waiters: Vec<Waiter>,
}

/// Who holds a lock.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Holder {
    pub identity: String,
    pub remote_addr: String,
    pub since: Time,
    pub lease_ms: u32,
    pub token: u64,
}

/// One that waits.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Waiter {
    pub identity: String,
    pub remote_addr: String,
    pub queued_at: Time,
}

/// The answer to a force-release: the holder as it was.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Released {
    pub name: String,
    pub released: Holder,
}

/// The answer to a kick: the waiter as it was.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Kicked {
    pub name: String,
    pub kicked: Waiter,
}

/// The answer of every call that failed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Refusal {
    pub error: String,
}

/// A time, in JSON as RFC 3339 in UTC with microseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Time(pub SystemTime);

impl Time {
    /// From nanoseconds since the Unix epoch.
    pub fn from_unix_ns(ns: u64) -> Self {
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

/// What is wanted of `/api/info`: no more, so that servers of other versions have it too.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct About {
    pub version: String,
    pub uptime_ms: u64,
    /// Holders and waiters.
    pub sessions: u64,
}

/// A lock whose waiters are only counted.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct Summary {
    pub name: String,
    pub holder: Option<Holder>,
    #[serde(deserialize_with = "count")]
    pub waiters: u64,
}

/// The length of a list, without its items.
fn count<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u64, D::Error> {
    // Items without a size take no memory.
    struct Skipped;
    impl<'de> Deserialize<'de> for Skipped {
        fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
            serde::de::IgnoredAny::deserialize(deserializer).map(|_| Self)
        }
    }
    Vec::<Skipped>::deserialize(deserializer).map(|items| items.len() as u64)
}
