//! What happens, and what must come of it.

mod address;
mod clients;
mod fences;
mod process;

use std::time::Duration;

use anyhow::{Context, Result, ensure};

use crate::history::{gap_ns, now_ns, ours_back_ns};
use crate::lab::{Kind, Lab};
use crate::report::Run;

/// One of them.
pub struct Scenario {
    /// For the table.
    pub name: &'static str,
    /// The configuration that it needs.
    pub kind: Kind,
    /// It needs a command that cuts the other host off.
    pub power: bool,
    /// It needs an agent.
    pub agent: bool,
    /// The bound of its median gap.
    pub limit: Option<Duration>,
    /// A whole pair before; afterwards the lab is put in order.
    pub run: fn(&mut Lab) -> Result<Run>,
}

const fn ms(ms: u64) -> Option<Duration> {
    Some(Duration::from_millis(ms))
}

/// All, in the order of the table.
#[rustfmt::skip]
pub const ALL: &[Scenario] = &[
    Scenario { name: "the customer's configuration, server killed", kind: Kind::Customers, power: false, agent: false, limit: ms(4000), run: process::killed_at_customers },
    Scenario { name: "server killed", kind: Kind::Ours, power: false, agent: true, limit: ms(500), run: process::killed },
    Scenario { name: "server killed, no agent: a command", kind: Kind::Ours, power: true, agent: false, limit: ms(3000), run: process::killed_with_power },
    Scenario { name: "server stopped (SIGSTOP)", kind: Kind::Ours, power: false, agent: true, limit: ms(900), run: process::stopped },
    Scenario { name: "one shard hangs", kind: Kind::Ours, power: false, agent: true, limit: ms(2500), run: process::shard_hangs },
    Scenario { name: "link of the active cut, peer asked over the second network", kind: Kind::Ours, power: false, agent: false, limit: ms(800), run: address::link_cut },
    Scenario { name: "host off, a command confirms", kind: Kind::Ours, power: true, agent: false, limit: ms(4000), run: fences::host_off },
    Scenario { name: "planned switchover", kind: Kind::Ours, power: false, agent: true, limit: ms(1000), run: address::switchover },
    Scenario { name: "the address moves from A to B and back", kind: Kind::Ours, power: false, agent: false, limit: None, run: address::flap },
    Scenario { name: "silent partition, the address on both, healed", kind: Kind::Ours, power: false, agent: false, limit: ms(5000), run: address::partition },
    Scenario { name: "silent partition of both networks, healed", kind: Kind::Ours, power: false, agent: false, limit: ms(5000), run: address::partition_of_both },
    Scenario { name: "keepalived killed, its address stays", kind: Kind::Ours, power: false, agent: false, limit: ms(5000), run: address::keepalived_killed },
    Scenario { name: "keepalived killed under systemd", kind: Kind::Ours, power: false, agent: false, limit: ms(5000), run: address::keepalived_killed_under_systemd },
    Scenario { name: "keepalived reloaded three times, server killed", kind: Kind::Ours, power: false, agent: true, limit: ms(1000), run: address::reloaded },
    Scenario { name: "agent of the active killed, and started again", kind: Kind::Ours, power: false, agent: true, limit: ms(3000), run: process::agent_restarted },
    Scenario { name: "both hosts rebooted", kind: Kind::Ours, power: false, agent: false, limit: None, run: process::both_rebooted },
    Scenario { name: "active restarted at once", kind: Kind::Ours, power: false, agent: false, limit: ms(3000), run: process::restarted_at_once },
    Scenario { name: "active restarted while the standby is down", kind: Kind::Ours, power: false, agent: false, limit: ms(6000), run: process::restarted_alone },
    Scenario { name: "every fence fails, then by force", kind: Kind::Ours, power: true, agent: false, limit: None, run: fences::none },
    Scenario { name: "promotion by hand, behind HAProxy", kind: Kind::Proxy, power: false, agent: false, limit: ms(1500), run: clients::promoted_behind_proxy },
    Scenario { name: "host off, promotion by hand, behind HAProxy", kind: Kind::Proxy, power: true, agent: false, limit: ms(4000), run: clients::host_off_behind_proxy },
    Scenario { name: "an operator's drill", kind: Kind::Ours, power: false, agent: false, limit: None, run: clients::drill },
    Scenario { name: "2000 clients return, 200 have come already", kind: Kind::Ours, power: false, agent: false, limit: None, run: clients::returns },
];

/// Clients are served by another server than before: how long nobody was, and what the fence was.
fn taken_over(lab: &Lab, from_ns: u64, limit: Duration) -> Result<Run> {
    lab.wait_within(limit, "a grant of another server", |lab| {
        lab.seen_now().is_ok_and(|(seen, issuers)| gap_ns(&seen, &issuers, from_ns).is_some())
    })?;
    // Time for the slowest of our clients to come back, and for the audit log.
    std::thread::sleep(Duration::from_secs(1));
    measured(lab, from_ns)
}

/// The figures of what happened at `from_ns`.
fn measured(lab: &Lab, from_ns: u64) -> Result<Run> {
    let (seen, issuers) = lab.seen()?;
    let (gap, _, new) = gap_ns(&seen, &issuers, from_ns).context("nobody was served by another server")?;
    let back = ours_back_ns(&seen, &issuers, from_ns, new);
    let ours = back.get(back.len() / 2).zip(back.last());
    Ok(Run {
        gap: Some(Duration::from_nanos(gap)),
        fence: lab.fence_of(new),
        ours: ours.map(|(half, all)| (Duration::from_nanos(*half), Duration::from_nanos(*all))),
    })
}

fn now() -> u64 {
    now_ns()
}

/// One node holds, as [`Lab::active`] has it.
fn active(lab: &Lab) -> Result<usize> {
    lab.active().context("no active node")
}

/// What a run may not leave behind.
pub fn check(lab: &Lab) -> Result<()> {
    let faults = lab.judge()?;
    ensure!(faults.is_empty(), "{}", faults[..faults.len().min(5)].join("\n"));
    Ok(())
}
