//! One shard's loop: wait, look at the clocks and the gate, apply what came, and only then look at leases.
//!
//! The worker owns everything of the shard. What changes a lock is a [`Decision`], and [`Worker::apply`] is
//! the only place where the lock table decides: there the effects of one decision are carried out before the
//! next one is made.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, TryRecvError};
use std::time::Duration;

use audit::{Recorder, What};
use locks::{Answer, Effect, LOOK_AGAIN_NS, Opening, Reason, SessionId, Table, Turn};
use protocol::{Acquire, ErrorCode, SessionInput, Token, WAITING, acquired, decode_session};
use reactor::{Ended, Key, Waker};
use tracing::debug;

use super::hand_over::HandOver;
use super::questions::{Asked, Question};
use super::seen::{NotReleased, SeenHolder, SeenWaiter};
use super::trail::Trail;
use super::view::View;
use super::wire::{Arrival, Wire, local_address, say_nothing_at_close};
use crate::addresses::{self, Departures, LocalAddress};
use crate::capacity::Capacity;
use crate::clock::{self, WallClock};
use crate::gate::Gate;
use crate::metrics::{Published, ShardCounters, TurnTimes};

/// The longest sleep: readiness judges a shard by its last published beat and allows one second.
const SLEEP_MAX: Duration = Duration::from_millis(200);

/// The longest sleep of a shard that shuts down: between two looks whether it is done.
const SLEEP_IN_SHUTDOWN_MAX: Duration = Duration::from_millis(5);

/// When an overdue session whose reading is paused is looked at again. Looking is cheap and there may be
/// thousands; it is so much later than its lease that one that then stays silent is expired.
const LOOK_AT_PAUSED_NS: u64 = 20_000_000;

/// Connections taken from the inbox in one turn, so that a storm of them does not hold up heartbeats.
const HAND_OVERS_A_TURN_MAX: usize = 64;

/// Overdue sessions looked at in one turn, before its answers go out: about 1 µs each, one small system call
/// included. 5000 that are overdue at once take five turns.
const LEASES_A_TURN_MAX: usize = 1024;

/// Free locks granted in one turn after the token ceiling has risen.
const STARVED_A_TURN_MAX: usize = 256;

/// Sessions asked for their local address in one turn, after one has left: a small system call each.
const STAYS_A_TURN_MAX: u32 = 1024;

/// Sessions ended in one turn at shutdown or demotion.
const CLOSES_A_TURN_MAX: usize = 256;

const NS_PER_MS: u64 = 1_000_000;

/// How long clients may take at shutdown to read their ERROR and close.
const SHUTDOWN_DRAIN_NS_MAX: u64 = 1_000_000_000;

/// What the shards share.
#[derive(Debug, Clone)]
pub(crate) struct Settings {
    pub(crate) io_timeout: Duration,
    /// Where the shard gives back the places of connections that ended; no shard ever has more than all of
    /// them.
    pub(crate) capacity: Arc<Capacity>,
    pub(crate) gate: Arc<Gate>,
    pub(crate) tokens: Arc<locks::TokenSource>,
    /// Which local addresses have left.
    pub(crate) addresses: addresses::Shared,
}

/// Something that the lock table decides about.
enum Decision {
    /// A connection's claim.
    Acquire { key: Key, acquire: Acquire },
    /// So many heartbeats at once.
    Heartbeats { key: Key, session: SessionId, count: usize },
    /// A session is over.
    End { session: SessionId, reason: Reason },
    /// The local kernel has given a connection up: its client may be alive and believe in its lock until the
    /// lease is over.
    Silence { key: Key, session: SessionId, reason: Reason },
    /// The session's lease is over, and its socket had nothing unread.
    Expire(SessionId),
    /// Tokens have come: some locks are granted that stayed free for want of one.
    GrantStarved,
    /// This server may not grant any more, or not to these sessions: some of them end.
    CloseSome(Reason),
    /// The administrator takes a lock from its holder.
    ForceRelease(Arc<str>),
    /// The administrator removes a waiter.
    Kick(SessionId),
}

/// A search for sessions whose local address has left, slice by slice.
struct Search {
    slot: u32,
    until: Departures,
    /// How many there were so far, of each address.
    ended: BTreeMap<LocalAddress, usize>,
}

/// A shard, on its own thread.
pub(super) struct Worker {
    /// Which of the shards this is.
    index: usize,
    settings: Settings,
    wire: Wire,
    table: Table<Key>,
    trail: Trail,
    counters: ShardCounters,
    inbox: Receiver<HandOver>,
    questions: Receiver<Asked>,
    /// No intake can send any more.
    inbox_closed: bool,
    /// Places kept: one for each descriptor that this shard has open, and for those that were closed in this
    /// turn.
    places: usize,
    /// What the decision at hand brought. Kept between uses for its memory.
    effects: Vec<Effect<Key>>,
    wall_clock: WallClock,
    published: Arc<Published>,
    /// No session is left that lost its address before that.
    departures: Departures,
    /// Where the search for such sessions goes on, and for departures up to which.
    search: Option<Search>,
    /// The last look: after the wait, and again for each connection taken in.
    turn: Turn,
    /// The end of the last turn, CLOCK_MONOTONIC.
    ended_ns: u64,
    /// Work is left for the next turn, which therefore does not sleep.
    unfinished: bool,
    /// Since when the gate is shut for good.
    shut_down_ns: Option<u64>,
}

impl Worker {
    /// Sets the shard up; must run on the shard's thread, which the ring belongs to.
    pub(super) fn new(
        index: usize,
        settings: Settings,
        inbox: Receiver<HandOver>,
        questions: Receiver<Asked>,
        audit: Option<Recorder>,
        published: Arc<Published>,
    ) -> Result<Self, reactor::Unavailable> {
        let config = reactor::Config {
            sockets_max: u32::try_from(settings.capacity.places()).unwrap_or(u32::MAX),
            io_timeout: settings.io_timeout,
            // At shutdown all of them drain at once. Each holds its place until it is done.
            draining_max: settings.capacity.places(),
            ..reactor::Config::default()
        };
        let wire = Wire::new(config)?;
        let mut counters = ShardCounters::default();
        // The first beat: the shard is ready, and its first turn may come as late as any other.
        counters.publish(&published, clock::monotonic_ns());
        Ok(Self {
            index,
            wire,
            table: Table::new(Arc::clone(&settings.tokens)),
            trail: Trail::new(audit),
            counters,
            inbox,
            questions,
            inbox_closed: false,
            places: 0,
            effects: Vec::new(),
            wall_clock: WallClock::default(),
            published,
            departures: settings.addresses.departures(),
            search: None,
            turn: look(&settings),
            ended_ns: clock::monotonic_ns(),
            unfinished: false,
            shut_down_ns: None,
            settings,
        })
    }

    pub(super) fn waker(&self) -> Waker {
        self.wire.waker()
    }

    /// Serves until the gate is shut and every session has been ended.
    pub(super) fn run(mut self) {
        while !self.is_done() {
            self.wire.wait(self.sleep());
            let closed = self.settings.gate.last_closed();
            self.turn = look(&self.settings);
            let woken_ns = self.turn.now_ns;
            self.unfinished = false;
            self.close_sessions_behind_a_closed_gate(closed);
            self.grant_starved_locks();
            self.end_sessions_without_address();
            let busy = self.take_arrivals();
            // Here the socket of each session tells all: the completions are drained, and new ones come with
            // an enter only.
            self.look_at_leases();
            self.wire.submit();
            let answered_ns = clock::monotonic_ns();
            if self.answer_a_question() {
                self.wire.submit();
            }
            self.finish_turn(woken_ns, answered_ns, busy);
        }
        self.counters.publish(&self.published, clock::monotonic_ns());
    }

    /// Takes what came. Whether anything did.
    fn take_arrivals(&mut self) -> bool {
        let mut busy = false;
        while let Some(arrival) = self.wire.next() {
            match arrival {
                Arrival::Woken => self.take_hand_overs(),
                Arrival::Input { key, session, input, is_last } => {
                    self.take_input(key, session, input);
                    if is_last {
                        self.leave(key, session);
                    }
                }
                Arrival::Ended { key, session, how } => self.take_end(key, session, how),
            }
            busy = true;
        }
        busy
    }

    fn take_hand_overs(&mut self) {
        for _ in 0..HAND_OVERS_A_TURN_MAX {
            match self.inbox.try_recv() {
                Ok(connection) => {
                    // A look before it came would start its lease in the past, by as long as this thread has
                    // been held up since.
                    self.turn = look(&self.settings);
                    self.adopt(connection);
                }
                Err(TryRecvError::Empty) => return,
                Err(TryRecvError::Disconnected) => {
                    self.inbox_closed = true;
                    return;
                }
            }
        }
        self.wire.waker().wake();
    }

    /// Takes a connection in: its claim is ordered, and its lease begins, here.
    fn adopt(&mut self, connection: HandOver) {
        let HandOver { socket, peer, accepted, place, acquire, rest, secured } = connection;
        let is_lost = |address| self.settings.addresses.is_lost(address, accepted);
        // Asked only on a host that has lost one: a system call each.
        let may_be_lost = self.settings.addresses.departures() != Departures::default();
        if may_be_lost && local_address(&socket).is_none_or(is_lost) {
            say_nothing_at_close(&socket);
            // Its place is given back after that.
            drop(socket);
            return debug!(remote_addr = %peer, "its local address has left while it was set up");
        }
        let is_closed = secured.as_ref().is_some_and(|secured| secured.tls.is_closed_by_peer());
        let key = match self.wire.insert(socket, peer, accepted, secured) {
            Ok(key) => key,
            Err(error) => {
                return debug!(remote_addr = %peer, %error, "connection ended before its shard took it");
            }
        };
        place.keep();
        self.places += 1;
        self.apply(Decision::Acquire { key, acquire });
        let Some(session) = self.wire.session(key) else { return };
        if !rest.is_empty() {
            self.take_input(key, session, decode_session(&rest));
        }
        if is_closed {
            self.leave(key, session);
        }
    }

    /// The hot path: a heartbeat is answered from its session's record.
    fn take_input(&mut self, key: Key, session: SessionId, input: SessionInput) {
        if input.heartbeats > 0 {
            self.counters.heartbeats += input.heartbeats as u64;
            self.apply(Decision::Heartbeats { key, session, count: input.heartbeats });
        }
        if let Some(code) = input.violation {
            self.apply(Decision::End { session, reason: Reason::Graceful });
            self.refuse(key, code);
        }
    }

    /// The client has ended its TLS stream, in order or not.
    fn leave(&mut self, key: Key, session: SessionId) {
        self.apply(Decision::End { session, reason: Reason::Graceful });
        self.wire.finish(key);
    }

    fn take_end(&mut self, key: Key, session: Option<SessionId>, how: Ended) {
        if let Some(session) = session {
            debug!(remote_addr = self.wire.peer(key), ?how, "connection ended");
            self.apply(match how {
                Ended::Eof | Ended::Reset => Decision::End { session, reason: Reason::Graceful },
                Ended::SendTimeout => Decision::End { session, reason: Reason::IoTimeout },
                Ended::Silent(_) => Decision::Silence { key, session, reason: Reason::Expired },
            });
        }
        self.wire.close(key);
    }

    /// Expires sessions whose lease is over, each only after its own socket was asked.
    fn look_at_leases(&mut self) {
        for _ in 0..LEASES_A_TURN_MAX {
            let Some(session) = self.table.next_overdue(self.turn.now_ns) else { return };
            if let Some(after_ns) = self.was_heard_since(session) {
                self.table.look_again(self.turn.now_ns, session, after_ns);
            } else {
                self.apply(Decision::Expire(session));
            }
        }
        self.unfinished = true;
    }

    /// Whether a session's input lies unread, and when to look again then: after the turn that reads it, or
    /// later if its reading is paused, where the reactor's io-timeout judges. A session whose I/O was given
    /// up has nothing to be read.
    fn was_heard_since(&self, session: SessionId) -> Option<u64> {
        let key = self.table.session(session)?.conn;
        let pause_ns = if self.wire.is_reading(key) { LOOK_AGAIN_NS } else { LOOK_AT_PAUSED_NS };
        self.wire.has_unread(key).then_some(pause_ns)
    }

    /// Ends sessions when this server may no longer grant: some a turn, and promotes nobody. When none is
    /// left, the end of the opening is confirmed.
    fn close_sessions_behind_a_closed_gate(&mut self, closed: Opening) {
        let reason = match self.turn.gate {
            locks::Gate::Open(_) | locks::Gate::Standby => Reason::Demoted,
            locks::Gate::ShuttingDown => {
                self.shut_down_ns.get_or_insert(self.turn.now_ns);
                Reason::Shutdown
            }
        };
        if self.table.must_close(self.turn.gate) {
            self.apply(Decision::CloseSome(reason));
        }
        if self.table.counts().sessions == 0 && !self.turn.gate.is_open() {
            self.settings.gate.confirm(self.index, closed);
        }
    }

    /// Gives up the I/O of sessions whose local address has left since they were accepted: some a turn. A
    /// holder's lock stays reserved until its lease is over, for its client may believe in it until then.
    fn end_sessions_without_address(&mut self) {
        let departures = self.settings.addresses.departures();
        if self.search.is_none() && departures != self.departures {
            self.search = Some(Search { slot: 0, until: departures, ended: BTreeMap::new() });
        }
        let Some(Search { slot, until, mut ended }) = self.search.take() else { return };
        let addresses = &self.settings.addresses;
        let (sessions, next) = self.table.sessions_from(slot, STAYS_A_TURN_MAX);
        let lost: Vec<(LocalAddress, Key, SessionId)> = sessions
            .filter_map(|(session, view)| {
                let (address, accepted) = self.wire.stay(view.conn)?;
                // What left before the last search was not its address, or it would not be there.
                let has_left = addresses.has_left_since(address, accepted.max(self.departures));
                has_left.then_some((address, view.conn, session))
            })
            .collect();
        for (address, key, session) in lost {
            *ended.entry(address).or_default() += 1;
            self.apply(Decision::Silence { key, session, reason: Reason::AddressLost });
            self.wire.abandon(key);
        }
        match next {
            Some(slot) => {
                self.search = Some(Search { slot, until, ended });
                self.unfinished = true;
            }
            None => {
                self.departures = until;
                self.unfinished |= self.settings.addresses.departures() != until;
                self.settings.addresses.log_ended(self.index, &ended);
            }
        }
    }

    fn grant_starved_locks(&mut self) {
        if self.table.has_starved() && !self.settings.tokens.is_exhausted() {
            self.apply(Decision::GrantStarved);
        }
    }

    /// Answers one question, if there is any: those that come later are for the next turn, which then does
    /// not sleep.
    fn answer_a_question(&mut self) -> bool {
        while let Ok(asked) = self.questions.try_recv() {
            if let Some(question) = asked.take() {
                self.wall_clock.follow(self.turn.now_ns, self.turn.unix_ns);
                self.answer(question);
                self.unfinished = true;
                return true;
            }
        }
        false
    }

    fn answer(&mut self, question: Question) {
        match question {
            Question::Counts(reply) => reply.send(self.table.counts()),
            Question::Names { from, reply } => reply.send(self.view().names(from)),
            Question::Describe { names, reply } => reply.send(self.view().describe(&names)),
            Question::Waiters { of, from, reply } => reply.send(self.view().waiters(&of, from)),
            Question::ForceRelease { name, of, reply } => reply.send(self.force_release(&name, of)),
            Question::Kick { session, reply } => reply.send(self.kick(session)),
        }
    }

    fn view(&self) -> View<'_> {
        View { table: &self.table, wire: &self.wire, trail: &self.trail, wall_clock: &self.wall_clock }
    }

    fn force_release(&mut self, name: &str, of: Option<Token>) -> Result<SeenHolder, NotReleased> {
        let holder = self.view().holder(self.table.holder(name).ok_or(NotReleased::Idle)?);
        if let Some(of) = of.filter(|of| *of != holder.token) {
            return Err(NotReleased::OtherHolder { holder: holder.token, of });
        }
        debug!(remote_addr = %holder.who.peer, lock = name, token = holder.token.0, "force-release");
        let name: Arc<str> = name.into();
        let what = What::ForceRelease { token: holder.token };
        self.trail.record(self.turn.unix_ns, holder.who.clone(), Arc::clone(&name), what);
        self.apply(Decision::ForceRelease(name));
        Ok(holder)
    }

    fn kick(&mut self, session: SessionId) -> Option<SeenWaiter> {
        let view = self.table.session(session)?;
        let waiter = self.view().waiter(session, &view)?;
        let lock = Arc::clone(view.lock);
        debug!(remote_addr = %waiter.who.peer, lock = &*lock, "kick");
        self.trail.record(self.turn.unix_ns, waiter.who.clone(), lock, What::KickWaiter);
        self.apply(Decision::Kick(session));
        Some(waiter)
    }

    /// Has the lock table decide, and carries out what follows. Nothing else changes a lock.
    fn apply(&mut self, decision: Decision) {
        debug_assert!(self.effects.is_empty(), "one decision is carried out before the next");
        let (turn, effects) = (&self.turn, &mut self.effects);
        match decision {
            Decision::Acquire { key, acquire } => match self.table.acquire(turn, key, acquire, effects) {
                Ok(session) => self.wire.belongs_to(key, session),
                Err(code) => self.refuse(key, code),
            },
            Decision::Heartbeats { key, session, count } => {
                // The answer comes before what else the heartbeat may bring: no WAITING follows an ACQUIRED.
                match self.table.heartbeat(turn, session, effects) {
                    Some(Answer::Acquired(token)) => self.wire.send(key, &acquired(token), count),
                    Some(Answer::Waiting) => self.wire.send(key, &WAITING, count),
                    // The gate is closed: nothing is confirmed, and the session's end has begun.
                    None => {}
                }
            }
            Decision::End { session, reason } => self.table.end(turn, session, reason, effects),
            Decision::Silence { key, session, reason } => {
                self.table.silence(turn, session, reason, effects);
                if self.table.session(session).is_some() {
                    self.trail.keep(session, self.trail.who(&self.wire, key, session));
                }
            }
            Decision::Expire(session) => self.table.expire(turn, session, effects),
            Decision::GrantStarved => {
                self.table.grant_starved(turn, STARVED_A_TURN_MAX, effects);
                self.unfinished = true;
            }
            Decision::CloseSome(reason) => {
                self.unfinished |= self.table.close_some(turn, CLOSES_A_TURN_MAX, reason, effects);
            }
            Decision::ForceRelease(name) => {
                self.table.force_release(turn, &name, effects);
            }
            Decision::Kick(session) => {
                self.table.kick(turn, session, effects);
            }
        }
        self.carry_out();
    }

    /// Does what the lock table decided, in its order.
    fn carry_out(&mut self) {
        let mut effects = std::mem::take(&mut self.effects);
        let mut released = false;
        for effect in effects.drain(..) {
            match effect {
                Effect::Queued { conn, .. } => self.wire.send(conn, &WAITING, 1),
                Effect::Granted { conn, session, lock, token, wait_ns } => {
                    let wait_ms = wait_ns / NS_PER_MS;
                    let remote_addr = self.wire.peer(conn);
                    debug!(remote_addr, lock = &*lock, token = token.0, wait_ms, "granted");
                    self.wire.send(conn, &acquired(token), 1);
                    self.record(conn, session, lock, What::Granted { token, wait_ns });
                    self.counters.granted(wait_ns);
                    self.counters.hand_overs_this_turn += u64::from(released);
                }
                Effect::Released { conn, session, lock, token, held_ns, reason } => {
                    let (held_ms, why) = (held_ns / NS_PER_MS, reason.as_str());
                    let remote_addr = self.wire.peer(conn);
                    debug!(remote_addr, lock = &*lock, token = token.0, held_ms, reason = why, "released");
                    self.record(conn, session, lock, What::Released { token, held_ns, reason });
                    self.trail.forget(session);
                    released = true;
                    self.counters.released(reason, held_ns);
                }
                Effect::End { conn, error: Some(code), .. } => self.refuse(conn, code),
                Effect::End { conn, error: None, .. } => self.wire.finish(conn),
            }
        }
        self.effects = effects;
    }

    /// Sends an ERROR, and closes.
    fn refuse(&mut self, key: Key, code: ErrorCode) {
        if self.wire.refuse(key, code) {
            self.counters.protocol_error(code);
        }
    }

    fn record(&mut self, key: Key, session: SessionId, lock: Arc<str>, what: What) {
        if self.trail.is_on() {
            let who = self.trail.who(&self.wire, key, session);
            self.trail.record(self.turn.unix_ns, who, lock, what);
        }
    }

    fn finish_turn(&mut self, woken_ns: u64, answered_ns: u64, busy: bool) {
        let descriptors = self.wire.descriptors();
        self.settings.capacity.give_back(self.places - descriptors);
        self.places = descriptors;
        self.ended_ns = clock::monotonic_ns();
        let times = TurnTimes { woken_ns, answered_ns, ended_ns: self.ended_ns, busy };
        self.counters.finish_turn(times, self.table.counts());
        self.counters.publish_if_due(&self.published);
    }

    /// How long to wait for something to happen; counted from the end of the turn.
    fn sleep(&self) -> Duration {
        if self.unfinished || self.table.must_close(self.turn.gate) {
            return Duration::ZERO;
        }
        let until = |deadline_ns: u64| Duration::from_nanos(deadline_ns.saturating_sub(self.ended_ns));
        let lease = self.table.next_deadline_ns().map_or(SLEEP_MAX, until);
        let publication = self.counters.publication_due_ns().map_or(SLEEP_MAX, until);
        let longest = if self.shut_down_ns.is_some() { SLEEP_IN_SHUTDOWN_MAX } else { SLEEP_MAX };
        let gate = self.settings.gate.remaining_ns().map_or(SLEEP_MAX, Duration::from_nanos);
        lease.min(publication).min(gate).min(longest)
    }

    fn is_done(&self) -> bool {
        let Some(since_ns) = self.shut_down_ns else { return false };
        let drained = self.wire.closing() == 0 || self.turn.now_ns - since_ns >= SHUTDOWN_DRAIN_NS_MAX;
        self.inbox_closed && self.table.counts().sessions == 0 && drained
    }
}

/// One look at the clocks and the gate: after the wait, so that a process that was stopped past its
/// leadership confirms nothing of what then lies in its queues.
fn look(settings: &Settings) -> Turn {
    // The wall clock before the gate: a turn held up in between, past the gate's deadline, then still grants
    // tokens of a time at which no other server was open. (The simulation finds the other order.)
    let (now_ns, unix_ns) = (clock::monotonic_ns(), clock::unix_ns());
    Turn { now_ns, unix_ns, gate: settings.gate.look() }
}
