//! What the admin API sees of a lock, as its shard tells it: raw, so that the shard formats nothing.

use std::sync::Arc;

use locks::SessionId;
use protocol::{Lease, Token};

use audit::Peer;

/// A part of a walk through a shard, and where the next part begins, if there is one.
#[derive(Debug)]
pub(crate) struct Slice<T> {
    pub(crate) items: Vec<T>,
    pub(crate) next: Option<u32>,
}

/// What there is to see of a name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Described {
    /// Nobody holds it or waits for it.
    Idle,
    /// Everything.
    Whole(SeenLock),
    /// So many wait that the queue must be collected in slices; the holder as it is now.
    LongQueue(Option<SeenHolder>),
}

/// A lock that is held or waited for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SeenLock {
    pub(crate) name: Arc<str>,
    pub(crate) holder: Option<SeenHolder>,
    /// In order.
    pub(crate) waiters: Vec<SeenWaiter>,
}

/// Who holds a lock.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SeenHolder {
    pub(crate) session: SessionId,
    pub(crate) who: Who,
    /// Since the Unix epoch.
    pub(crate) since_ns: u64,
    pub(crate) lease: Lease,
    pub(crate) token: Token,
}

/// Why a lock was not taken from its holder.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum NotReleased {
    #[error("nobody holds this lock")]
    Idle,
    #[error("the holder's token is {holder}, not {of}")]
    OtherHolder { holder: Token, of: Token },
}

/// One that waits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SeenWaiter {
    pub(crate) session: SessionId,
    /// Its place: waiters of one lock are in the order of this number.
    pub(crate) sequence: u64,
    pub(crate) who: Who,
    /// Since the Unix epoch.
    pub(crate) queued_at_ns: u64,
}

/// Who a session belongs to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Who {
    pub(crate) peer: Peer,
    /// From the client's certificate; none without one.
    pub(crate) identity: Option<Arc<str>>,
}
