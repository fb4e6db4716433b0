//! A client's host and process: it connects, waits, works under its lock, leaves, and comes back.

mod news;
mod ours;
mod upstream;

use std::collections::VecDeque;
use std::io::ErrorKind;

use client::{Closed, Loss};
use protocol::{Acquire, HEARTBEAT, Lease, LockName};

use self::news::News;
use self::ours::Ours;
use self::upstream::Upstream;
use crate::agenda::Happening;
use crate::checks::{LockOfLife, Rule};
use crate::clock::HostClock;
use crate::core::{Core, lock_name};
use crate::plan::{Kind, Participant};
use crate::register::Write;
use crate::sabotage::Sabotage;
use crate::segment::{ConnId, Segment, Side};

/// A claim by either kind's rules. Times are those of the client's host.
#[derive(Debug)]
#[expect(clippy::large_enum_variant, reason = "a client has one")]
enum Endpoint {
    Ours(Ours),
    Upstream(Upstream),
}

/// Calls the same method of either kind.
macro_rules! either {
    ($endpoint:expr, $it:ident => $call:expr) => {
        match $endpoint {
            Endpoint::Ours($it) => $call,
            Endpoint::Upstream($it) => $call,
        }
    };
}

/// One connection's life, from the client's side.
#[derive(Debug)]
struct Attempt {
    conn: ConnId,
    lock: usize,
    endpoint: Endpoint,
    /// What the kernel keeps for the process.
    input: VecDeque<Segment>,
    waits: bool,
    /// When the work is done, or the client leaves, or has noticed its loss.
    leaves_ns: Option<u64>,
    writes_ns: Option<u64>,
}

/// A client.
#[derive(Debug)]
pub(crate) struct Client {
    id: usize,
    kind: Kind,
    lease: Lease,
    clock: HostClock,
    attempt: Option<Attempt>,
    /// When it connects again.
    starts_ns: u64,
    /// Its process takes no step before.
    stopped_until_ns: u64,
    /// Its host has no power before.
    down_until_ns: u64,
    /// Since when it wants a lock.
    wants_since_ns: Option<u64>,
    plan: u64,
}

impl Client {
    pub(crate) fn new(id: usize, participant: Participant, clock: HostClock) -> Self {
        Self {
            id,
            kind: participant.kind,
            lease: participant.lease,
            clock,
            attempt: None,
            starts_ns: 0,
            stopped_until_ns: 0,
            down_until_ns: 0,
            wants_since_ns: None,
            plan: 0,
        }
    }

    pub(crate) fn kind(&self) -> Kind {
        self.kind
    }

    /// Which lock it acts as the holder of.
    pub(crate) fn believes(&self, core: &Core) -> Option<LockOfLife> {
        let attempt = self.attempt.as_ref()?;
        let conn = core.network.conn(attempt.conn);
        let shown_ns = self.shown_ns(core);
        let believes = either!(&attempt.endpoint, it => it.believes(shown_ns));
        let is_excused = conn.is_forced && either!(&attempt.endpoint, it => it.loss()).is_none();
        (believes && !is_excused).then_some((conn.life, attempt.lock))
    }

    /// Since when it wants a lock and has none.
    pub(crate) fn wants_since_ns(&self) -> Option<u64> {
        self.wants_since_ns
    }

    /// The connection on which it waits or holds.
    pub(crate) fn conn(&self) -> Option<ConnId> {
        self.attempt.as_ref().map(|attempt| attempt.conn)
    }

    /// Its kernel gets something.
    pub(crate) fn arrives(&mut self, core: &mut Core, conn: ConnId, segment: Segment) {
        match self.attempt.as_mut().filter(|attempt| attempt.conn == conn) {
            Some(attempt) => {
                attempt.input.push_back(segment);
                self.act(core);
            }
            None if self.down_until_ns > core.now_ns => {}
            None if matches!(segment, Segment::Bytes(_)) => core.send(conn, Side::Server, Segment::Reset),
            None => {}
        }
    }

    pub(crate) fn is_planned(&self, plan: u64) -> bool {
        self.plan == plan
    }

    /// Plans the first step.
    pub(crate) fn begin(&mut self, core: &mut Core) {
        self.starts_ns = core.now_ns + core.rng.u64(..core.plan.lease_ns / 2);
        self.plan_wake(core);
    }

    /// Connects to a process, or finds nobody there.
    pub(crate) fn connect(&mut self, core: &mut Core, process: Option<usize>) {
        let is_cut = Side::BOTH.iter().any(|&to| core.network.is_blocked(self.id, to, core.now_ns));
        self.wants_since_ns.get_or_insert(core.now_ns);
        let Some(process) = process.filter(|_| !is_cut) else {
            self.starts_ns = core.now_ns + 1 + core.rng.u64(..core.plan.lease_ns / 8);
            return self.plan_wake(core);
        };
        let lock = core.rng.usize(..core.plan.locks);
        let conn = core.connect(self.id, process, lock, self.lease.as_ns());
        let name = LockName::new(&lock_name(lock)).expect("short names");
        let acquire = Acquire { name, lease: self.lease };
        let shown_ns = self.shown_ns(core);
        let endpoint = match self.kind {
            Kind::Ours => Endpoint::Ours(Ours::new(shown_ns, acquire, core.sabotage)),
            Kind::Upstream => Endpoint::Upstream(Upstream::new(shown_ns, acquire)),
        };
        core.note(self.who(), || format!("connects to server {process} for lock {lock}: connection {conn}"));
        self.attempt = Some(Attempt {
            conn,
            lock,
            endpoint,
            input: VecDeque::new(),
            waits: false,
            leaves_ns: None,
            writes_ns: None,
        });
        self.act(core);
    }

    /// Whether it is time to connect.
    pub(crate) fn wants_to_connect(&self, core: &Core) -> bool {
        self.attempt.is_none() && core.now_ns >= self.starts_ns.max(self.stopped_until_ns)
    }

    /// What a process does at every wake-up.
    pub(crate) fn act(&mut self, core: &mut Core) {
        let shown_ns = self.shown_ns(core);
        let Some(attempt) = self.attempt.as_mut().filter(|_| self.stopped_until_ns <= core.now_ns) else {
            return self.plan_wake(core);
        };
        while let Some(segment) = attempt.input.pop_front() {
            core.note(format!("client {}", self.id), || {
                format!("reads {segment} on connection {}", attempt.conn)
            });
            match (&mut attempt.endpoint, segment) {
                (endpoint, Segment::Bytes(bytes)) => either!(endpoint, it => it.input(shown_ns, &bytes)),
                (Endpoint::Ours(it), segment) => it.closed(shown_ns, closed(&segment)),
                (Endpoint::Upstream(it), segment) => it.closed(closed(&segment)),
            }
        }
        either!(&mut attempt.endpoint, it => it.timeout(shown_ns));
        let frame = either!(&mut attempt.endpoint, it => it.transmit(shown_ns));
        let conn = attempt.conn;
        if let Some(frame) = frame {
            core.note(self.who(), || {
                format!(
                    "sends {} on connection {conn}",
                    if frame == HEARTBEAT { "a heartbeat" } else { "ACQUIRE" }
                )
            });
            core.send(conn, Side::Server, Segment::Bytes(frame));
        }
        while let Some(news) = self.attempt.as_mut().and_then(|it| either!(&mut it.endpoint, it => it.news()))
        {
            self.hears(core, news);
        }
        self.work(core);
        self.plan_wake(core);
    }

    fn hears(&mut self, core: &mut Core, news: News) {
        let now_ns = core.now_ns;
        let attempt = self.attempt.as_mut().expect("news come from an attempt");
        let (conn, lease_ns) = (attempt.conn, self.lease.as_ns());
        match news {
            News::Waits => {
                attempt.waits = true;
                if now_ns < core.plan.faults_end_ns && core.rng.u32(..10) == 0 {
                    attempt.leaves_ns = Some(now_ns + core.rng.u64(..3 * lease_ns));
                }
                core.note(self.who(), || format!("waits on connection {conn}"));
            }
            News::Holds => {
                attempt.waits = false;
                attempt.leaves_ns = Some(now_ns + core.plan.work_ns(&mut core.rng, now_ns));
                attempt.writes_ns = Some(now_ns);
                let token = either!(&attempt.endpoint, it => it.token()).expect("it holds");
                core.note(self.who(), || format!("holds with token {token} on connection {conn}"));
                self.granted(core);
            }
            News::Lost => {
                core.figures.losses += 1;
                let loss = either!(&attempt.endpoint, it => it.loss()).expect("it lost").clone();
                let waits_to_stop = matches!(loss, Loss::HeartbeatTimeout);
                let stops_ns = if waits_to_stop { core.rng.u64(..lease_ns / 10) } else { 0 };
                attempt.leaves_ns = Some(now_ns + stops_ns);
                core.note(self.who(), || format!("loses connection {conn}: {loss}"));
                if matches!(loss, Loss::ProtocolViolation(_)) {
                    core.checks.fail(Rule::Frames, format!("client {}: {loss}", self.id));
                }
            }
        }
    }

    fn granted(&mut self, core: &mut Core) {
        if let Some(since_ns) = self.wants_since_ns.take().filter(|_| core.now_ns > core.plan.quiet_ns) {
            let waited_ns = core.now_ns - since_ns.max(core.plan.quiet_ns);
            core.waited(self.id, waited_ns);
        }
    }

    /// Writes under the lock, and leaves when it is time, but not while it believes although it should not.
    fn work(&mut self, core: &mut Core) {
        let (now_ns, shown_ns) = (core.now_ns, self.shown_ns(core));
        let Some(attempt) = &mut self.attempt else { return };
        let believes = either!(&attempt.endpoint, it => it.believes(shown_ns));
        let is_lost = either!(&attempt.endpoint, it => it.loss()).is_some();
        if attempt.writes_ns.is_some_and(|at_ns| at_ns <= now_ns) {
            attempt.writes_ns = Some(now_ns + 1 + core.rng.u64(..core.plan.lease_ns / 2));
            if let Some(token) = either!(&attempt.endpoint, it => it.token()).filter(|_| believes) {
                let write = Write { lock: attempt.lock, conn: attempt.conn, token };
                let at_ns = now_ns + core.rng.u64(..core.plan.lease_ns);
                core.agenda.plan(at_ns, Happening::RegisterHears(write));
            }
        }
        let believes_in_vain = is_lost && believes;
        if attempt.leaves_ns.is_some_and(|at_ns| at_ns <= now_ns) && !believes_in_vain {
            self.leave(core);
        }
    }

    /// Closes the connection, if there is one, and comes back later.
    pub(crate) fn leave(&mut self, core: &mut Core) {
        let Some(attempt) = self.attempt.take() else { return };
        core.note(self.who(), || format!("closes connection {}", attempt.conn));
        let end = if attempt.input.is_empty() { Segment::Fin } else { Segment::Reset };
        core.send(attempt.conn, Side::Server, end);
        self.rest(core);
    }

    fn rest(&mut self, core: &mut Core) {
        self.starts_ns = core.now_ns + 1 + core.rng.u64(..core.plan.lease_ns / 4);
        self.plan_wake(core);
    }

    /// The process is killed: its kernel closes or resets its connection.
    pub(crate) fn kill(&mut self, core: &mut Core) {
        core.note(self.who(), || "is killed".to_owned());
        self.stopped_until_ns = 0;
        self.leave(core);
    }

    /// The host loses power: nobody hears anything of it until it is back.
    pub(crate) fn lose_power(&mut self, core: &mut Core, for_ns: u64) {
        core.note(self.who(), || "loses power".to_owned());
        self.attempt = None;
        self.stopped_until_ns = 0;
        self.down_until_ns = core.now_ns + for_ns;
        self.rest(core);
        self.starts_ns = self.starts_ns.max(self.down_until_ns);
        self.plan_wake(core);
    }

    /// SIGSTOP, and SIGCONT later.
    pub(crate) fn stop(&mut self, core: &mut Core, for_ns: u64) {
        core.note(self.who(), || format!("stops for {} ms", for_ns / 1_000_000));
        self.stopped_until_ns = self.stopped_until_ns.max(core.now_ns + for_ns);
        self.plan_wake(core);
    }

    /// The host sleeps.
    pub(crate) fn suspend(&mut self, core: &mut Core, for_ns: u64) {
        self.clock.suspend(core.now_ns, core.now_ns + for_ns);
        self.stop(core, for_ns);
    }

    pub(crate) fn is_suspended(&self, core: &Core) -> bool {
        self.clock.is_suspended(core.now_ns)
    }

    fn shown_ns(&self, core: &Core) -> u64 {
        match core.sabotage {
            Sabotage::IgnoresSuspend => self.clock.monotonic_ns(core.now_ns),
            _ => self.clock.boot_ns(core.now_ns),
        }
    }

    fn plan_wake(&mut self, core: &mut Core) {
        let when = |shown_ns| match core.sabotage {
            Sabotage::IgnoresSuspend => self.clock.when_monotonic_shows(shown_ns),
            _ => self.clock.when_boot_shows(shown_ns),
        };
        let at_ns = match &self.attempt {
            _ if self.stopped_until_ns > core.now_ns => self.stopped_until_ns,
            None => self.starts_ns,
            Some(attempt) => {
                let wake_ns = either!(&attempt.endpoint, it => it.wake_ns()).map(when);
                let times = [wake_ns, attempt.leaves_ns, attempt.writes_ns];
                times.into_iter().flatten().filter(|&at_ns| at_ns > core.now_ns).min().unwrap_or(u64::MAX)
            }
        };
        self.plan += 1;
        let at_ns = at_ns.max(core.now_ns);
        core.agenda.plan(at_ns, Happening::ClientWakes { client: self.id, plan: self.plan });
    }

    fn who(&self) -> String {
        format!("client {}", self.id)
    }
}

fn closed(segment: &Segment) -> Closed {
    match segment {
        Segment::Fin => Closed::ByServer,
        Segment::Reset => Closed::Broken(ErrorKind::ConnectionReset),
        Segment::TimedOut => Closed::Broken(ErrorKind::TimedOut),
        Segment::Bytes(_) => unreachable!("bytes are input"),
    }
}
