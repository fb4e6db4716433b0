//! The world: virtual time, and one step after the other, each checked.

use std::panic::{AssertUnwindSafe, catch_unwind};

use fastrand::Rng;

use crate::agenda::{Agenda, Happening};
use crate::checks::{Checks, Rule, Violation};
use crate::clients::Client;
use crate::clock::HostClock;
use crate::cluster::Cluster;
use crate::core::Core;
use crate::figures::Figures;
use crate::network::Network;
use crate::plan::Plan;
use crate::sabotage::Sabotage;
use crate::segment::{Segment, Side};
use crate::strike::strike;
use crate::trace::{Trace, Tracing};

/// Clocks begin up to so far from each other: 18 minutes.
const CLOCK_OFFSET_NS_MAX: u64 = 1 << 40;

/// Claims and conversations never end; a run that makes more steps than this stands still in virtual time.
/// The longest ones make a tenth.
const STEPS_MAX: u64 = 2_000_000;

/// How a run went.
#[derive(Debug)]
pub struct Outcome {
    /// What it was made of.
    pub figures: Figures,
    /// The first broken promise.
    pub violation: Option<Violation>,
    /// Its last moment, ns of virtual time.
    pub end_ns: u64,
    /// The last things that happened, as far as they were wanted.
    pub trace: Vec<String>,
}

/// One run.
#[derive(Debug)]
pub(crate) struct World {
    core: Core,
    cluster: Cluster,
    clients: Vec<Client>,
}

impl World {
    pub(crate) fn new(seed: u64, sabotage: Sabotage, tracing: Tracing) -> Self {
        let mut rng = Rng::with_seed(seed);
        let plan = Plan::new(&mut rng, sabotage);
        let clock = |rng: &mut Rng| {
            let offset_ns = rng.u64(..CLOCK_OFFSET_NS_MAX);
            HostClock::new(offset_ns, plan.rate_permille(rng), rng.u64(..plan.lease_ns))
        };
        let hosts = (0..1 + usize::from(plan.has_standby)).map(|_| clock(&mut rng)).collect();
        let clients: Vec<Client> = plan
            .participants
            .iter()
            .enumerate()
            .map(|(id, &participant)| Client::new(id, participant, clock(&mut rng)))
            .collect();
        let mut core = Core {
            now_ns: 0,
            rng,
            agenda: Agenda::default(),
            network: Network::new(clients.len()),
            hosts,
            ceiling_on_disk: 0,
            unix_looked_at_ns: 0,
            checks: Checks::new(plan.locks),
            figures: Figures { seeds: 1, ..Figures::default() },
            plan,
            sabotage,
            trace: Trace::new(tracing),
        };
        let cluster = Cluster::new(&mut core);
        core.agenda.plan(core.plan.fault_pause_ns, Happening::FaultStrikes);
        let mut world = Self { core, cluster, clients };
        world.clients.iter_mut().for_each(|client| client.begin(&mut world.core));
        world
    }

    pub(crate) fn run(mut self) -> Outcome {
        // Nothing of the world is used after a panic but what tells of it.
        let all_steps = catch_unwind(AssertUnwindSafe(|| self.take_all_steps()));
        if let Err(panic) = all_steps {
            let text = panic.downcast_ref::<String>().map(String::as_str);
            let text = text.or(panic.downcast_ref::<&str>().copied()).unwrap_or("a panic");
            self.core.checks.fail(Rule::Assertions, text.to_owned());
        }
        let Core { now_ns, checks, mut figures, plan, trace, .. } = self.core;
        figures.simulated_ms = now_ns / 1_000_000;
        figures.leases = now_ns / plan.lease_ns;
        Outcome { figures, violation: checks.violation().cloned(), end_ns: now_ns, trace: trace.into_lines() }
    }

    fn take_all_steps(&mut self) {
        while self.core.now_ns < self.core.plan.end_ns && self.core.checks.violation().is_none() {
            self.step();
        }
        if self.core.checks.violation().is_none() {
            self.check_that_nobody_waits_for_ever();
        }
    }

    fn step(&mut self) {
        let (at_ns, happening) = self.core.agenda.next().expect("clients never end");
        assert!(at_ns >= self.core.now_ns, "time goes on");
        self.core.now_ns = at_ns;
        self.core.figures.steps += 1;
        assert!(self.core.figures.steps < STEPS_MAX, "time stands still");
        self.happens(happening);
        let Self { core, clients, .. } = self;
        let beliefs: Vec<_> =
            clients.iter().enumerate().filter_map(|(id, it)| Some((it.believes(core)?, id))).collect();
        core.checks.believed(beliefs.into_iter());
    }

    fn happens(&mut self, happening: Happening) {
        let Self { core, cluster, clients } = self;
        match happening {
            Happening::Arrives { conn, at: Side::Server, segment } => cluster.arrives(core, conn, segment),
            Happening::Arrives { conn, at: Side::Client, segment } => {
                clients[core.network.conn(conn).client].arrives(core, conn, segment);
            }
            Happening::GivesUp { conn, to, sent_ns } => {
                if core.kernel_gives_up(conn, to, sent_ns) {
                    core.note("network", || format!("times connection {conn} out for its {:?}", to.other()));
                    let segment = Segment::TimedOut;
                    self.happens(Happening::Arrives { conn, at: to.other(), segment });
                }
            }
            Happening::Heals { client, to } => core.heal(client, to),
            Happening::ShardSteps { process, shard, plan } => {
                let process = &mut cluster.processes[process];
                if process.is_alive && process.is_planned(shard, plan) {
                    process.step(core, shard);
                }
            }
            Happening::ClientWakes { client, plan } => {
                let client = &mut clients[client];
                if !client.is_planned(plan) {
                } else if client.wants_to_connect(core) {
                    let process = cluster.dial(core);
                    client.connect(core, process);
                } else {
                    client.act(core);
                }
            }
            Happening::RegisterHears(write) => {
                let is_taken = core.checks.write(write);
                let verb = if is_taken { "takes" } else { "refuses" };
                core.note("resource", || {
                    format!("{verb} a write for lock {} with token {}", write.lock, write.token)
                });
                core.figures.writes[usize::from(!is_taken)] += 1;
            }
            Happening::FaultStrikes => strike(core, cluster, clients),
            Happening::ProcessStarts { host } => cluster.start(core, host),
            Happening::ProcessEnds { process } => cluster.exit(core, process),
            Happening::CeilingIsStored { process } => cluster.processes[process].store_ceiling(core),
            Happening::CeilingRises { process, to } => cluster.processes[process].raise_ceiling(core, to),
            Happening::Promotes { host } => cluster.promote(core, host),
            Happening::GateRenews { process, life } => cluster.renew(core, process, life),
        }
    }

    fn check_that_nobody_waits_for_ever(&mut self) {
        let Self { core, clients, .. } = self;
        for (id, client) in clients.iter().enumerate() {
            if let Some(since_ns) = client.wants_since_ns() {
                core.waited(id, core.now_ns.saturating_sub(since_ns.max(core.plan.quiet_ns)));
            }
        }
    }
}
