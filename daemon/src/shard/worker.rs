//! One shard's loop: wait, look at the clocks and the gate, apply what came, and only then look at leases.

mod answers;

use std::sync::Arc;
use std::sync::mpsc::{Receiver, TryRecvError};
use std::time::Duration;

use locks::{Answer, Effect, LOOK_AGAIN_NS, Reason, SessionId, Table, Turn};
use protocol::{SessionInput, WAITING, acquired, decode_session};
use reactor::{Ended, Event, Key, Reactor, Waker};
use tracing::debug;
use tracing::field::{DisplayValue, display};

use super::questions::Question;
use super::seen::Who;
use super::trail::Trail;
use super::wire::Buffers;
use super::{HandOver, Secured, Settings, StartError};
use crate::clock::{self, WallClock};
use crate::metrics::{Published, ShardCounters, TurnTimes};
use audit::Peer;
use audit::{Recorder, What};

/// The longest sleep: readiness judges a shard by its last published beat and allows one second.
const SLEEP_MAX: Duration = Duration::from_millis(200);

/// The longest sleep of a shard that shuts down: between two looks whether it is done.
const SLEEP_IN_SHUTDOWN_MAX: Duration = Duration::from_millis(5);

/// When an overdue session whose reading is paused is looked at again. Looking is cheap and there may be thousands; it is so
/// much later than its lease that one that then stays silent is expired.
const LOOK_AT_PAUSED_NS: u64 = 20_000_000;

/// Connections taken from the inbox in one turn, so that a storm of them does not hold up heartbeats.
const HAND_OVERS_A_TURN_MAX: usize = 64;

/// Overdue sessions looked at in one turn, before its answers go out: about 1 µs each, one small system call included. 5000 that are
/// overdue at once take five turns.
const LEASES_A_TURN_MAX: usize = 1024;

/// Sessions ended in one turn at shutdown.
const CLOSES_A_TURN_MAX: usize = 256;

const NS_PER_MS: u64 = 1_000_000;

/// How long clients may take at shutdown to read their ERROR and close.
const SHUTDOWN_DRAIN_NS_MAX: u64 = 1_000_000_000;

/// What the shard knows of a connection besides its socket.
#[derive(Debug)]
pub(super) struct Connection {
    /// Set as soon as the lock table has taken the claim, before any of the connection's events is looked at.
    session: Option<SessionId>,
    peer: Peer,
    /// In a box, so that a plain connection pays a pointer for it.
    pub(super) secured: Option<Box<Secured>>,
}

impl Connection {
    pub(super) fn who(&self) -> Who {
        let identity = self.secured.as_ref().and_then(|secured| secured.identity.clone());
        Who { peer: self.peer, identity }
    }
}

/// A shard, on its own thread.
pub(super) struct Worker {
    settings: Settings,
    pub(super) reactor: Reactor<Connection>,
    pub(super) table: Table<Key>,
    inbox: Receiver<HandOver>,
    questions: Receiver<Question>,
    /// No intake can send any more.
    inbox_closed: bool,
    /// Places kept: one for each descriptor that this shard has open, and for those that were closed in this turn.
    places: usize,
    /// Kept between uses for its memory.
    pub(super) effects: Vec<Effect<Key>>,
    pub(super) buffers: Buffers,
    pub(super) trail: Trail,
    wall_clock: WallClock,
    pub(super) counters: ShardCounters,
    published: Arc<Published>,
    /// The last look: after the wait, and again for each connection taken in.
    pub(super) turn: Turn,
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
        settings: Settings,
        inbox: Receiver<HandOver>,
        questions: Receiver<Question>,
        audit: Option<Recorder>,
        published: Arc<Published>,
    ) -> Result<Self, StartError> {
        let config = reactor::Config {
            sockets_max: u32::try_from(settings.capacity.places()).unwrap_or(u32::MAX),
            io_timeout: settings.io_timeout,
            // At shutdown all of them drain at once. Each holds its place until it is done.
            draining_max: settings.capacity.places(),
            ..reactor::Config::default()
        };
        let reactor = Reactor::new(config)?;
        let mut counters = ShardCounters::default();
        // The first beat: the shard is ready, and its first turn may come as late as any other.
        counters.publish(&published, clock::monotonic_ns());
        Ok(Self {
            reactor,
            table: Table::new(Arc::clone(&settings.tokens)),
            inbox,
            questions,
            inbox_closed: false,
            places: 0,
            effects: Vec::new(),
            buffers: Buffers::default(),
            trail: Trail::new(audit),
            wall_clock: WallClock::default(),
            counters,
            published,
            turn: look(&settings),
            ended_ns: clock::monotonic_ns(),
            unfinished: false,
            shut_down_ns: None,
            settings,
        })
    }

    pub(super) fn waker(&self) -> Waker {
        self.reactor.waker()
    }

    /// Serves until the gate is shut and every session has been ended.
    pub(super) fn run(mut self) {
        while !self.is_done() {
            let sleep = self.sleep();
            self.reactor.wait(Some(sleep)).expect("the ring of a running shard works");
            self.turn = look(&self.settings);
            let woken_ns = self.turn.now_ns;
            self.unfinished = false;
            self.close_sessions_behind_a_closed_gate();
            let busy = self.take_events();
            // Here the socket of each session tells all: the completions are drained, and new ones come with an enter only.
            self.look_at_leases();
            self.submit();
            let answered_ns = clock::monotonic_ns();
            if self.answer_a_question() {
                self.submit();
            }
            self.finish_turn(woken_ns, answered_ns, busy);
        }
        self.counters.publish(&self.published, clock::monotonic_ns());
    }

    /// Applies what came. Whether anything did.
    fn take_events(&mut self) -> bool {
        let mut busy = false;
        loop {
            match self.reactor.next_event() {
                None => return busy,
                Some(Event::Woken) => self.take_hand_overs(),
                Some(Event::Received { key, data, bytes }) => {
                    let Some(session) = data.session else { continue };
                    match &mut data.secured {
                        None => {
                            let input = decode_session(bytes);
                            self.received(key, session, input);
                        }
                        Some(secured) => {
                            let how = self.buffers.receive(secured, bytes);
                            self.received_records(key, session, how);
                        }
                    }
                }
                Some(Event::Ended { key, how }) => self.ended(key, how),
            }
            busy = true;
        }
    }

    fn take_hand_overs(&mut self) {
        for _ in 0..HAND_OVERS_A_TURN_MAX {
            match self.inbox.try_recv() {
                Ok(connection) => {
                    // A look before it came would start its lease in the past, by as long as this thread has been held up since.
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
        self.reactor.waker().wake();
    }

    /// Takes a connection in: its claim is ordered, and its lease begins, here.
    fn adopt(&mut self, connection: HandOver) {
        let HandOver { socket, peer, place, acquire, rest, secured } = connection;
        let is_closed = secured.as_ref().is_some_and(|secured| secured.tls.is_closed_by_peer());
        let key = match self.reactor.insert(socket, Connection { session: None, peer, secured }) {
            Ok(key) => key,
            Err(error) => {
                return debug!(remote_addr = %peer, %error, "connection ended before its shard took it");
            }
        };
        place.keep();
        self.places += 1;
        match self.table.acquire(&self.turn, key, acquire, &mut self.effects) {
            Ok(session) => {
                self.reactor.get_mut(key).expect("inserted above").session = Some(session);
                self.carry_out();
                if !rest.is_empty() {
                    self.received(key, session, decode_session(&rest));
                }
                if is_closed {
                    self.leave(key, session);
                }
            }
            Err(code) => self.refuse(key, code),
        }
    }

    /// The hot path: a heartbeat is answered from its session's record.
    pub(super) fn received(&mut self, key: Key, session: SessionId, input: SessionInput) {
        if input.heartbeats > 0 {
            self.counters.heartbeats += input.heartbeats as u64;
            match self.table.heartbeat(&self.turn, session, &mut self.effects) {
                Some(Answer::Acquired(token)) => {
                    self.send(key, &acquired(token), input.heartbeats);
                }
                Some(Answer::Waiting) => self.send(key, &WAITING, input.heartbeats),
                // The gate is closed: nothing is confirmed, and the session's end has begun.
                None => {}
            }
            self.carry_out();
        }
        if let Some(code) = input.violation {
            self.end(session, Reason::Graceful);
            self.refuse(key, code);
        }
    }

    /// A claim ends, and its lock moves. What an earlier decision brought is carried out by now: its grant must not come after
    /// this release.
    pub(super) fn end(&mut self, session: SessionId, reason: Reason) {
        debug_assert!(self.effects.is_empty(), "one decision is carried out before the next");
        self.table.end(&self.turn, session, reason, &mut self.effects);
        self.carry_out();
    }

    fn ended(&mut self, key: Key, how: Ended) {
        let Some(&Connection { session: Some(session), peer, .. }) = self.reactor.get(key) else {
            self.reactor.close(key);
            return;
        };
        debug!(remote_addr = %peer, ?how, "connection ended");
        match how {
            Ended::Eof | Ended::Reset => self.end(session, Reason::Graceful),
            Ended::SendTimeout => self.end(session, Reason::IoTimeout),
            // The local kernel's own conclusion: the client may be alive and believe in its lock until the lease is over.
            Ended::Silent(_) => {
                self.table.silence(&self.turn, session, Reason::Expired, &mut self.effects);
                self.keep_who(key, session);
                self.carry_out();
            }
        }
        self.reactor.close(key);
    }

    /// Expires sessions whose lease is over, each only after its own socket was asked.
    fn look_at_leases(&mut self) {
        for _ in 0..LEASES_A_TURN_MAX {
            let Some(session) = self.table.next_overdue(self.turn.now_ns) else { return };
            if let Some(after_ns) = self.was_heard_since(session) {
                self.table.look_again(self.turn.now_ns, session, after_ns);
            } else {
                self.table.expire(&self.turn, session, &mut self.effects);
                self.carry_out();
            }
        }
        self.unfinished = true;
    }

    /// Whether a session's input lies unread, and when to look again then: after the turn that reads it, or later if its reading is
    /// paused, where the reactor's io-timeout judges. A session whose I/O was given up has nothing to be read.
    fn was_heard_since(&self, session: SessionId) -> Option<u64> {
        let key = self.table.session(session)?.conn;
        let pause_ns = if self.reactor.is_reading(key) { LOOK_AGAIN_NS } else { LOOK_AT_PAUSED_NS };
        self.reactor.has_unread(key).then_some(pause_ns)
    }

    /// Ends sessions when this server may no longer grant: some a turn, and promotes nobody.
    fn close_sessions_behind_a_closed_gate(&mut self) {
        let reason = match self.turn.gate {
            locks::Gate::Open => return,
            locks::Gate::Standby => Reason::Demoted,
            locks::Gate::ShuttingDown => {
                self.shut_down_ns.get_or_insert(self.turn.now_ns);
                Reason::Shutdown
            }
        };
        self.unfinished |= self.table.close_some(&self.turn, CLOSES_A_TURN_MAX, reason, &mut self.effects);
        self.carry_out();
    }

    /// Does what the lock table decided, in its order.
    pub(super) fn carry_out(&mut self) {
        let mut effects = std::mem::take(&mut self.effects);
        let mut released = false;
        for effect in effects.drain(..) {
            match effect {
                Effect::Queued { conn, .. } => self.send(conn, &WAITING, 1),
                Effect::Granted { conn, session, lock, token, wait_ns } => {
                    debug!(
                        remote_addr = self.peer(conn),
                        lock = &*lock,
                        token = token.0,
                        wait_ms = wait_ns / NS_PER_MS,
                        "granted"
                    );
                    self.send(conn, &acquired(token), 1);
                    self.record_of(conn, session, lock, What::Granted { token, wait_ns });
                    self.counters.granted(wait_ns);
                    self.counters.hand_overs_this_turn += u64::from(released);
                }
                Effect::Released { conn, session, lock, token, held_ns, reason } => {
                    let (held_ms, reason_text) = (held_ns / NS_PER_MS, reason.as_str());
                    debug!(
                        remote_addr = self.peer(conn),
                        lock = &*lock,
                        token = token.0,
                        held_ms,
                        reason = reason_text,
                        "released"
                    );
                    self.record_of(conn, session, lock, What::Released { token, held_ns, reason });
                    self.forget_who(session);
                    released = true;
                    self.counters.released(reason, held_ns);
                }
                Effect::End { conn, error: Some(code), .. } => self.refuse(conn, code),
                Effect::End { conn, error: None, .. } => self.finish(conn),
            }
        }
        self.effects = effects;
    }

    /// The remote address of a connection that this shard still has, for the log.
    pub(super) fn peer(&self, key: Key) -> Option<DisplayValue<Peer>> {
        self.reactor.get(key).map(|connection| display(connection.peer))
    }

    fn submit(&mut self) {
        self.reactor.submit().expect("the ring of a running shard works");
    }

    fn finish_turn(&mut self, woken_ns: u64, answered_ns: u64, busy: bool) {
        let descriptors = self.reactor.open() + self.reactor.closing();
        self.settings.capacity.give_back(self.places - descriptors);
        self.places = descriptors;
        self.ended_ns = clock::monotonic_ns();
        let times = TurnTimes { woken_ns, answered_ns, ended_ns: self.ended_ns, busy };
        self.counters.finish_turn(times, self.table.counts());
        self.counters.publish_if_due(&self.published);
    }

    /// How long to wait for something to happen; counted from the end of the turn.
    fn sleep(&self) -> Duration {
        if self.unfinished {
            return Duration::ZERO;
        }
        let until = |deadline_ns: u64| Duration::from_nanos(deadline_ns.saturating_sub(self.ended_ns));
        let lease = self.table.next_deadline_ns().map_or(SLEEP_MAX, until);
        let publication = self.counters.publication_due_ns().map_or(SLEEP_MAX, until);
        let longest = if self.shut_down_ns.is_some() { SLEEP_IN_SHUTDOWN_MAX } else { SLEEP_MAX };
        lease.min(publication).min(longest)
    }

    fn is_done(&self) -> bool {
        let Some(since_ns) = self.shut_down_ns else { return false };
        let drained = self.reactor.closing() == 0 || self.turn.now_ns - since_ns >= SHUTDOWN_DRAIN_NS_MAX;
        self.inbox_closed && self.table.counts().sessions == 0 && drained
    }
}

/// One look at the clocks and the gate: after the wait, so that a process that was stopped past its leadership
/// confirms nothing of what then lies in its queues.
fn look(settings: &Settings) -> Turn {
    // The wall clock before the gate: a turn held up in between, past the gate's deadline, then still grants tokens of a time at which
    // no other server was open. (The simulation finds the other order.)
    let (now_ns, unix_ns) = (clock::monotonic_ns(), clock::unix_ns());
    Turn { now_ns, unix_ns, gate: settings.gate.look() }
}
