//! A shard's turn, in the order of the daemon: look at the clocks and the gate once, apply what had come by
//! then, look at leases, asking each overdue session's socket first, and only then submit: an enter brings
//! more completions.
//!
//! A shard may be held up between any two of these.

use locks::checker::Event;
use locks::{Answer, Effect, Gate, LOOK_AGAIN_NS, Reason, SessionId, Turn};
use protocol::{ErrorCode, ErrorFrame, Token, WAITING, acquired, decode_acquire, decode_session};

use crate::checks::Frame;
use crate::clock::HostClock;
use crate::core::{Core, lock_name};
use crate::plan::Climate;
use crate::sabotage::Sabotage;
use crate::segment::{ConnId, Segment, Side};
use crate::server::{Process, Request, Socket, TurnStep};

/// The pause after a turn that left something unread.
const BUSY_NS_MAX: u64 = 500_000;

/// How long a shard is now and then held up by itself, as by a page fault or another thread.
const HOLD_NS_MAX: u64 = 1_000_000;

/// How long after its lease a session is looked at: a tick of the wheel, and one more after a look that found
/// unread input.
const LATE_NS_MAX: u64 = 2 * LOOK_AGAIN_NS + 1;

/// No shard sleeps longer than this part of the longest lease, so that it sees its gate close.
const SLEEPS_A_LEASE: u64 = 8;

impl Process {
    /// A shard goes on, until it is held up or its turn is over.
    pub(crate) fn step(&mut self, core: &mut Core, shard: usize) {
        let between_turns = matches!(self.shards[shard].step, TurnStep::Idle);
        let can_stop_here = between_turns || core.plan.climate == Climate::Rough;
        if self.stopped_until_ns > core.now_ns && can_stop_here {
            return self.plan(core, shard, self.stopped_until_ns);
        }
        loop {
            match std::mem::take(&mut self.shards[shard].step) {
                TurnStep::Idle => {
                    let turn = self.look_after_waiting(core, shard);
                    self.end_io_of_lost_addresses(core, shard, &turn);
                    self.close_behind_a_closed_gate(core, shard, &turn);
                    self.grant_starved(core, shard, &turn);
                    let ready = self.gather(core, shard);
                    self.shards[shard].step = TurnStep::Looked(turn, ready);
                }
                TurnStep::Looked(mut turn, ready) => {
                    if core.sabotage == Sabotage::ReadsWallClockLate {
                        turn.unix_ns = core.hosts[self.host].unix_ns(core.now_ns);
                    }
                    self.apply(core, shard, &mut turn, ready);
                    self.shards[shard].step = TurnStep::Applied(turn);
                }
                TurnStep::Applied(turn) => {
                    if core.sabotage == Sabotage::PutsOffForOthers {
                        self.submit(core, shard);
                    }
                    if core.sabotage != Sabotage::NeverExpires {
                        self.look_at_leases(core, shard, &turn);
                        self.check_nobody_is_put_off(core, shard, &turn);
                    }
                    self.submit(core, shard);
                    return self.plan_next_turn(core, shard);
                }
            }
            let hold_ns = self.hold_ns(core);
            if hold_ns > 0 {
                return self.plan(core, shard, core.now_ns + hold_ns);
            }
        }
    }

    fn look(&mut self, core: &mut Core, shard: usize) -> Turn {
        let gate = self.gate(core);
        self.shards[shard].gate_looked_at = gate;
        if gate.is_open() {
            let unix_ns = core.hosts[self.host].unix_ns(core.now_ns);
            core.unix_looked_at_ns = core.unix_looked_at_ns.max(unix_ns);
        }
        let host = &core.hosts[self.host];
        let unix_ns = match core.sabotage {
            Sabotage::ReusesTokens => HostClock::new(0, 1000, 0).unix_ns(core.now_ns - self.started_ns),
            _ => host.unix_ns(core.now_ns),
        };
        let gate = match core.sabotage {
            Sabotage::IgnoresGate => Gate::Open(self.opening(core)),
            _ => gate,
        };
        Turn { now_ns: host.monotonic_ns(core.now_ns), unix_ns, gate }
    }

    fn look_after_waiting(&mut self, core: &mut Core, shard: usize) -> Turn {
        let mut turn = self.look(core, shard);
        let before_waiting_ns = std::mem::replace(&mut self.shards[shard].looked_ns, turn.now_ns);
        if core.sabotage == Sabotage::LooksBeforeWaiting {
            turn.now_ns = before_waiting_ns;
        }
        turn
    }

    fn hold_ns(&mut self, core: &mut Core) -> u64 {
        if core.plan.climate == Climate::Gentle {
            return 0;
        }
        let by_itself_ns = if core.rng.u32(..20) == 0 { core.rng.u64(..HOLD_NS_MAX) } else { 0 };
        let hold_ns = by_itself_ns + std::mem::take(&mut self.hold_up_ns);
        if hold_ns > 0 {
            core.note(self.who(), || format!("is held up in its turn for {} µs", hold_ns / 1000));
        }
        hold_ns
    }

    /// Takes from the kernel what has come by now. Not of every connection: one enter does not deliver
    /// everything.
    fn gather(&mut self, core: &mut Core, shard: usize) -> Vec<ConnId> {
        let mut ready: Vec<ConnId> = self.sockets.keys().copied().collect();
        ready.retain(|&conn| self.shard_of(core, conn) == shard);
        core.rng.shuffle(&mut ready);
        ready.retain(|conn| {
            let socket = self.sockets.get_mut(conn).expect("listed above");
            if !socket.kernel.is_empty() && core.rng.u32(..8) > 0 {
                socket.completed.append(&mut socket.kernel);
            }
            !socket.completed.is_empty()
        });
        ready
    }

    fn apply(&mut self, core: &mut Core, shard: usize, turn: &mut Turn, ready: Vec<ConnId>) {
        for request in std::mem::take(&mut self.shards[shard].requests) {
            self.serve(core, shard, turn, request);
        }
        for conn in ready {
            while let Some((came_ns, segment)) =
                self.sockets.get_mut(&conn).and_then(|socket| socket.completed.pop_front())
            {
                match segment {
                    Segment::Bytes(bytes) => self.received(core, shard, turn, conn, came_ns, bytes),
                    Segment::Fin | Segment::Reset => self.ended(core, shard, turn, conn, true),
                    Segment::TimedOut => self.ended(core, shard, turn, conn, false),
                }
            }
        }
    }

    fn received(
        &mut self,
        core: &mut Core,
        shard: usize,
        turn: &mut Turn,
        conn: ConnId,
        came_ns: u64,
        bytes: Vec<u8>,
    ) {
        if self.sockets[&conn].session.is_some() {
            return self.heartbeats(core, shard, turn, conn, came_ns, &bytes);
        }
        let socket = self.sockets.get_mut(&conn).expect("it has input");
        socket.received.extend(bytes);
        let received = std::mem::take(&mut socket.received);
        let decoded = decode_acquire(&received).expect("clients send no nonsense");
        let Some((acquire, rest)) = decoded else {
            socket.received = received;
            return;
        };
        socket.lease_ns = acquire.lease.as_ns();
        socket.heard_ns = came_ns;
        // A claim's lease begins no earlier than it came.
        *turn = self.look(core, shard);
        self.adopt(core, shard, turn, conn, acquire);
        if !rest.is_empty() && self.sockets.contains_key(&conn) {
            self.heartbeats(core, shard, turn, conn, came_ns, rest);
        }
    }

    fn adopt(
        &mut self,
        core: &mut Core,
        shard: usize,
        turn: &Turn,
        conn: ConnId,
        mut acquire: protocol::Acquire,
    ) {
        let lease = acquire.lease;
        if core.sabotage == Sabotage::ExpiresAtHalfLease {
            acquire.lease = protocol::Lease::from_ms(lease.as_ms() / 2).expect("longer than a millisecond");
        }
        let mut effects = Vec::new();
        match self.shards[shard].table.acquire(turn, conn, acquire, &mut effects) {
            Ok(session) => {
                core.figures.claims += 1;
                core.network.conn_mut(conn).life = self.life;
                self.sockets.get_mut(&conn).expect("it has input").session = Some(session);
                core.checks.taken(conn, 1);
                self.observe(core, turn, conn, Event::Arrived { claim: conn, lease: Some(lease) });
                self.carry_out(core, shard, turn, effects);
                if core.sabotage == Sabotage::QueuesLastFirst {
                    self.swap_with_the_waiter_before(core, shard, conn);
                }
            }
            Err(code) => self.refuse(core, shard, conn, code),
        }
    }

    fn heartbeats(
        &mut self,
        core: &mut Core,
        shard: usize,
        turn: &Turn,
        conn: ConnId,
        came_ns: u64,
        bytes: &[u8],
    ) {
        let input = decode_session(bytes);
        assert_eq!(input.violation, None, "clients send heartbeats");
        let session = self.sockets[&conn].session.expect("its ACQUIRE was taken");
        let mut effects = Vec::new();
        let Some(answer) = self.shards[shard].table.heartbeat(turn, session, &mut effects) else { return };
        core.checks.taken(conn, input.heartbeats as u64);
        core.figures.heartbeats += input.heartbeats as u64;
        self.sockets.get_mut(&conn).expect("it has input").heard_ns = came_ns;
        let (token, frame) = match answer {
            Answer::Waiting => (None, Frame::Waiting),
            Answer::Acquired(token) => (Some(token), Frame::Acquired(token)),
        };
        self.observe(core, turn, conn, Event::Confirmed { claim: conn, token });
        if core.sabotage == Sabotage::AnswersAfterGranting {
            self.carry_out(core, shard, turn, std::mem::take(&mut effects));
        }
        let swallows = core.sabotage == Sabotage::SwallowsAnswers && core.rng.u32(..100) == 0;
        for _ in usize::from(swallows)..input.heartbeats {
            self.say(core, shard, conn, frame);
        }
        core.checks.all_answered(conn);
        self.carry_out(core, shard, turn, effects);
    }

    /// A connection is gone, or its local kernel has given it up.
    fn ended(&mut self, core: &mut Core, shard: usize, turn: &Turn, conn: ConnId, is_gone: bool) {
        let socket = self.sockets.remove(&conn).expect("it had input");
        let how = if is_gone { "gone" } else { "silent" };
        core.note(self.who(), || format!("finds connection {conn} {how}"));
        let Some(session) = socket.session else { return };
        if is_gone || core.sabotage == Sabotage::TakesSilenceForGone {
            self.end(core, shard, turn, conn, session);
        } else {
            self.silence(core, shard, turn, conn, session, Reason::Expired);
        }
    }

    pub(crate) fn end(
        &mut self,
        core: &mut Core,
        shard: usize,
        turn: &Turn,
        conn: ConnId,
        session: SessionId,
    ) {
        self.observe_end_of_waiter(core, turn, conn);
        self.refresh_overdue_waiters(core, shard, turn);
        let mut effects = Vec::new();
        self.shards[shard].table.end(turn, session, Reason::Graceful, &mut effects);
        self.carry_out(core, shard, turn, effects);
    }

    fn silence(
        &mut self,
        core: &mut Core,
        shard: usize,
        turn: &Turn,
        conn: ConnId,
        session: SessionId,
        reason: Reason,
    ) {
        let is_holder = !self.observe_end_of_waiter(core, turn, conn);
        core.figures.reserved += u64::from(is_holder);
        let mut effects = Vec::new();
        self.shards[shard].table.silence(turn, session, reason, &mut effects);
        self.carry_out(core, shard, turn, effects);
    }

    fn serve(&mut self, core: &mut Core, shard: usize, turn: &Turn, request: Request) {
        let mut effects = Vec::new();
        let session_of = |conn| self.sockets.get(&conn).and_then(|socket| socket.session);
        let table = &mut self.shards[shard].table;
        match request {
            Request::Suspect(conn) => {
                let Some(session) = session_of(conn) else { return };
                table.suspect(turn, session, &mut effects);
                self.observe(core, turn, conn, Event::Suspected { claim: conn });
            }
            Request::Alive(conn) => {
                let Some(session) = session_of(conn) else { return };
                table.alive(turn, session, &mut effects);
                self.observe(core, turn, conn, Event::Returned { claim: conn });
            }
            Request::ForceRelease { lock } => {
                if let Some(holder) = core.checks.holder((self.life, lock)) {
                    core.network.conn_mut(holder).is_forced = true;
                }
                table.force_release(turn, &lock_name(lock), &mut effects);
            }
            Request::Kick(conn) => {
                let Some(session) = session_of(conn) else { return };
                table.kick(turn, session, &mut effects);
            }
        }
        self.carry_out(core, shard, turn, effects);
    }

    fn look_at_leases(&mut self, core: &mut Core, shard: usize, turn: &Turn) {
        if core.sabotage == Sabotage::ReleasesWithoutWord {
            self.release_somebody_without_word(core, shard, turn);
        }
        while let Some(session) = self.shards[shard].table.next_overdue(turn.now_ns) {
            let conn = self.shards[shard].table.session(session).expect("it came up").conn;
            let conn = self.owner(session, conn);
            if let Some(socket) = self.sockets.get(&conn) {
                let has_unread = match core.sabotage {
                    Sabotage::PutsOffForOthers => socket.has_unread() || self.has_completions(core, shard),
                    _ => socket.has_unread(),
                };
                if has_unread && core.sabotage != Sabotage::ExpiresUnheard {
                    core.figures.spared += 1;
                    core.note(self.who(), || format!("spares connection {conn}: it has unread input"));
                    self.shards[shard].table.look_again(turn.now_ns, session, LOOK_AGAIN_NS);
                    continue;
                }
                let (heard_ns, lease_ns) = (socket.heard_ns, socket.lease_ns);
                core.checks.expired(conn, self.monotonic_ns(core), heard_ns, lease_ns, has_unread);
            }
            core.note(self.who(), || format!("expires connection {conn}"));
            core.figures.expiries += 1;
            self.refresh_overdue_waiters(core, shard, turn);
            let mut effects = Vec::new();
            self.shards[shard].table.expire(turn, session, &mut effects);
            self.carry_out(core, shard, turn, effects);
        }
    }

    /// Whether anything waits in the shard's completion queue: of its sessions, or of strangers who flood it.
    fn has_completions(&self, core: &Core, shard: usize) -> bool {
        let has_any = |(&conn, socket): (_, &Socket)| {
            !socket.completed.is_empty() && self.shard_of(core, conn) == shard
        };
        core.plan.is_flooded || self.sockets.iter().any(has_any)
    }

    /// Leases were looked at: who is still overdue has unread input of its own, or was put off for that a
    /// moment ago.
    fn check_nobody_is_put_off(&self, core: &mut Core, shard: usize, turn: &Turn) {
        let (sessions, _) = self.shards[shard].table.sessions_from(0, u32::MAX);
        for (session, view) in sessions {
            let conn = self.owner(session, view.conn);
            let late_ns = turn.now_ns.saturating_sub(view.last_seen_ns + view.lease.as_ns());
            let is_heard = self.sockets.get(&conn).is_some_and(Socket::has_unread);
            if late_ns > LATE_NS_MAX && !is_heard {
                core.checks.put_off(conn, late_ns);
            }
        }
    }

    fn end_io_of_lost_addresses(&mut self, core: &mut Core, shard: usize, turn: &Turn) {
        if !self.io_to_end.remove(&shard) {
            return;
        }
        let mut conns: Vec<ConnId> = self.sockets.keys().copied().collect();
        conns.retain(|&conn| self.shard_of(core, conn) == shard);
        for conn in conns {
            let socket = self.sockets.remove(&conn).expect("listed above");
            if let Some(session) = socket.session {
                self.silence(core, shard, turn, conn, session, Reason::AddressLost);
            }
        }
    }

    /// Tokens have come for locks that are free and wait for one.
    fn grant_starved(&mut self, core: &mut Core, shard: usize, turn: &Turn) {
        if self.shards[shard].table.has_starved() && self.has_tokens() {
            let mut effects = Vec::new();
            self.shards[shard].table.grant_starved(turn, usize::MAX, &mut effects);
            self.carry_out(core, shard, turn, effects);
        }
    }

    /// This server may no longer grant: ends every session and promotes nobody.
    fn close_behind_a_closed_gate(&mut self, core: &mut Core, shard: usize, turn: &Turn) {
        let reason = match turn.gate {
            Gate::Open(_) => return,
            Gate::Standby => Reason::Demoted,
            Gate::ShuttingDown => Reason::Shutdown,
        };
        let mut effects = Vec::new();
        while self.shards[shard].table.close_some(turn, usize::MAX, reason, &mut effects) {}
        self.carry_out(core, shard, turn, effects);
    }

    /// Does what the lock table decided, in its order.
    pub(crate) fn carry_out(
        &mut self,
        core: &mut Core,
        shard: usize,
        turn: &Turn,
        mut effects: Vec<Effect<ConnId>>,
    ) {
        if core.sabotage == Sabotage::GrantsBeforeReleasing {
            effects.sort_by_key(|effect| !matches!(effect, Effect::Granted { .. }));
        }
        for effect in effects {
            match effect {
                Effect::Queued { conn, .. } => self.say(core, shard, conn, Frame::Waiting),
                Effect::Granted { conn, session, token, wait_ns, .. } => {
                    let conn = self.owner(session, conn);
                    self.granted(core, shard, turn, conn, token, wait_ns);
                }
                Effect::Released { conn, session, token, reason, .. } => {
                    let claim = self.owner(session, conn);
                    core.note(self.who(), || {
                        format!("releases {token} of connection {claim}: {}", reason.as_str())
                    });
                    self.observe(core, turn, claim, Event::Released { claim, token, reason });
                }
                Effect::End { conn, session, error } => {
                    let claim = self.owner(session, conn);
                    self.observe(core, turn, claim, Event::Ended { claim, expired: error.is_none() });
                    match error {
                        Some(code) => self.refuse(core, shard, claim, code),
                        None => self.close(shard, claim),
                    }
                }
            }
        }
    }

    fn granted(
        &mut self,
        core: &mut Core,
        shard: usize,
        turn: &Turn,
        conn: ConnId,
        token: Token,
        wait_ns: u64,
    ) {
        core.figures.grants += 1;
        core.figures.pushes += u64::from(wait_ns > 0);
        core.figures.late_grants += u64::from(!self.gate(core).is_open());
        if let Some(socket) = self.sockets.get_mut(&conn) {
            socket.heard_ns = socket.heard_ns.max(turn.now_ns);
        }
        self.observe(core, turn, conn, Event::Granted { claim: conn, token });
        self.say(core, shard, conn, Frame::Acquired(token));
    }

    fn say(&mut self, core: &mut Core, shard: usize, conn: ConnId, frame: Frame) {
        core.note(self.who(), || format!("answers connection {conn}: {frame:?}"));
        core.checks.sent(conn, frame, self.shards[shard].gate_looked_at);
        let bytes = match frame {
            Frame::Waiting => WAITING.to_vec(),
            Frame::Acquired(token) => acquired(token).to_vec(),
        };
        self.shards[shard].outgoing.push((conn, Segment::Bytes(bytes)));
    }

    fn refuse(&mut self, core: &mut Core, shard: usize, conn: ConnId, code: ErrorCode) {
        core.note(self.who(), || format!("ends connection {conn}: {}", code.meaning()));
        self.shards[shard].outgoing.push((conn, Segment::Bytes(ErrorFrame::new(code).to_vec())));
        // It is read on for a while, so that no reset destroys the ERROR.
        self.draining.insert(conn);
        self.close(shard, conn);
    }

    fn close(&mut self, shard: usize, conn: ConnId) {
        self.sockets.remove(&conn);
        self.shards[shard].outgoing.push((conn, Segment::Fin));
    }

    fn submit(&mut self, core: &mut Core, shard: usize) {
        for (conn, segment) in std::mem::take(&mut self.shards[shard].outgoing) {
            core.send(conn, Side::Client, segment);
        }
        // The same enter brings completions, which the shard sees in its next turn.
        for (&conn, socket) in &mut self.sockets {
            if core.network.conn(conn).lock % self.shards.len() == shard && core.rng.u32(..4) == 0 {
                socket.completed.append(&mut socket.kernel);
            }
        }
    }

    fn plan_next_turn(&mut self, core: &mut Core, shard: usize) {
        let now_ns = core.now_ns;
        let sleep_ns = core.plan.lease_ns / SLEEPS_A_LEASE;
        let deadline_ns = self.shards[shard]
            .table
            .next_deadline_ns()
            .filter(|_| core.sabotage != Sabotage::NeverExpires)
            .map_or(u64::MAX, |shown_ns| core.hosts[self.host].when_monotonic_shows(shown_ns));
        let is_ours = |conn| self.shard_of(core, conn) == shard;
        let is_left = self.sockets.iter().any(|(&conn, socket)| socket.has_any() && is_ours(conn));
        let is_busy = is_left || !self.shards[shard].requests.is_empty();
        let pause_ns = if is_busy { core.rng.u64(1..BUSY_NS_MAX) } else { sleep_ns };
        let at_ns = deadline_ns.clamp(now_ns + 1, now_ns + pause_ns);
        self.plan(core, shard, at_ns);
    }
}

/// Small things.
impl Process {
    fn observe(&self, core: &mut Core, turn: &Turn, conn: ConnId, event: Event<ConnId>) {
        let conn = core.network.conn(conn);
        let lock = (conn.life, conn.lock);
        core.checks.observe(turn.now_ns, lock, event, !self.has_lost_address);
    }

    /// The end of a waiter makes no effect of its own. False if it is no waiter.
    fn observe_end_of_waiter(&self, core: &mut Core, turn: &Turn, claim: ConnId) -> bool {
        let conn = core.network.conn(claim);
        let is_waiter = core.checks.holder((conn.life, conn.lock)) != Some(claim);
        if is_waiter {
            self.observe(core, turn, claim, Event::Ended { claim, expired: false });
        }
        is_waiter
    }
}
