//! What goes wrong, at random, until the quiet time begins.

use crate::agenda::Happening;
use crate::clients::Client;
use crate::cluster::{Cluster, Fence};
use crate::network::{Segment, Side};
use crate::plan::{Climate, Kind};
use crate::server::Request;
use crate::world::Core;

/// The longest fault, in longest leases.
const LEASES_MAX: u64 = 3;

/// A kind of fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// Nothing of a client reaches the servers.
    CutToServer,
    /// Nothing reaches a client.
    CutToClient,
    /// Both.
    CutBothWays,
    /// No client and no server hear each other.
    CutEverybody,
    /// A server process is stopped and continued: its input stays.
    ServerStops,
    /// A server's host sleeps: its monotonic clock stands still.
    ServerSuspends,
    /// A shard is held up in the middle of a turn.
    ShardIsHeldUp,
    /// A server process is killed.
    ServerIsKilled,
    /// A server's host loses power: its connections are silent.
    ServerLosesPower,
    /// A server process shuts down in order.
    ServerShutsDown,
    /// A standby takes over when the old server's gate has closed by itself.
    FailoverByDeadline,
    /// A standby takes over, and the old server's connections are silent.
    FailoverSilent,
    /// A standby takes over, and resets the old server's connections.
    FailoverReset,
    /// A server's wall clock steps, forward or back.
    WallClockSteps,
    /// A server's kernel gives a connection up by itself.
    KernelGivesUp,
    /// A client process is stopped and continued.
    ClientStops,
    /// A client's host sleeps.
    ClientSuspends,
    /// A client process is killed.
    ClientIsKilled,
    /// A client's host loses power.
    ClientLosesPower,
    /// A client closes its connection.
    ClientLeaves,
    /// A session falls under suspicion.
    SessionIsSuspected,
    /// A packet of a session's host comes.
    SessionIsAlive,
    /// An administrator takes a lock from its holder.
    ForceRelease,
    /// An administrator removes a waiter.
    Kick,
}

impl Fault {
    /// Every kind.
    pub const ALL: [Self; 24] = [
        Self::CutToServer,
        Self::CutToClient,
        Self::CutBothWays,
        Self::CutEverybody,
        Self::ServerStops,
        Self::ServerSuspends,
        Self::ShardIsHeldUp,
        Self::ServerIsKilled,
        Self::ServerLosesPower,
        Self::ServerShutsDown,
        Self::FailoverByDeadline,
        Self::FailoverSilent,
        Self::FailoverReset,
        Self::WallClockSteps,
        Self::KernelGivesUp,
        Self::ClientStops,
        Self::ClientSuspends,
        Self::ClientIsKilled,
        Self::ClientLosesPower,
        Self::ClientLeaves,
        Self::SessionIsSuspected,
        Self::SessionIsAlive,
        Self::ForceRelease,
        Self::Kick,
    ];

    /// For people.
    pub fn name(self) -> &'static str {
        match self {
            Self::CutToServer => "client cut off, to server",
            Self::CutToClient => "client cut off, to client",
            Self::CutBothWays => "client cut off",
            Self::CutEverybody => "servers cut off",
            Self::ServerStops => "server stopped",
            Self::ServerSuspends => "server suspended",
            Self::ShardIsHeldUp => "shard held up in its turn",
            Self::ServerIsKilled => "server killed",
            Self::ServerLosesPower => "server without power",
            Self::ServerShutsDown => "server shut down",
            Self::FailoverByDeadline => "failover by deadline",
            Self::FailoverSilent => "failover, silent",
            Self::FailoverReset => "failover, reset",
            Self::WallClockSteps => "wall clock stepped",
            Self::KernelGivesUp => "server's kernel gives up",
            Self::ClientStops => "client stopped",
            Self::ClientSuspends => "client suspended",
            Self::ClientIsKilled => "client killed",
            Self::ClientLosesPower => "client without power",
            Self::ClientLeaves => "client leaves",
            Self::SessionIsSuspected => "session suspected",
            Self::SessionIsAlive => "session alive again",
            Self::ForceRelease => "lock force-released",
            Self::Kick => "waiter kicked",
        }
    }
}

/// One fault strikes, and the next is planned.
pub(crate) fn strike(core: &mut Core, cluster: &mut Cluster, clients: &mut [Client]) {
    let next_ns = core.now_ns + 1 + core.rng.u64(..2 * core.plan.fault_pause_ns);
    if next_ns < core.plan.faults_end_ns {
        core.agenda.plan(next_ns, Happening::FaultStrikes);
    }
    let index = core.rng.usize(..Fault::ALL.len());
    let fault = Fault::ALL[index];
    let client = core.rng.usize(..clients.len());
    if on_network(core, fault, client, clients.len())
        || on_client(core, fault, &mut clients[client])
        || on_server(core, fault, cluster)
        || on_session(core, fault, cluster, &clients[client])
    {
        core.figures.faults[index] += 1;
    }
}

fn span_ns(core: &mut Core) -> u64 {
    core.rng.u64(core.plan.lease_ns / 20..LEASES_MAX * core.plan.lease_ns)
}

fn on_network(core: &mut Core, fault: Fault, client: usize, clients: usize) -> bool {
    let (from, until, ways) = match fault {
        Fault::CutToServer => (client, client, &[Side::Server][..]),
        Fault::CutToClient => (client, client, &[Side::Client][..]),
        Fault::CutBothWays => (client, client, &Side::BOTH[..]),
        Fault::CutEverybody => (0, clients - 1, &Side::BOTH[..]),
        _ => return false,
    };
    let for_ns = span_ns(core);
    core.note("network", || {
        format!("cuts clients {from} to {until} off, {ways:?}, {} ms", for_ns / 1_000_000)
    });
    for client in from..=until {
        ways.iter().for_each(|&to| core.block(client, to, for_ns));
    }
    true
}

fn on_client(core: &mut Core, fault: Fault, client: &mut Client) -> bool {
    // Upstream's client counts from reading, so it must not read late.
    let may_stop = core.plan.climate == Climate::Rough || client.kind() == Kind::Ours;
    let for_ns = span_ns(core);
    if client.is_suspended(core) {
        return false;
    }
    match fault {
        Fault::ClientStops if may_stop => client.stop(core, for_ns),
        Fault::ClientSuspends if may_stop => client.suspend(core, for_ns),
        Fault::ClientIsKilled => client.kill(core),
        Fault::ClientLosesPower => client.lose_power(core, for_ns),
        Fault::ClientLeaves => client.leave(core),
        _ => return false,
    }
    true
}

fn on_server(core: &mut Core, fault: Fault, cluster: &mut Cluster) -> bool {
    let id = core.rng.usize(..cluster.processes.len() * 4);
    let active = cluster.active().map(|process| process.id);
    let Some(id) = (if id < cluster.processes.len() { Some(id) } else { active }) else { return false };
    let for_ns = span_ns(core);
    let process = &mut cluster.processes[id];
    if !process.is_alive || core.hosts[process.host].is_suspended(core.now_ns) {
        return false;
    }
    match fault {
        Fault::ServerStops => process.stop(core, for_ns),
        Fault::ServerSuspends => process.suspend(core, for_ns),
        Fault::ShardIsHeldUp if core.plan.climate == Climate::Rough => process.hold_up_ns = for_ns,
        Fault::ServerIsKilled => cluster.kill(core, id, true),
        Fault::ServerLosesPower => cluster.kill(core, id, false),
        Fault::ServerShutsDown => cluster.shut_down(core, id),
        Fault::FailoverByDeadline => {
            // What makes a standby take over is often a server that hangs.
            if core.plan.climate == Climate::Rough && core.rng.bool() {
                process.hold_up_ns = for_ns;
            }
            return cluster.fail_over(core, Fence::Deadline);
        }
        Fault::FailoverSilent => return cluster.fail_over(core, Fence::AddressSilent),
        Fault::FailoverReset => return cluster.fail_over(core, Fence::AddressReset),
        Fault::WallClockSteps => {
            let skew_ns = core.rng.u64(..10 * core.plan.lease_ns);
            core.note(process.who(), || format!("has its wall clock stepped to +{} ms", skew_ns / 1_000_000));
            core.hosts[process.host].set_skew(skew_ns);
            core.keep_wall_clock_ahead(process.host, process.life);
        }
        _ => return false,
    }
    true
}

fn on_session(core: &mut Core, fault: Fault, cluster: &mut Cluster, client: &Client) -> bool {
    let lock = core.rng.usize(..core.plan.locks);
    let (Some(conn), Some(process)) = (client.conn(), cluster.active()) else { return false };
    if core.network.conn(conn).process != process.id {
        return false;
    }
    let request = match fault {
        Fault::SessionIsSuspected => Request::Suspect(conn),
        Fault::SessionIsAlive => Request::Alive(conn),
        Fault::ForceRelease => Request::ForceRelease { lock },
        Fault::Kick => Request::Kick(conn),
        Fault::KernelGivesUp => {
            core.note("network", || format!("makes the server's kernel give connection {conn} up"));
            process.arrives(core, conn, Segment::TimedOut);
            return true;
        }
        _ => return false,
    };
    let shard = match request {
        Request::ForceRelease { lock } => lock % core.plan.shards,
        _ => process.shard_of(core, conn),
    };
    core.note(process.who(), || format!("is asked for {request:?}"));
    process.shards[shard].requests.push(request);
    process.wake(core, shard);
    true
}
