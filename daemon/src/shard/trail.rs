//! What the audit log gets from a shard: who did what, in the order in which the lock table decided it.

use std::collections::HashMap;
use std::sync::Arc;

use audit::{Event, Recorder, What};
use locks::SessionId;
use reactor::Key;

use super::seen::Who;
use super::wire::Wire;

/// The audit log's producer, and who the sessions belong to whose connection is gone while their lock is
/// reserved.
pub(super) struct Trail {
    audit: Option<Recorder>,
    given_up: HashMap<SessionId, Who>,
}

impl Trail {
    pub(super) fn new(audit: Option<Recorder>) -> Self {
        Self { audit, given_up: HashMap::new() }
    }

    /// Who a session belongs to, also when its connection is gone.
    ///
    /// # Panics
    ///
    /// The session has ended, and its last effect was carried out.
    pub(super) fn who(&self, wire: &Wire, key: Key, session: SessionId) -> Who {
        wire.who(key).unwrap_or_else(|| self.given_up[&session].clone())
    }

    /// The connection of a session is given up; the session stays, its lock reserved.
    pub(super) fn keep(&mut self, session: SessionId, who: Who) {
        self.given_up.insert(session, who);
    }

    /// The session has ended.
    pub(super) fn forget(&mut self, session: SessionId) {
        if !self.given_up.is_empty() {
            self.given_up.remove(&session);
        }
    }

    /// Whether anything is recorded.
    pub(super) fn is_on(&self) -> bool {
        self.audit.is_some()
    }

    /// Writes an event into the audit log, if there is one.
    pub(super) fn record(&mut self, time_unix_ns: u64, who: Who, lock: Arc<str>, what: What) {
        if let Some(audit) = &mut self.audit {
            let Who { peer, identity } = who;
            audit.record(Event { time_unix_ns, lock, identity, peer, what });
        }
    }
}
