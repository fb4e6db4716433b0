//! A server process: its sockets, as their kernel keeps them, its gate, and its shards.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use locks::{Gate, Opening, SessionId, Table, TokenSource, Turn};

use protocol::Token;

use crate::agenda::Happening;
use crate::core::Core;
use crate::sabotage::Sabotage;
use crate::segment::{ConnId, Segment, Side};

/// How far a token ceiling is raised above the last token or the clock: it holds for a few grants, so that it
/// is reached often.
const CEILING_STEP: u64 = 4;

/// Until when a process may grant and confirm.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum OpenUntil {
    Always,
    /// On the boot clock of its host. 0 for a standby.
    Boot(u64),
    /// It shuts down.
    Never,
}

/// What an administrator or the probe asks of a shard.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Request {
    Suspect(ConnId),
    Alive(ConnId),
    ForceRelease { lock: usize },
    Kick(ConnId),
}

/// A segment in a queue, with when it came on the host's monotonic clock.
pub(crate) type Queued = (u64, Segment);

/// The server's end of a connection.
#[derive(Debug, Default)]
pub(crate) struct Socket {
    /// What nobody has asked the kernel for.
    pub(crate) kernel: VecDeque<Queued>,
    /// What the kernel has handed over, and the shard has not looked at.
    pub(crate) completed: VecDeque<Queued>,
    /// The beginning of an ACQUIRE.
    pub(crate) received: Vec<u8>,
    pub(crate) session: Option<SessionId>,
    pub(crate) lease_ns: u64,
    /// When the last heartbeat that was answered came in.
    pub(crate) heard_ns: u64,
}

impl Socket {
    /// Whether there are bytes that the shard has not seen. When it looks at leases only the kernel can have
    /// them.
    pub(crate) fn has_unread(&self) -> bool {
        let mut queued = self.completed.iter().chain(&self.kernel);
        queued.any(|(_, it)| matches!(it, Segment::Bytes(_)))
    }

    /// Whether there is anything for the shard.
    pub(crate) fn has_any(&self) -> bool {
        !self.completed.is_empty() || !self.kernel.is_empty()
    }
}

/// Where a shard's turn stands.
#[derive(Debug, Default)]
pub(crate) enum TurnStep {
    /// It waits.
    #[default]
    Idle,
    /// It has looked, and these connections have something for it.
    Looked(Turn, Vec<ConnId>),
    /// It has applied what came.
    Applied(Turn),
}

/// A shard: the real lock table, and where its turn stands.
#[derive(Debug)]
pub(crate) struct Shard {
    pub(crate) table: Table<ConnId>,
    pub(crate) step: TurnStep,
    /// What is sent at the turn's next submission.
    pub(crate) outgoing: Vec<(ConnId, Segment)>,
    pub(crate) requests: Vec<Request>,
    /// The last look at the monotonic clock.
    pub(crate) looked_ns: u64,
    /// What the last look at the gate showed: the turn acts by it, however long it is held up.
    pub(crate) gate_looked_at: Gate,
    plan: u64,
    planned_ns: Option<u64>,
}

/// A server process.
#[derive(Debug)]
pub(crate) struct Process {
    pub(crate) id: usize,
    pub(crate) host: usize,
    /// Counts the times that any server became the active one.
    pub(crate) life: usize,
    pub(crate) is_alive: bool,
    pub(crate) open_until: OpenUntil,
    /// Its leadership goes on.
    pub(crate) renews: bool,
    pub(crate) shards: Vec<Shard>,
    tokens: Arc<TokenSource>,
    pub(crate) sockets: BTreeMap<ConnId, Socket>,
    pub(crate) started_ns: u64,
    /// It takes no step before.
    pub(crate) stopped_until_ns: u64,
    /// How long a shard will be held up in the middle of its next turn.
    pub(crate) hold_up_ns: u64,
    /// Its address is at another host.
    pub(crate) has_lost_address: bool,
    /// Shards that have not ended their sessions' I/O after that.
    pub(crate) io_to_end: BTreeSet<usize>,
    /// Every connection that ever came, and those that it reads no more but does not reset.
    known: BTreeSet<ConnId>,
    pub(crate) draining: BTreeSet<ConnId>,
    /// Sessions that a planted fault gave to other connections.
    pub(crate) swapped: BTreeMap<SessionId, ConnId>,
}

impl Process {
    pub(crate) fn new(core: &Core, id: usize, host: usize) -> Self {
        let has_ceiling = core.plan.has_token_file && core.sabotage != Sabotage::IgnoresCeiling;
        let tokens = Arc::new(match has_ceiling {
            true => TokenSource::with_ceiling(Token(core.ceiling_on_disk)),
            false => TokenSource::new(),
        });
        let shard = |_| Shard {
            table: Table::new(Arc::clone(&tokens)),
            step: TurnStep::Idle,
            outgoing: Vec::new(),
            requests: Vec::new(),
            looked_ns: core.hosts[host].monotonic_ns(core.now_ns),
            gate_looked_at: Gate::Standby,
            plan: 0,
            planned_ns: None,
        };
        Self {
            id,
            host,
            life: 0,
            is_alive: true,
            open_until: OpenUntil::Boot(0),
            renews: false,
            shards: (0..core.plan.shards).map(shard).collect(),
            tokens,
            sockets: BTreeMap::new(),
            started_ns: core.now_ns,
            stopped_until_ns: 0,
            hold_up_ns: 0,
            has_lost_address: false,
            io_to_end: BTreeSet::new(),
            known: BTreeSet::new(),
            draining: BTreeSet::new(),
            swapped: BTreeMap::new(),
        }
    }

    /// The gate as it stands now.
    pub(crate) fn gate(&self, core: &Core) -> Gate {
        match self.open_until {
            OpenUntil::Always => Gate::Open(self.opening(core)),
            OpenUntil::Never => Gate::ShuttingDown,
            OpenUntil::Boot(until) if core.hosts[self.host].boot_ns(core.now_ns) < until => {
                Gate::Open(self.opening(core))
            }
            OpenUntil::Boot(_) => Gate::Standby,
        }
    }

    /// Its thread writes a higher ceiling, and hears later that it is on the disk.
    pub(crate) fn store_ceiling(&mut self, core: &mut Core) {
        if !self.is_alive {
            return;
        }
        if self.stopped_until_ns > core.now_ns {
            return core.agenda.plan(self.stopped_until_ns, Happening::CeilingIsStored { process: self.id });
        }
        let clock = Token::from_unix_ns(core.hosts[self.host].unix_ns(core.now_ns)).0;
        let to = clock.max(self.tokens.last().0) + CEILING_STEP;
        let heard_ns = core.now_ns + core.rng.u64(..core.plan.lease_ns / 5);
        let rises = Happening::CeilingRises { process: self.id, to };
        match core.sabotage {
            Sabotage::RaisesBeforeStoring => self.tokens.raise_ceiling(Token(to)),
            _ => core.ceiling_on_disk = core.ceiling_on_disk.max(to),
        }
        core.agenda.plan(heard_ns, rises);
    }

    pub(crate) fn raise_ceiling(&mut self, core: &mut Core, to: u64) {
        if !self.is_alive {
            return;
        }
        if self.stopped_until_ns > core.now_ns {
            let rises = Happening::CeilingRises { process: self.id, to };
            return core.agenda.plan(self.stopped_until_ns, rises);
        }
        core.ceiling_on_disk = core.ceiling_on_disk.max(to);
        self.tokens.raise_ceiling(Token(to));
        self.wake_all(core);
        let again_ns = core.now_ns + core.plan.lease_ns / 10;
        core.agenda.plan(again_ns, Happening::CeilingIsStored { process: self.id });
    }

    pub(crate) fn has_tokens(&self) -> bool {
        !self.tokens.is_exhausted()
    }

    /// Each life as the active server is an opening of its own.
    pub(crate) fn opening(&self, core: &Core) -> Opening {
        match core.sabotage {
            Sabotage::ForgetsOpenings => Opening::FIRST,
            _ => Opening(self.life as u64),
        }
    }

    pub(crate) fn monotonic_ns(&self, core: &Core) -> u64 {
        core.hosts[self.host].monotonic_ns(core.now_ns)
    }

    pub(crate) fn shard_of(&self, core: &Core, conn: ConnId) -> usize {
        core.network.conn(conn).lock % self.shards.len()
    }

    /// Whether any claim is left from before a demotion.
    pub(crate) fn has_sessions(&self) -> bool {
        !self.sockets.is_empty() || self.shards.iter().any(|shard| shard.table.counts().sessions > 0)
    }

    /// The kernel gets something.
    pub(crate) fn arrives(&mut self, core: &mut Core, conn: ConnId, segment: Segment) {
        let is_bytes = matches!(segment, Segment::Bytes(_));
        let is_new = is_bytes && self.known.insert(conn);
        if is_new {
            self.sockets.insert(conn, Socket::default());
        }
        let now_ns = self.monotonic_ns(core);
        if let Some(socket) = self.sockets.get_mut(&conn) {
            socket.kernel.push_back((now_ns, segment));
            let shard = self.shard_of(core, conn);
            self.wake(core, shard);
        } else if is_bytes && !self.draining.contains(&conn) {
            core.send(conn, Side::Client, Segment::Reset);
        }
    }

    /// Something came for a shard that may sleep.
    pub(crate) fn wake(&mut self, core: &mut Core, shard: usize) {
        if matches!(self.shards[shard].step, TurnStep::Idle) {
            let at_ns = core.now_ns.max(self.stopped_until_ns);
            if self.shards[shard].planned_ns.is_none_or(|planned_ns| planned_ns > at_ns) {
                self.plan(core, shard, at_ns);
            }
        }
    }

    pub(crate) fn wake_all(&mut self, core: &mut Core) {
        (0..self.shards.len()).for_each(|shard| self.wake(core, shard));
    }

    /// A shard goes on at that moment, and not before.
    pub(crate) fn plan(&mut self, core: &mut Core, shard: usize, at_ns: u64) {
        let process = self.id;
        let shard_state = &mut self.shards[shard];
        shard_state.plan += 1;
        shard_state.planned_ns = Some(at_ns);
        core.agenda.plan(at_ns, Happening::ShardSteps { process, shard, plan: shard_state.plan });
    }

    /// Whether this is the shard's last plan, which is used up then.
    pub(crate) fn is_planned(&mut self, shard: usize, plan: u64) -> bool {
        let shard = &mut self.shards[shard];
        shard.plan == plan && shard.planned_ns.take().is_some()
    }

    /// SIGSTOP, and SIGCONT later.
    pub(crate) fn stop(&mut self, core: &mut Core, for_ns: u64) {
        core.note(self.who(), || format!("stops for {} ms", for_ns / 1_000_000));
        self.stopped_until_ns = self.stopped_until_ns.max(core.now_ns + for_ns);
    }

    /// The host sleeps.
    pub(crate) fn suspend(&mut self, core: &mut Core, for_ns: u64) {
        core.hosts[self.host].suspend(core.now_ns, core.now_ns + for_ns);
        self.stop(core, for_ns);
    }

    pub(crate) fn who(&self) -> String {
        format!("server {}", self.id)
    }

    /// The process ends; its kernel resets what is open, if the host has power.
    pub(crate) fn die(&mut self, core: &mut Core, has_power: bool) {
        self.is_alive = false;
        for conn in std::mem::take(&mut self.sockets).into_keys() {
            if has_power {
                core.send(conn, Side::Client, Segment::Reset);
            }
        }
        self.shards.clear();
    }
}
