//! What the admin API says: written by the server, read by its callers.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

/// `GET /api/info`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Info {
    /// Of the program.
    pub version: String,
    /// Since it began to listen, in ms.
    pub uptime_ms: u64,
    /// What it runs with.
    pub config: Config,
    /// Locks with a holder or a queue.
    pub locks: u64,
    /// Holders and waiters.
    pub sessions: u64,
}

/// The settings that the server runs with. What is off is empty.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Config {
    /// The protocol's addresses.
    pub listen: String,
    /// Of metrics and health checks.
    pub ops_listen: String,
    /// Of this API.
    pub admin_listen: String,
    /// Whether clients speak TLS.
    pub tls: bool,
    /// Whether they must show a certificate.
    pub mtls: bool,
    /// A path.
    pub acl_file: String,
    /// A path, or `-`.
    pub audit_log: String,
    /// In ms.
    pub io_timeout_ms: u64,
    /// Their number.
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
    /// As its clients wrote it.
    pub name: String,
    /// None while there are only waiters.
    pub holder: Option<Holder>,
    /// First come first.
    pub waiters: Vec<Waiter>,
}

/// Who holds a lock.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Holder {
    /// From the client's certificate; empty without one.
    pub identity: String,
    /// Address and port.
    pub remote_addr: String,
    /// When it was granted.
    pub since: Time,
    /// In ms.
    pub lease_ms: u32,
    /// Of this ownership.
    pub token: u64,
}

/// One that waits.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Waiter {
    /// From the client's certificate; empty without one.
    pub identity: String,
    /// Address and port: what a kick names.
    pub remote_addr: String,
    /// When it came.
    pub queued_at: Time,
}

/// The answer to a force-release: the holder as it was.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Released {
    /// The lock's.
    pub name: String,
    /// Who held it.
    pub released: Holder,
}

/// The answer to a kick: the waiter as it was.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Kicked {
    /// The lock's.
    pub name: String,
    /// Who waited.
    pub kicked: Waiter,
}

/// The answer to a command of `POST /api/ha/…`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Commanded {
    /// 0 done, 1 refused, 2 unknown, 3 pending: the exit status of the command.
    pub status: u8,
    /// What came of it, in a sentence.
    pub result: String,
}

/// `GET /api/ha`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeStatus {
    /// `active`, `standby` or `fence_pending`.
    pub role: String,
    /// `open`, `closing` or `closed`.
    pub gate: String,
    /// This node's name.
    pub node: String,
    /// The highest promised term; while active, the term in which this node is open.
    pub term: Option<String>,
    /// The highest term known to have been opened.
    pub opened: Option<String>,
    /// Under hold: no promotion and no fencing.
    pub hold: bool,
    /// Demoted by hand: only a promotion by hand makes it active.
    pub demoted: bool,
    /// Why it is not active, where that needs a reason.
    pub reason: Option<String>,
    /// What the last fencer said.
    pub last_fence: Option<String>,
    /// The fence levels, in order.
    pub fencers: String,
    /// The largest token put aside.
    pub token_ceiling: u64,
    /// The other node.
    pub peer: PeerStatus,
    /// What an operator should look at.
    pub warnings: Vec<String>,
}

/// The other node, as this one knows it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PeerStatus {
    /// Its name.
    pub node: String,
    /// How long ago it gave its last answer, in ms; none if it has not since this process started.
    pub answered_ms_ago: Option<u64>,
    /// Why it gave none the last time it was asked.
    pub silence: Option<String>,
    /// `open`, `closing` or `closed`, as it last said.
    pub gate: Option<String>,
    /// Its promise.
    pub term: Option<String>,
    /// Its sessions.
    pub sessions: Option<u64>,
    /// How far its wall clock is ahead of ours, in ms.
    pub clock_ahead_ms: Option<i64>,
}

/// The answer of every call that failed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Refusal {
    /// Why, in a sentence.
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
    /// Of the program.
    pub version: String,
    /// Since it began to listen, in ms.
    pub uptime_ms: u64,
    /// Holders and waiters.
    pub sessions: u64,
}

/// A lock whose waiters are only counted.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct Summary {
    /// As its clients wrote it.
    pub name: String,
    /// None while there are only waiters.
    pub holder: Option<Holder>,
    /// How many wait.
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
