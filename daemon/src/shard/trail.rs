//! What the audit log gets from a shard: who did what, in the order in which the lock table decided it.

use std::collections::HashMap;
use std::sync::Arc;

use locks::SessionId;
use reactor::Key;

use super::seen::Who;
use super::worker::Worker;
use audit::{Event, Recorder, What};

/// The audit log's producer, and who the sessions belong to whose connection is gone while their lock is reserved.
pub(super) struct Trail {
    audit: Option<Recorder>,
    given_up: HashMap<SessionId, Who>,
}

impl Trail {
    pub(super) fn new(audit: Option<Recorder>) -> Self {
        Self { audit, given_up: HashMap::new() }
    }
}

impl Worker {
    /// Who a session belongs to, also when its connection is gone.
    ///
    /// # Panics
    ///
    /// The session has ended, and its last effect was carried out.
    pub(super) fn who(&self, key: Key, session: SessionId) -> Who {
        match self.reactor.get(key) {
            Some(connection) => connection.who(),
            None => self.trail.given_up[&session].clone(),
        }
    }

    /// The connection of a session is given up; the session may stay, its lock reserved.
    pub(super) fn keep_who(&mut self, key: Key, session: SessionId) {
        if self.table.session(session).is_some() {
            let who = self.who(key, session);
            self.trail.given_up.insert(session, who);
        }
    }

    /// The session has ended.
    pub(super) fn forget_who(&mut self, session: SessionId) {
        if !self.trail.given_up.is_empty() {
            self.trail.given_up.remove(&session);
        }
    }

    /// Writes an event of a session into the audit log, if there is one.
    pub(super) fn record_of(&mut self, key: Key, session: SessionId, lock: Arc<str>, what: What) {
        if self.trail.audit.is_some() {
            self.record(&self.who(key, session), lock, what);
        }
    }

    /// Writes an event into the audit log, if there is one.
    pub(super) fn record(&mut self, who: &Who, lock: Arc<str>, what: What) {
        if let Some(audit) = &mut self.trail.audit {
            let Who { peer, identity } = who.clone();
            audit.record(Event { time_unix_ns: self.turn.unix_ns, lock, identity, peer, what });
        }
    }
}
