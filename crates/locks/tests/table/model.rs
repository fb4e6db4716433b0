//! A naive lock table: a list a lock, searched from the front; every session is looked at for everything.

use std::collections::{BTreeMap, HashSet};

use locks::{Answer, Counts, Effect, Gate, Opening, Reason, Turn};
use protocol::{ErrorCode, Token};

const MS: u64 = 1_000_000;

/// An effect without ids: the model knows connections only.
#[derive(Debug, PartialEq)]
pub(crate) enum Seen {
    Queued(u32),
    Granted(u32, String, Token, u64),
    Released(u32, String, Token, u64, Reason),
    End(u32, Option<ErrorCode>),
}

impl From<&Effect<u32>> for Seen {
    fn from(effect: &Effect<u32>) -> Self {
        match effect {
            Effect::Queued { conn, .. } => Self::Queued(*conn),
            Effect::Granted { conn, lock, token, wait_ns, .. } => {
                Self::Granted(*conn, lock.to_string(), *token, *wait_ns)
            }
            Effect::Released { conn, lock, token, held_ns, reason, .. } => {
                Self::Released(*conn, lock.to_string(), *token, *held_ns, *reason)
            }
            Effect::End { conn, error, .. } => Self::End(*conn, *error),
        }
    }
}

pub(crate) struct Session {
    pub(crate) lock: String,
    lease_ms: u32,
    last_seen_ns: u64,
    arrived_ns: u64,
    held: Option<Held>,
    suspect: bool,
    pub(crate) reserved: Option<Reason>,
    pub(crate) look: Look,
}

struct Held {
    token: Token,
    granted_ns: u64,
}

/// When a session has to come up as overdue.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Look {
    /// In the tick after its deadline.
    ByLease,
    /// At once, for a lock waits for it.
    AtOnce,
    /// Having been looked at before: not before the one time, and in the tick of the other.
    Again { from_ns: u64, by_ns: u64 },
    /// Not at all: it came up, and the answer is outstanding.
    Out,
}

impl Session {
    pub(crate) fn deadline_ns(&self) -> u64 {
        self.last_seen_ns.saturating_add(u64::from(self.lease_ms) * MS)
    }

    pub(crate) fn is_overdue(&self, now_ns: u64) -> bool {
        now_ns > self.deadline_ns()
    }

    /// The latest time at which it comes up as overdue.
    pub(crate) fn comes_up_ns(&self) -> Option<u64> {
        let by_lease = (self.deadline_ns() / MS + 1) * MS;
        match self.look {
            Look::ByLease => Some(by_lease),
            Look::AtOnce => Some(self.deadline_ns() + 1),
            Look::Again { by_ns, .. } => Some(by_ns.div_ceil(MS) * MS),
            Look::Out => None,
        }
    }

    fn seen(&mut self, now_ns: u64) {
        self.last_seen_ns = now_ns;
        if self.look != Look::Out {
            self.look = Look::ByLease;
        }
    }

    fn is_waiter(&self) -> bool {
        self.held.is_none()
    }
}

/// Connection numbers name sessions; they rise with every ACQUIRE, so their order is that of arrival.
pub(crate) struct Model {
    pub(crate) sessions: BTreeMap<u32, Session>,
    opening: Opening,
    last_token: u64,
    pub(crate) ceiling: u64,
}

impl Model {
    pub(crate) fn new(ceiling: u64) -> Self {
        Self { sessions: BTreeMap::new(), opening: Opening::FIRST, last_token: 0, ceiling }
    }

    pub(crate) fn acquire(
        &mut self,
        turn: &Turn,
        conn: u32,
        lock: &str,
        lease_ms: u32,
    ) -> Result<Vec<Seen>, ErrorCode> {
        match turn.gate {
            Gate::Standby => return Err(ErrorCode::STANDBY),
            Gate::ShuttingDown => return Err(ErrorCode::SHUTTING_DOWN),
            Gate::Open(opening) if opening != self.opening && !self.sessions.is_empty() => {
                return Err(ErrorCode::STANDBY);
            }
            Gate::Open(opening) => self.opening = opening,
        }
        let (now, mut seen) = (turn.now_ns, Vec::new());
        let is_next = self.holder(lock).is_none() && self.first(lock).is_none();
        let queued = !is_next || self.next_token(turn).is_none();
        let lock = lock.to_owned();
        let new = Session {
            lock: lock.clone(),
            lease_ms,
            last_seen_ns: now,
            arrived_ns: now,
            held: None,
            suspect: false,
            reserved: None,
            look: Look::ByLease,
        };
        self.sessions.insert(conn, new);
        if queued {
            seen.push(Seen::Queued(conn));
        }
        self.promote(turn, &lock, &mut seen);
        Ok(seen)
    }

    pub(crate) fn heartbeat(&mut self, turn: &Turn, conn: u32) -> (Option<Answer>, Vec<Seen>) {
        let mut seen = Vec::new();
        if turn.gate != Gate::Open(self.opening) || !self.has_io(conn) {
            return (None, seen);
        }
        let session = self.sessions.get_mut(&conn).unwrap();
        session.seen(turn.now_ns);
        session.suspect = false;
        let answer = session.held.as_ref().map_or(Answer::Waiting, |held| Answer::Acquired(held.token));
        let lock = session.lock.clone();
        self.promote(turn, &lock, &mut seen);
        (Some(answer), seen)
    }

    pub(crate) fn end(&mut self, turn: &Turn, conn: u32, reason: Reason) -> Vec<Seen> {
        let mut seen = Vec::new();
        if self.has_io(conn) {
            self.remove(turn, conn, reason, None, true, &mut seen);
        }
        seen
    }

    pub(crate) fn silence(&mut self, turn: &Turn, conn: u32, reason: Reason) -> Vec<Seen> {
        if !self.has_io(conn) {
            return Vec::new();
        }
        let session = self.sessions.get_mut(&conn).unwrap();
        if session.is_waiter() {
            return self.end(turn, conn, reason);
        }
        session.suspect = false;
        session.reserved = Some(reason);
        session.look = Look::ByLease;
        Vec::new()
    }

    pub(crate) fn set_suspect(&mut self, turn: &Turn, conn: u32, suspect: bool) -> Vec<Seen> {
        let mut seen = Vec::new();
        if self.has_io(conn) {
            let session = self.sessions.get_mut(&conn).unwrap();
            let changed = std::mem::replace(&mut session.suspect, suspect) != suspect;
            let lock = session.lock.clone();
            if changed {
                self.promote(turn, &lock, &mut seen);
            }
        }
        seen
    }

    pub(crate) fn force_release(&mut self, turn: &Turn, lock: &str) -> (bool, Vec<Seen>) {
        let mut seen = Vec::new();
        let holder = self.holder(lock);
        if let Some(conn) = holder {
            let error = Some(Some(ErrorCode::CLOSED_BY_ADMINISTRATOR));
            self.remove(turn, conn, Reason::Force, error, true, &mut seen);
        }
        (holder.is_some(), seen)
    }

    pub(crate) fn kick(&mut self, turn: &Turn, conn: u32) -> (bool, Vec<Seen>) {
        let mut seen = Vec::new();
        let is_waiter = self.sessions.get(&conn).is_some_and(Session::is_waiter);
        if is_waiter {
            let error = Some(Some(ErrorCode::CLOSED_BY_ADMINISTRATOR));
            self.remove(turn, conn, Reason::Force, error, true, &mut seen);
        }
        (is_waiter, seen)
    }

    pub(crate) fn expire(&mut self, turn: &Turn, conn: u32) -> Vec<Seen> {
        let mut seen = Vec::new();
        if let Some(session) = self.sessions.get_mut(&conn) {
            if session.is_overdue(turn.now_ns) {
                let reason = session.reserved.unwrap_or(Reason::Expired);
                self.remove(turn, conn, reason, Some(None), true, &mut seen);
            } else {
                session.look = Look::ByLease;
            }
        }
        seen
    }

    /// `exact`: the wheel is not catching up, so the session does not come up sooner either.
    pub(crate) fn look_again(&mut self, now_ns: u64, conn: u32, exact: bool) {
        if let Some(session) = self.sessions.get_mut(&conn) {
            let by_ns = now_ns + MS;
            let from_ns = if exact { by_ns } else { now_ns };
            let overdue = session.is_overdue(now_ns);
            session.look = if overdue { Look::Again { from_ns, by_ns } } else { Look::ByLease };
        }
    }

    /// An overdue first waiter of a free lock may be looked at sooner: its lock was looked at again.
    pub(crate) fn first_waiters_may_come_up(&mut self) {
        let locks: HashSet<String> = self.sessions.values().map(|session| session.lock.clone()).collect();
        for lock in locks {
            let Some(conn) = self.first(&lock).filter(|_| self.holder(&lock).is_none()) else { continue };
            if let Look::Again { from_ns, .. } = &mut self.sessions.get_mut(&conn).unwrap().look {
                *from_ns = 0;
            }
        }
    }

    /// Ends one session, as `close_some` does.
    pub(crate) fn close(&mut self, turn: &Turn, conn: u32, reason: Reason) -> Vec<Seen> {
        let mut seen = Vec::new();
        self.remove(turn, conn, reason, Some(Some(ErrorCode::SHUTTING_DOWN)), false, &mut seen);
        seen
    }

    pub(crate) fn counts(&self) -> Counts {
        let count = |of: fn(&Session) -> bool| self.sessions.values().filter(|session| of(session)).count();
        Counts {
            sessions: self.sessions.len(),
            locks: self.sessions.values().map(|session| &session.lock).collect::<HashSet<_>>().len(),
            locks_held: count(|session| session.held.is_some()),
            waiters: count(Session::is_waiter),
            suspects: count(|session| session.suspect),
            reserved: count(|session| session.reserved.is_some()),
        }
    }

    pub(crate) fn holder(&self, lock: &str) -> Option<u32> {
        self.of(lock).find(|(_, session)| session.held.is_some()).map(|(conn, _)| conn)
    }

    pub(crate) fn waiters(&self, lock: &str) -> Vec<u32> {
        self.of(lock).filter(|(_, session)| session.is_waiter()).map(|(conn, _)| conn).collect()
    }

    fn of(&self, lock: &str) -> impl Iterator<Item = (u32, &Session)> {
        self.sessions.iter().filter(move |(_, session)| session.lock == lock).map(|(&conn, of)| (conn, of))
    }

    fn first(&self, lock: &str) -> Option<u32> {
        self.of(lock).find(|(_, session)| session.is_waiter() && !session.suspect).map(|(conn, _)| conn)
    }

    fn has_io(&self, conn: u32) -> bool {
        self.sessions.get(&conn).is_some_and(|session| session.reserved.is_none())
    }

    fn next_token(&self, turn: &Turn) -> Option<Token> {
        let time = Token::from_unix_ns(turn.unix_ns).0.min(self.ceiling.saturating_sub(1 << 20));
        let token = time.max(self.last_token + 1);
        (token <= self.ceiling).then_some(Token(token))
    }

    pub(crate) fn promote(&mut self, turn: &Turn, lock: &str, seen: &mut Vec<Seen>) {
        if turn.gate != Gate::Open(self.opening) || self.holder(lock).is_some() {
            return;
        }
        let Some(conn) = self.first(lock) else { return };
        let token = self.next_token(turn);
        let session = self.sessions.get_mut(&conn).unwrap();
        if session.is_overdue(turn.now_ns) {
            if session.look != Look::Out {
                session.look = Look::AtOnce;
            }
            return;
        }
        let Some(token) = token else { return };
        self.last_token = token.0;
        session.seen(turn.now_ns);
        session.held = Some(Held { token, granted_ns: turn.now_ns });
        seen.push(Seen::Granted(conn, lock.to_owned(), token, turn.now_ns - session.arrived_ns));
    }

    fn remove(
        &mut self,
        turn: &Turn,
        conn: u32,
        reason: Reason,
        end: Option<Option<ErrorCode>>,
        promote: bool,
        seen: &mut Vec<Seen>,
    ) {
        let first = self.first(&self.sessions[&conn].lock);
        let session = self.sessions.remove(&conn).unwrap();
        let makes_way = session.held.is_some() || first == Some(conn);
        if let Some(held) = session.held {
            let held_ns = turn.now_ns - held.granted_ns;
            seen.push(Seen::Released(conn, session.lock.clone(), held.token, held_ns, reason));
        }
        if let Some(error) = end.filter(|_| session.reserved.is_none()) {
            seen.push(Seen::End(conn, error));
        }
        if promote && makes_way {
            self.promote(turn, &session.lock, seen);
        }
    }
}
