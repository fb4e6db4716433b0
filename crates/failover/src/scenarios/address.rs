//! What happens to the address and to the networks.

use std::time::Duration;

use anyhow::{Context, Result, ensure};

use super::{active, now, taken_over};
use crate::bare::Failed;
use crate::lab::Lab;
use crate::report::Run;

const LIMIT: Duration = Duration::from_secs(15);

/// Clients are served by one node so long after a heal.
const HEAL_MAX: Duration = Duration::from_secs(5);

pub(super) fn link_cut(lab: &mut Lab) -> Result<Run> {
    let node = active(lab)?;
    let from_ns = now();
    lab.net.link(node, 0, false)?;
    let run = taken_over(lab, from_ns, LIMIT);
    lab.net.link(node, 0, true)?;
    run
}

pub(super) fn switchover(lab: &mut Lab) -> Result<Run> {
    let node = active(lab)?;
    let from_ns = now();
    let (status, text) = lab.operate(node, &["switchover"])?;
    ensure!(status == 0, "switchover: {text}");
    taken_over(lab, from_ns, LIMIT)
}

/// Away and back, with a claim that is silent all the time: it must not be confirmed again.
pub(super) fn flap(lab: &mut Lab) -> Result<Run> {
    let first = active(lab)?;
    let mut idle = lab.idle_claim("flap")?;
    let run = link_cut(lab)?;
    lab.settle()?;
    let second = active(lab)?;
    ensure!(second != first, "the address has not moved");
    link_cut(lab)?;
    lab.settle()?;
    ensure!(active(lab)? == first, "the address has not come back");
    let answer = idle.heartbeat();
    ensure!(
        matches!(answer, Err(Failed::Connection | Failed::Refused(0x01))),
        "a claim of the first stay was answered {answer:?}"
    );
    Ok(run)
}

/// The nodes do not hear each other's keepalived, and both take the address.
pub(super) fn partition(lab: &mut Lab) -> Result<Run> {
    let node = active(lab)?;
    let from_ns = now();
    lab.net.partition(0, true)?;
    let both = lab.wait("the address on both", |lab| lab.net.has_address(0) && lab.net.has_address(1));
    // The peer is asked over the second network, and closes.
    let run = taken_over(lab, from_ns, LIMIT);
    lab.net.partition(0, false)?;
    both?;
    let healed = lab.wait_within(HEAL_MAX, "one node that serves after the heal", Lab::is_whole)?;
    ensure!(active(lab)? != node, "the closed node has won");
    let run = run?;
    Ok(Run { gap: Some(healed), fence: format!("{} (gap from the heal)", run.fence), ..run })
}

/// Both networks: the peer cannot be asked either.
pub(super) fn partition_of_both(lab: &mut Lab) -> Result<Run> {
    let node = active(lab)?;
    for network in [0, 1] {
        lab.net.partition(network, true)?;
    }
    let both = lab.wait("the address on both", |lab| lab.net.has_address(0) && lab.net.has_address(1));
    std::thread::sleep(Duration::from_secs(3));
    let other = lab.status(1 - node).context("no status");
    for network in [0, 1] {
        lab.net.partition(network, false)?;
    }
    both?;
    ensure!(other?.gate == "closed", "a node without a fence has opened");
    let healed = lab.wait_within(HEAL_MAX, "one node that serves after the heal", Lab::is_whole)?;
    Ok(Run { gap: Some(healed), fence: "none: closed (gap from the heal)".into(), ours: None })
}

pub(super) fn keepalived_killed(lab: &mut Lab) -> Result<Run> {
    kill_keepalived(lab, false)
}

pub(super) fn keepalived_killed_under_systemd(lab: &mut Lab) -> Result<Run> {
    kill_keepalived(lab, true)
}

/// At each reload keepalived starts the next reader of its pipe before the last one has ended.
pub(super) fn reloaded(lab: &mut Lab) -> Result<Run> {
    for _ in 0..3 {
        for node in [0, 1] {
            let reloads = lab.keepalived_said(node, "Reload complete");
            lab.reload_keepalived(node)?;
            lab.wait("a reload", |lab| lab.keepalived_said(node, "Reload complete") > reloads)?;
        }
    }
    lab.wait("a whole pair after the reloads", Lab::is_whole)?;
    super::process::killed(lab)
}

fn kill_keepalived(lab: &mut Lab, as_systemd: bool) -> Result<Run> {
    let node = active(lab)?;
    let from_ns = now();
    lab.kill_keepalived(node, as_systemd)?;
    taken_over(lab, from_ns, LIMIT)
}
