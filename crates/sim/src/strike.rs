//! What goes wrong, at random, until the quiet time begins.

use crate::agenda::Happening;
use crate::clients::Client;
use crate::cluster::{Cluster, Fence};
use crate::core::Core;
use crate::faults::Fault;
use crate::plan::{Climate, Kind};
use crate::segment::{Segment, Side};
use crate::server::Request;

/// The longest fault, in longest leases.
const LEASES_MAX: u64 = 3;

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
