//! The lock table of one shard: every decision about a lock is made here.

use std::collections::BTreeSet;
use std::sync::Arc;

use protocol::{Acquire, ErrorCode, Token};

use crate::index::NameIndex;
use crate::lock::Lock;
use crate::record::{Holder, Place, Role, Session, Standing, Waiter};
use crate::slab::{NONE, Slab};
use crate::wheel::{NS_PER_TICK, Timer, Wheel};
use crate::{
    Answer, Counts, Effect, Gate, LockView, Opening, Reason, SessionId, SessionView, TokenSource, Turn,
};

/// When an overdue session with unread input should be looked at again: one tick of the wheel, which is about
/// the length of a shard's busy turn, after which its input has been read.
pub const LOOK_AGAIN_NS: u64 = NS_PER_TICK;

/// Sessions that one call of [`Table::next_overdue`] looks at: measured 23 µs, 90 µs in the worst percent, so
/// that a million sessions with one long lease delay no heartbeat by more.
const LOOKS_MAX: usize = 1024;

/// Slots that one call of [`Table::close_some`] looks at: measured 0.2 ms where nearly all are free.
const CLOSE_SLOTS_MAX: u32 = 16_384;

/// The locks of one shard. `C` is the caller's key of a connection.
///
/// Every call is O(1) in the number of sessions, locks and waiters, O(log n) in the number of suspects of one
/// lock where a suspect is concerned. Growth copies no record. Nothing is kept for a lock without holder and
/// waiters.
#[derive(Debug)]
pub struct Table<C> {
    pub(crate) sessions: Slab<Session<C>>,
    pub(crate) locks: Slab<Lock>,
    names: NameIndex,
    wheel: Wheel,
    tokens: Arc<TokenSource>,
    next_sequence: u64,
    counts: Counts,
    /// To which all sessions belong.
    opening: Opening,
    /// Free locks whose first waiter is only not granted because tokens have run out.
    starved: BTreeSet<u32>,
    /// The slot at which `close_some` goes on.
    close_at: u32,
}

/// A session that was just taken out.
struct Gone<C> {
    id: SessionId,
    conn: C,
    lock: u32,
    was_reserved: bool,
    /// Whether the next waiter's turn may have come.
    makes_way: bool,
}

impl<C: Copy> Table<C> {
    /// A table without locks.
    pub fn new(tokens: Arc<TokenSource>) -> Self {
        Self {
            sessions: Slab::new(),
            locks: Slab::new(),
            names: NameIndex::new(),
            wheel: Wheel::new(),
            tokens,
            next_sequence: 0,
            counts: Counts::default(),
            opening: Opening::FIRST,
            starved: BTreeSet::new(),
            close_at: 0,
        }
    }

    /// A new claim: granted if the lock is free and nobody is before it, else queued.
    ///
    /// # Errors
    ///
    /// The code of the ERROR that refuses it: the gate is closed.
    pub fn acquire(
        &mut self,
        turn: &Turn,
        conn: C,
        request: Acquire,
        effects: &mut Vec<Effect<C>>,
    ) -> Result<SessionId, ErrorCode> {
        match turn.gate {
            Gate::Open(opening) if self.counts.sessions == 0 => self.opening = opening,
            Gate::Open(opening) if opening == self.opening => {}
            // Those of the last opening end first.
            Gate::Open(_) | Gate::Standby => return Err(ErrorCode::STANDBY),
            Gate::ShuttingDown => return Err(ErrorCode::SHUTTING_DOWN),
        }
        let lock = self.find_or_make_lock(request.name.as_str());
        let at = self.insert_session(turn, conn, lock, request.lease);
        let session = self.id(at);
        let is_next = self.locks[lock].is_free() && self.locks[lock].queue.first(&self.sessions).is_none();
        if let Some(token) = is_next.then(|| self.next_token(turn, lock)).flatten() {
            self.grant(turn, at, token, effects);
        } else {
            self.locks[lock].queue.push_back(&mut self.sessions, at);
            self.counts.waiters += 1;
            effects.push(Effect::Queued { conn, session });
            self.promote(turn, lock, effects);
        }
        Ok(session)
    }

    /// A heartbeat came. Returns its answer; `None` if nothing may be confirmed: the gate is closed, or the
    /// session has ended or lost its I/O. The effects are to be carried out after the answer.
    #[inline]
    pub fn heartbeat(&mut self, turn: &Turn, id: SessionId, effects: &mut Vec<Effect<C>>) -> Option<Answer> {
        if turn.gate != Gate::Open(self.opening) {
            return None;
        }
        let session = self.sessions.get_mut(id.index, id.generation)?;
        match &session.role {
            Role::Holder(Holder { standing: Standing::Live, token, .. }) => {
                session.last_seen_ns = turn.now_ns;
                Some(Answer::Acquired(*token))
            }
            Role::Holder(Holder { standing: Standing::Suspect, token, .. }) => {
                session.last_seen_ns = turn.now_ns;
                let answer = Answer::Acquired(*token);
                self.clear_suspicion(id.index);
                Some(answer)
            }
            Role::Holder(Holder { standing: Standing::Reserved(_), .. }) => None,
            Role::Waiter(waiter) => {
                session.last_seen_ns = turn.now_ns;
                let (suspect, lock) = (waiter.place == Place::Suspect, session.lock);
                if suspect {
                    self.clear_suspicion(id.index);
                }
                if self.locks[lock].is_free() {
                    self.promote(turn, lock, effects);
                }
                Some(Answer::Waiting)
            }
        }
    }

    /// The connection is gone, or what it did ends it: its lock moves at once. Ignored if the id is stale or
    /// its session reserved: an error on a socket that was given up says nothing about the client.
    pub fn end(&mut self, turn: &Turn, id: SessionId, reason: Reason, effects: &mut Vec<Effect<C>>) {
        if self.has_io(id) {
            let gone = self.take_out(turn.now_ns, id.index, reason, effects);
            self.make_way(turn, &gone, effects);
        }
    }

    /// The I/O of a session was given up, without word from its client. A holder's lock stays reserved until
    /// its lease is over, and its release will carry `reason`; a waiter leaves. Ignored if the id is stale or
    /// its session reserved.
    pub fn silence(&mut self, turn: &Turn, id: SessionId, reason: Reason, effects: &mut Vec<Effect<C>>) {
        if !self.has_io(id) {
            return;
        }
        let at = id.index;
        match self.sessions[at].role {
            Role::Holder(_) => self.reserve(at, reason),
            Role::Waiter(_) => {
                let gone = self.take_out(turn.now_ns, at, reason, effects);
                self.make_way(turn, &gone, effects);
            }
        }
    }

    /// The session's host is thought unreachable. A waiter keeps its place but is passed over, which may be
    /// the turn of the one behind it; a holder keeps its lock.
    pub fn suspect(&mut self, turn: &Turn, id: SessionId, effects: &mut Vec<Effect<C>>) {
        if !self.has_io(id) || self.sessions[id.index].is_suspect() {
            return;
        }
        self.counts.suspects += 1;
        let session = &mut self.sessions[id.index];
        let lock = session.lock;
        match &mut session.role {
            Role::Holder(holder) => holder.standing = Standing::Suspect,
            Role::Waiter(_) => {
                self.locks[lock].queue.set_aside(&mut self.sessions, id.index);
                self.promote(turn, lock, effects);
            }
        }
    }

    /// A packet of the session's host came: suspicion ends, and a waiter takes its old place. Its lease is
    /// not extended, only a heartbeat does that.
    pub fn alive(&mut self, turn: &Turn, id: SessionId, effects: &mut Vec<Effect<C>>) {
        if self.has_io(id) && self.clear_suspicion(id.index) {
            self.promote(turn, self.sessions[id.index].lock, effects);
        }
    }

    /// Takes a lock from its holder, who gets [`ErrorCode::CLOSED_BY_ADMINISTRATOR`]; a reserved one too.
    /// False if nobody holds it.
    pub fn force_release(&mut self, turn: &Turn, name: &str, effects: &mut Vec<Effect<C>>) -> bool {
        let Some(lock) = self.find_lock(name).filter(|&lock| !self.locks[lock].is_free()) else {
            return false;
        };
        let holder = self.locks[lock].holder;
        let gone = self.take_out(turn.now_ns, holder, Reason::Force, effects);
        push_end(&gone, Some(ErrorCode::CLOSED_BY_ADMINISTRATOR), effects);
        self.make_way(turn, &gone, effects);
        true
    }

    /// Removes a waiter, who gets [`ErrorCode::CLOSED_BY_ADMINISTRATOR`]. False if the id names no waiter.
    pub fn kick(&mut self, turn: &Turn, id: SessionId, effects: &mut Vec<Effect<C>>) -> bool {
        let session = self.sessions.get_mut(id.index, id.generation);
        if !session.is_some_and(|session| matches!(session.role, Role::Waiter(_))) {
            return false;
        }
        let gone = self.take_out(turn.now_ns, id.index, Reason::Force, effects);
        push_end(&gone, Some(ErrorCode::CLOSED_BY_ADMINISTRATOR), effects);
        self.make_way(turn, &gone, effects);
        true
    }

    /// When to call [`Table::next_overdue`] again. May be early, even in the past; never late.
    pub fn next_deadline_ns(&self) -> Option<u64> {
        self.wheel.next_tick().map(|tick| tick.saturating_mul(NS_PER_TICK))
    }

    /// A session with `now − last_seen > lease`, at most 1 ms after it became so.
    ///
    /// The caller asks its socket whether it was heard after all and answers with [`Table::expire`] or
    /// [`Table::look_again`]; until then the session does not come up again. A reserved session
    /// ([`Table::session`] tells) has no socket to ask: expire it. `None` means no more for this turn: if
    /// [`Table::next_deadline_ns`] still lies in the past, there is more to look at in the next.
    pub fn next_overdue(&mut self, now_ns: u64) -> Option<SessionId> {
        for _ in 0..LOOKS_MAX {
            let at = self.wheel.pop(&mut self.sessions, now_ns / NS_PER_TICK)?;
            if self.sessions[at].is_overdue(now_ns) {
                return Some(self.id(at));
            }
            self.file_by_lease(at);
        }
        None
    }

    /// An overdue session is really silent: it ends, and its lock moves. A session that was heard meanwhile
    /// stays.
    pub fn expire(&mut self, turn: &Turn, id: SessionId, effects: &mut Vec<Effect<C>>) {
        let Some(session) = self.sessions.get_mut(id.index, id.generation) else { return };
        if !session.is_overdue(turn.now_ns) {
            self.wheel.remove(&mut self.sessions, id.index);
            self.file_by_lease(id.index);
            return;
        }
        let reason = match session.role {
            Role::Holder(Holder { standing: Standing::Reserved(reason), .. }) => reason,
            _ => Reason::Expired,
        };
        let gone = self.take_out(turn.now_ns, id.index, reason, effects);
        push_end(&gone, None, effects);
        self.make_way(turn, &gone, effects);
    }

    /// An overdue session has unread input: it comes up again after `after_ns`, [`LOOK_AGAIN_NS`] for one
    /// whose input is about to be read, unless it is heard. (A few times sooner if the last look at the
    /// leases was more than 16 s ago: the wheel is catching up.)
    pub fn look_again(&mut self, now_ns: u64, id: SessionId, after_ns: u64) {
        let Some(session) = self.sessions.get_mut(id.index, id.generation) else { return };
        let overdue = session.is_overdue(now_ns);
        self.wheel.remove(&mut self.sessions, id.index);
        if overdue {
            let tick = now_ns.saturating_add(after_ns).div_ceil(NS_PER_TICK);
            self.wheel.file(&mut self.sessions, id.index, tick);
        } else {
            self.file_by_lease(id.index);
        }
    }

    /// The token ceiling has risen: grants up to `max` locks that stayed free for want of a token. True while
    /// such locks remain.
    pub fn grant_starved(&mut self, turn: &Turn, max: usize, effects: &mut Vec<Effect<C>>) -> bool {
        if turn.gate != Gate::Open(self.opening) {
            return self.has_starved();
        }
        for _ in 0..max {
            let Some(lock) = self.starved.pop_first() else { break };
            self.promote(turn, lock, effects);
            if self.starved.contains(&lock) {
                break;
            }
        }
        self.has_starved()
    }

    /// Whether a free lock waits for a token.
    pub fn has_starved(&self) -> bool {
        !self.starved.is_empty()
    }

    /// Whether sessions are left that may not be confirmed any more: [`Table::close_some`] ends them.
    pub fn must_close(&self, gate: Gate) -> bool {
        self.counts.sessions > 0 && gate != Gate::Open(self.opening)
    }

    /// Ends up to `max` sessions with [`ErrorCode::SHUTTING_DOWN`], reserved ones included, and promotes
    /// nobody. True while sessions remain; a call may end fewer than `max`, or none, and still return true.
    pub fn close_some(
        &mut self,
        turn: &Turn,
        max: usize,
        reason: Reason,
        effects: &mut Vec<Effect<C>>,
    ) -> bool {
        debug_assert_ne!(turn.gate, Gate::Open(self.opening), "the gate closes first");
        let mut closed = 0;
        for _ in 0..self.sessions.slots().min(CLOSE_SLOTS_MAX) {
            if closed == max {
                break;
            }
            let at = self.close_at;
            self.close_at = (at + 1) % self.sessions.slots();
            if self.sessions.generation(at).is_some() {
                let gone = self.take_out(turn.now_ns, at, reason, effects);
                push_end(&gone, Some(ErrorCode::SHUTTING_DOWN), effects);
                self.forget_if_idle(gone.lock);
                closed += 1;
            }
        }
        self.counts.sessions > 0
    }

    /// How many there are.
    pub fn counts(&self) -> Counts {
        self.counts
    }

    /// A session that has not ended.
    pub fn session(&self, id: SessionId) -> Option<SessionView<'_, C>> {
        let current = self.sessions.generation(id.index) == Some(id.generation);
        current.then(|| {
            let session = &self.sessions[id.index];
            SessionView::new(session, &self.locks[session.lock].name)
        })
    }

    /// A lock that anybody holds, reserves or waits for.
    pub fn lock(&self, name: &str) -> Option<LockView<'_>> {
        let Lock { name, holder, queue } = &self.locks[self.find_lock(name)?];
        let holder = (*holder != NONE).then(|| self.id(*holder));
        Some(LockView { name, holder, waiters: queue.len() })
    }

    /// Whether anybody holds this lock, reserves it or waits for it.
    pub fn contains(&self, name: &str) -> bool {
        self.find_lock(name).is_some()
    }

    /// Who holds a lock or has it reserved.
    pub fn holder(&self, name: &str) -> Option<SessionId> {
        let holder = self.locks[self.find_lock(name)?].holder;
        (holder != NONE).then(|| self.id(holder))
    }

    /// Who waits for a lock, in order, suspects included.
    pub fn waiters(&self, name: &str) -> impl Iterator<Item = SessionId> + '_ {
        let queue = self.find_lock(name).map(|lock| &self.locks[lock].queue);
        queue.into_iter().flat_map(|queue| queue.iter(&self.sessions)).map(|at| self.id(at))
    }

    /// The names of the locks in `slots_max` slots from `slot` on, and the slot to go on at, if there are
    /// more.
    ///
    /// A lock stays in its slot: a walk from 0 to the end over many turns sees one that is there all the time
    /// exactly once.
    pub fn names_from(&self, slot: u32, slots_max: u32) -> (impl Iterator<Item = &Arc<str>>, Option<u32>) {
        let (locks, next) = self.locks.records_from(slot, slots_max);
        (locks.map(|(_, lock)| &lock.name), next)
    }

    /// The sessions in `slots_max` slots from `slot` on, and the slot to go on at, if there are more: for
    /// queues that are too long for [`Table::waiters`] in one turn. What is said of [`Table::names_from`]
    /// holds for sessions too.
    pub fn sessions_from(
        &self,
        slot: u32,
        slots_max: u32,
    ) -> (impl Iterator<Item = (SessionId, SessionView<'_, C>)>, Option<u32>) {
        let (sessions, next) = self.sessions.records_from(slot, slots_max);
        let view = |(at, session)| (self.id(at), SessionView::new(session, &self.locks[session.lock].name));
        (sessions.map(view), next)
    }

    /// Grants a free lock to its first unsuspected waiter. A waiter whose own lease is over is not granted:
    /// it comes up in `next_overdue` at once, and the lock stays free until it is heard or expired.
    fn promote(&mut self, turn: &Turn, lock: u32, effects: &mut Vec<Effect<C>>) {
        let Lock { holder, queue, .. } = &mut self.locks[lock];
        if turn.gate != Gate::Open(self.opening) || *holder != NONE {
            return;
        }
        let Some(first) = queue.first(&self.sessions) else { return };
        if !self.sessions[first].is_overdue(turn.now_ns) {
            let Some(token) = self.next_token(turn, lock) else { return };
            self.locks[lock].queue.remove(&mut self.sessions, first);
            self.counts.waiters -= 1;
            self.grant(turn, first, token, effects);
        } else if self.sessions[first].timer.is_filed() {
            self.wheel.make_due(&mut self.sessions, first);
        }
    }

    /// The token with which a free lock is granted. Without one it is looked at again when the ceiling rises.
    fn next_token(&mut self, turn: &Turn, lock: u32) -> Option<Token> {
        let token = self.tokens.next(turn.unix_ns);
        if token.is_none() {
            self.starved.insert(lock);
        }
        token
    }

    /// Makes a waiter that is in no queue the holder of its lock, which is free.
    fn grant(&mut self, turn: &Turn, at: u32, token: Token, effects: &mut Vec<Effect<C>>) {
        let id = self.id(at);
        let session = &mut self.sessions[at];
        let lock = &mut self.locks[session.lock];
        assert!(
            lock.is_free() && turn.gate == Gate::Open(self.opening),
            "only a free lock is granted, by an open gate"
        );
        let wait_ns = turn.now_ns - session.waiter().queued_ns;
        session.last_seen_ns = turn.now_ns;
        session.role = Role::Holder(Holder { token, granted_ns: turn.now_ns, standing: Standing::Live });
        lock.holder = at;
        self.counts.locks_held += 1;
        let lock = lock.name.clone();
        effects.push(Effect::Granted { conn: session.conn, session: id, lock, token, wait_ns });
    }

    /// Leaves a holder its lock without its I/O.
    fn reserve(&mut self, at: u32, reason: Reason) {
        self.clear_suspicion(at);
        self.counts.reserved += 1;
        let session = &mut self.sessions[at];
        let Role::Holder(holder) = &mut session.role else { panic!("only a holder has something reserved") };
        holder.standing = Standing::Reserved(reason);
        // It may have been put off for its unread input: there is no socket to ask any more.
        self.wheel.remove(&mut self.sessions, at);
        self.file_by_lease(at);
    }

    /// Removes a session from everything; the end of an ownership is an effect.
    fn take_out(&mut self, now_ns: u64, at: u32, reason: Reason, effects: &mut Vec<Effect<C>>) -> Gone<C> {
        let id = self.id(at);
        self.wheel.remove(&mut self.sessions, at);
        let session = &self.sessions[at];
        let (was_reserved, was_suspect) = (session.is_reserved(), session.is_suspect());
        let lock = &mut self.locks[session.lock];
        let makes_way = match &session.role {
            Role::Holder(holder) => {
                assert_eq!(lock.holder, at, "a holder's lock knows it");
                effects.push(Effect::Released {
                    conn: session.conn,
                    session: id,
                    lock: lock.name.clone(),
                    token: holder.token,
                    held_ns: now_ns - holder.granted_ns,
                    reason,
                });
                lock.holder = NONE;
                self.counts.locks_held -= 1;
                true
            }
            Role::Waiter(_) => {
                let was_first = lock.queue.first(&self.sessions) == Some(at);
                lock.queue.remove(&mut self.sessions, at);
                self.counts.waiters -= 1;
                was_first
            }
        };
        self.counts.sessions -= 1;
        self.counts.reserved -= usize::from(was_reserved);
        self.counts.suspects -= usize::from(was_suspect);
        let session = self.sessions.remove(at);
        Gone { id, conn: session.conn, lock: session.lock, was_reserved, makes_way }
    }

    /// After a session was taken out: the next waiter's turn, or the end of the lock's record.
    fn make_way(&mut self, turn: &Turn, gone: &Gone<C>, effects: &mut Vec<Effect<C>>) {
        if gone.makes_way {
            self.promote(turn, gone.lock, effects);
        }
        self.forget_if_idle(gone.lock);
    }

    fn forget_if_idle(&mut self, lock: u32) {
        let Lock { name, queue, .. } = &self.locks[lock];
        if self.locks[lock].is_free() && queue.is_empty() {
            self.counts.locks -= 1;
            self.starved.remove(&lock);
            self.names.remove(self.names.hash(name), lock);
            self.locks.remove(lock);
        }
    }

    /// Whether there was a suspicion.
    fn clear_suspicion(&mut self, at: u32) -> bool {
        let session = &mut self.sessions[at];
        if !session.is_suspect() {
            return false;
        }
        self.counts.suspects -= 1;
        let lock = session.lock;
        match &mut session.role {
            Role::Holder(holder) => holder.standing = Standing::Live,
            Role::Waiter(_) => self.locks[lock].queue.bring_back(&mut self.sessions, at),
        }
        true
    }

    fn find_or_make_lock(&mut self, name: &str) -> u32 {
        let hash = self.names.hash(name);
        self.names.find(hash, |lock| *self.locks[lock].name == *name).unwrap_or_else(|| {
            let lock = self.locks.insert(Lock::new(name));
            self.names.insert(hash, lock);
            self.counts.locks += 1;
            lock
        })
    }

    fn find_lock(&self, name: &str) -> Option<u32> {
        self.names.find(self.names.hash(name), |lock| *self.locks[lock].name == *name)
    }

    fn insert_session(&mut self, turn: &Turn, conn: C, lock: u32, lease: protocol::Lease) -> u32 {
        let sequence = self.next_sequence;
        self.next_sequence += 1;
        let nowhere = Place::Line { prev: NONE, next: NONE };
        let at = self.sessions.insert(Session {
            last_seen_ns: turn.now_ns,
            lease,
            lock,
            timer: Timer::new(),
            role: Role::Waiter(Waiter { sequence, queued_ns: turn.now_ns, place: nowhere }),
            conn,
        });
        self.counts.sessions += 1;
        self.file_by_lease(at);
        at
    }

    /// Files a session for the tick after the last moment of its lease: never early, less than a tick late.
    fn file_by_lease(&mut self, at: u32) {
        let tick = self.sessions[at].deadline_ns() / NS_PER_TICK + 1;
        self.wheel.file(&mut self.sessions, at, tick);
    }

    /// Whether the id names a session whose I/O goes on.
    fn has_io(&mut self, id: SessionId) -> bool {
        self.sessions.get_mut(id.index, id.generation).is_some_and(|session| !session.is_reserved())
    }

    fn id(&self, at: u32) -> SessionId {
        let generation = self.sessions.generation(at).expect("only records of sessions are asked for");
        SessionId { index: at, generation }
    }
}

/// The end of a session that the caller does not know of yet; a reserved one has no I/O to end.
fn push_end<C: Copy>(gone: &Gone<C>, error: Option<ErrorCode>, effects: &mut Vec<Effect<C>>) {
    if !gone.was_reserved {
        effects.push(Effect::End { conn: gone.conn, session: gone.id, error });
    }
}
