//! A table whose every step is observed by the checker.

use std::collections::BTreeMap;
use std::sync::Arc;

use locks::checker::{Checker, Event};
use locks::{Answer, Effect, Reason, SessionId, State, Table, TokenSource, Turn};
use protocol::{Acquire, ErrorCode, Lease, LockName};

pub(crate) type Effects = Vec<Effect<u32>>;

pub(crate) struct Checked {
    pub(crate) table: Table<u32>,
    checker: Checker<String, SessionId>,
    lock_of: BTreeMap<SessionId, String>,
}

impl Checked {
    pub(crate) fn new() -> Self {
        Self::with_tokens(Arc::new(TokenSource::new()))
    }

    pub(crate) fn with_tokens(tokens: Arc<TokenSource>) -> Self {
        let table = Table::new(tokens);
        Self { table, checker: Checker::new(), lock_of: BTreeMap::new() }
    }

    pub(crate) fn acquire(
        &mut self,
        turn: &Turn,
        conn: u32,
        lock: &str,
        lease_ms: u32,
    ) -> (Result<SessionId, ErrorCode>, Effects) {
        let lease = Lease::from_ms(lease_ms).unwrap();
        let request = Acquire { name: LockName::new(lock).unwrap(), lease };
        let mut effects = Vec::new();
        let result = self.table.acquire(turn, conn, request, &mut effects);
        if let Ok(claim) = result {
            assert_eq!(self.lock_of.insert(claim, lock.into()), None, "an id is given once");
            self.observe(turn, claim, Event::Arrived { claim, lease: Some(lease) });
        }
        (result, self.observed(turn, effects))
    }

    pub(crate) fn heartbeat(&mut self, turn: &Turn, claim: SessionId) -> (Option<Answer>, Effects) {
        let mut effects = Vec::new();
        let answer = self.table.heartbeat(turn, claim, &mut effects);
        match answer {
            None => {}
            Some(Answer::Waiting) => self.observe(turn, claim, Event::Confirmed { claim, token: None }),
            Some(Answer::Acquired(token)) => {
                self.observe(turn, claim, Event::Confirmed { claim, token: Some(token) });
            }
        }
        (answer, self.observed(turn, effects))
    }

    pub(crate) fn end(&mut self, turn: &Turn, claim: SessionId, reason: Reason) -> Effects {
        self.observe_leave(turn, claim);
        self.effects(turn, |table, effects| table.end(turn, claim, reason, effects))
    }

    pub(crate) fn silence(&mut self, turn: &Turn, claim: SessionId, reason: Reason) -> Effects {
        self.observe_leave(turn, claim);
        self.effects(turn, |table, effects| table.silence(turn, claim, reason, effects))
    }

    pub(crate) fn suspect(&mut self, turn: &Turn, claim: SessionId) -> Effects {
        if self.has_io(claim) {
            self.observe(turn, claim, Event::Suspected { claim });
        }
        self.effects(turn, |table, effects| table.suspect(turn, claim, effects))
    }

    pub(crate) fn alive(&mut self, turn: &Turn, claim: SessionId) -> Effects {
        if self.has_io(claim) {
            self.observe(turn, claim, Event::Returned { claim });
        }
        self.effects(turn, |table, effects| table.alive(turn, claim, effects))
    }

    pub(crate) fn force_release(&mut self, turn: &Turn, lock: &str) -> (bool, Effects) {
        let mut done = false;
        let effects = self.effects(turn, |table, effects| done = table.force_release(turn, lock, effects));
        (done, effects)
    }

    pub(crate) fn kick(&mut self, turn: &Turn, claim: SessionId) -> (bool, Effects) {
        let mut done = false;
        let effects = self.effects(turn, |table, effects| done = table.kick(turn, claim, effects));
        (done, effects)
    }

    pub(crate) fn expire(&mut self, turn: &Turn, claim: SessionId) -> Effects {
        self.effects(turn, |table, effects| table.expire(turn, claim, effects))
    }

    pub(crate) fn close_some(&mut self, turn: &Turn, max: usize, reason: Reason) -> (bool, Effects) {
        let mut more = false;
        let effects =
            self.effects(turn, |table, effects| more = table.close_some(turn, max, reason, effects));
        (more, effects)
    }

    pub(crate) fn grant_starved(&mut self, turn: &Turn, max: usize) -> (bool, Effects) {
        let mut more = false;
        let effects = self.effects(turn, |table, effects| more = table.grant_starved(turn, max, effects));
        (more, effects)
    }

    /// Whether the holders are those that the checker saw.
    pub(crate) fn check_holder(&self, lock: &str) {
        assert_eq!(self.table.holder(lock), self.checker.holder(&lock.to_owned()));
    }

    fn has_io(&self, claim: SessionId) -> bool {
        self.table.session(claim).is_some_and(|session| !matches!(session.state, State::Reserved { .. }))
    }

    fn observe_leave(&mut self, turn: &Turn, claim: SessionId) {
        if self.table.session(claim).is_some_and(|session| matches!(session.state, State::Waiting { .. })) {
            self.observe(turn, claim, Event::Ended { claim, expired: false });
        }
    }

    fn effects(&mut self, turn: &Turn, call: impl FnOnce(&mut Table<u32>, &mut Effects)) -> Effects {
        let mut effects = Vec::new();
        call(&mut self.table, &mut effects);
        self.observed(turn, effects)
    }

    fn observed(&mut self, turn: &Turn, effects: Effects) -> Effects {
        for effect in &effects {
            match *effect {
                Effect::Queued { .. } => {}
                Effect::Granted { session: claim, token, ref lock, .. } => {
                    assert_eq!(**lock, self.lock_of[&claim]);
                    self.observe(turn, claim, Event::Granted { claim, token });
                }
                Effect::Released { session: claim, token, ref lock, reason, .. } => {
                    assert_eq!(**lock, self.lock_of[&claim]);
                    self.observe(turn, claim, Event::Released { claim, token, reason });
                }
                Effect::End { session: claim, error, .. } => {
                    self.observe(turn, claim, Event::Ended { claim, expired: error.is_none() });
                }
            }
        }
        effects
    }

    fn observe(&mut self, turn: &Turn, claim: SessionId, event: Event<SessionId>) {
        if let Err(violation) = self.checker.observe(turn.now_ns, &self.lock_of[&claim], event) {
            panic!("{violation}");
        }
    }
}
