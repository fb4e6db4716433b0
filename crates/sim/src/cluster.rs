//! The server hosts: which process is the active one, and how another becomes it.
//!
//! Without a standby a process that ends is started again. With one, the old active server is fenced before
//! the other host's is promoted: it is dead, its gate's deadline has passed, it has shut down, or its address
//! has moved.

use crate::agenda::Happening;
use crate::core::Core;
use crate::sabotage::Sabotage;
use crate::segment::{ConnId, Segment, Side};
use crate::server::{OpenUntil, Process};

/// How the old active server is fenced at a failover.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fence {
    /// It is no longer confirmed, and its gate's deadline is waited for.
    Deadline,
    /// Its address moves: its connections hear nothing.
    AddressSilent,
    /// Its address moves: the new host resets its connections.
    AddressReset,
}

/// Server processes, past and present.
#[derive(Debug)]
pub(crate) struct Cluster {
    pub(crate) processes: Vec<Process>,
    /// The process of each host, and until when the host has no power.
    hosts: Vec<(Option<usize>, u64)>,
    active: Option<usize>,
    lives: usize,
    promotion_is_planned: bool,
}

impl Cluster {
    pub(crate) fn new(core: &mut Core) -> Self {
        let hosts = vec![(None, 0); core.hosts.len()];
        let mut cluster =
            Self { processes: Vec::new(), hosts, active: None, lives: 0, promotion_is_planned: false };
        (0..core.hosts.len()).for_each(|host| cluster.start(core, host));
        if core.plan.has_standby {
            cluster.promote(core, 0);
        }
        cluster
    }

    /// The active process, if there is one.
    pub(crate) fn active(&mut self) -> Option<&mut Process> {
        self.active.map(|id| &mut self.processes[id])
    }

    /// Where a client that connects now ends up: now and then at a standby.
    pub(crate) fn dial(&self, core: &mut Core) -> Option<usize> {
        let standby = core.rng.usize(..self.hosts.len() * 8);
        let process = self.hosts.get(standby).map_or(self.active, |&(process, _)| process)?;
        let process = &self.processes[process];
        (process.is_alive && !process.has_lost_address).then_some(process.id)
    }

    /// A segment reaches a server host.
    pub(crate) fn arrives(&mut self, core: &mut Core, conn: ConnId, segment: Segment) {
        let process = &mut self.processes[core.network.conn(conn).process];
        let has_power = self.hosts[process.host].1 <= core.now_ns;
        let is_moved = core.network.moved.contains(&conn);
        if core.network.is_dead(conn, Side::Server) && segment != Segment::TimedOut {
            return;
        }
        if process.is_alive && !is_moved {
            process.arrives(core, conn, segment);
        } else if matches!(segment, Segment::Bytes(_)) && (has_power || is_moved) {
            core.send(conn, Side::Client, Segment::Reset);
        }
    }

    /// Starts the process of a host that has none: as a standby, or without one as the active server.
    pub(crate) fn start(&mut self, core: &mut Core, host: usize) {
        let (process, down_until_ns) = self.hosts[host];
        if process.is_some() {
            return;
        }
        let starts_ns = down_until_ns.max(core.hosts[host].awake_ns(core.now_ns));
        if starts_ns > core.now_ns {
            return core.agenda.plan(starts_ns, Happening::ProcessStarts { host });
        }
        let id = self.processes.len();
        self.processes.push(Process::new(core, id, host));
        self.hosts[host].0 = Some(id);
        core.note(format!("server {id}"), || format!("starts on host {host}"));
        if core.plan.has_token_file {
            core.agenda.plan(core.now_ns, Happening::CeilingIsStored { process: id });
        }
        if !core.plan.has_standby {
            self.promote(core, host);
        }
    }

    /// Makes a host's process the active one, as soon as nothing is left of an earlier life of it.
    pub(crate) fn promote(&mut self, core: &mut Core, host: usize) {
        self.promotion_is_planned = false;
        self.start(core, host);
        let forgets = core.sabotage == Sabotage::ForgetsOpenings;
        let ready = self.hosts[host].0.filter(|&id| forgets || !self.processes[id].has_sessions());
        let Some(id) = ready.filter(|&id| self.processes[id].open_until != OpenUntil::Never) else {
            let again_ns = core.now_ns.max(self.hosts[host].1) + core.plan.lease_ns / 20;
            return self.plan_promotion(core, host, again_ns);
        };
        if self.active == Some(id) {
            return;
        }
        for other in self.processes.iter().filter(|other| other.is_alive) {
            let is_fenced = !other.gate(core).is_open() || other.has_lost_address;
            assert!(is_fenced, "the old active server is fenced first");
        }
        core.figures.failovers += u64::from(core.plan.has_standby && self.lives > 0);
        self.lives += 1;
        core.keep_wall_clock_ahead(host, self.lives);
        self.active = Some(id);
        let process = &mut self.processes[id];
        process.life = self.lives;
        process.renews = true;
        process.has_lost_address = false;
        process.open_until = OpenUntil::Always;
        core.note(process.who(), || "becomes the active server".to_owned());
        if core.plan.has_standby {
            self.renew(core, id, self.lives);
        }
    }

    /// The coordinator confirms the leadership of a process that asks in time.
    pub(crate) fn renew(&mut self, core: &mut Core, id: usize, life: usize) {
        let process = &mut self.processes[id];
        let renews = process.renews || core.sabotage == Sabotage::ExtendsLate;
        let goes_on = process.is_alive && renews && process.life == life;
        if !goes_on || process.open_until == OpenUntil::Never {
            return;
        }
        let again = Happening::GateRenews { process: id, life };
        if process.stopped_until_ns > core.now_ns {
            return core.agenda.plan(process.stopped_until_ns, again);
        }
        if process.gate(core).is_open() || core.sabotage == Sabotage::ExtendsLate {
            let term_ns = core.plan.lease_ns;
            process.open_until = OpenUntil::Boot(core.hosts[process.host].boot_ns(core.now_ns) + term_ns);
            return core.agenda.plan(core.now_ns + term_ns / 4, again);
        }
        core.note(process.who(), || "comes back after its deadline".to_owned());
        process.renews = false;
        self.active = None;
        let host = core.rng.usize(..self.hosts.len());
        self.plan_promotion(core, host, core.now_ns);
    }

    fn plan_promotion(&mut self, core: &mut Core, host: usize, at_ns: u64) {
        if !std::mem::replace(&mut self.promotion_is_planned, true) {
            core.agenda.plan(at_ns, Happening::Promotes { host });
        }
    }

    /// A process ends: killed, or with its host's power.
    pub(crate) fn kill(&mut self, core: &mut Core, id: usize, has_power: bool) {
        let pause_ns = core.rng.u64(..2 * core.plan.lease_ns);
        let process = &mut self.processes[id];
        let host = process.host;
        core.note(process.who(), || if has_power { "is killed" } else { "loses power" }.to_owned());
        process.die(core, has_power);
        let starts_ns = core.now_ns + pause_ns;
        self.hosts[host] = (None, if has_power { core.now_ns } else { starts_ns });
        core.figures.restarts += 1;
        core.agenda.plan(starts_ns, Happening::ProcessStarts { host });
        self.after_the_end_of(core, id);
    }

    /// Begins a shutdown: the gate first.
    pub(crate) fn shut_down(&mut self, core: &mut Core, id: usize) {
        let process = &mut self.processes[id];
        if process.open_until == OpenUntil::Never {
            return;
        }
        core.note(process.who(), || "shuts down".to_owned());
        process.open_until = OpenUntil::Never;
        process.wake_all(core);
        core.agenda.plan(core.now_ns + core.plan.lease_ns / 5, Happening::ProcessEnds { process: id });
    }

    /// The end of a shutdown.
    pub(crate) fn exit(&mut self, core: &mut Core, id: usize) {
        if self.processes[id].is_alive {
            self.kill(core, id, true);
        }
    }

    /// Another host takes over, whatever the active server does.
    pub(crate) fn fail_over(&mut self, core: &mut Core, fence: Fence) -> bool {
        let Some(id) = self.active.filter(|_| !self.promotion_is_planned) else { return false };
        let OpenUntil::Boot(until) = self.processes[id].open_until else { return false };
        let host = 1 - self.processes[id].host;
        self.processes[id].renews = false;
        let mut fenced_ns = core.now_ns + core.rng.u64(..core.plan.lease_ns / 4);
        if fence == Fence::Deadline {
            fenced_ns = fenced_ns.max(core.hosts[self.processes[id].host].when_boot_shows(until));
        } else {
            self.move_address(core, id, fence);
            self.active = None;
        }
        core.note(self.processes[id].who(), || format!("is fenced: {fence:?}"));
        self.plan_promotion(core, host, fenced_ns);
        true
    }

    fn move_address(&mut self, core: &mut Core, id: usize, fence: Fence) {
        for conn in core.network.conns_of(id) {
            core.network.kill_way(conn, Side::Client);
            if fence == Fence::AddressReset {
                core.network.moved.insert(conn);
            } else {
                core.network.kill_way(conn, Side::Server);
            }
        }
        let process = &mut self.processes[id];
        process.has_lost_address = true;
        process.io_to_end = (0..process.shards.len()).collect();
        process.wake_all(core);
    }

    fn after_the_end_of(&mut self, core: &mut Core, id: usize) {
        if self.active == Some(id) {
            self.active = None;
            if core.plan.has_standby {
                let detected_ns = core.now_ns + core.rng.u64(..core.plan.lease_ns);
                let other = 1 - self.processes[id].host;
                self.plan_promotion(core, other, detected_ns);
            }
        }
    }
}
