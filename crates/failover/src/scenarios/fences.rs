//! Hosts that are off, and fences that fail.

use std::fs;
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, ensure};

use super::{active, now, taken_over};
use crate::lab::Lab;
use crate::report::Run;

const LIMIT: Duration = Duration::from_secs(20);

pub(super) fn host_off(lab: &mut Lab) -> Result<Run> {
    let node = active(lab)?;
    let from_ns = now();
    lab.power_off(node)?;
    let run = taken_over(lab, from_ns, LIMIT);
    lab.boot(node)?;
    run
}

/// The standby stays closed, ready and where it is, says why, and goes on trying; then it is forced.
pub(super) fn none(lab: &mut Lab) -> Result<Run> {
    let node = active(lab)?;
    let other = 1 - node;
    let switch = lab.etc(other).join("power");
    let works = fs::read_to_string(&switch)?;
    fs::write(&switch, "#!/bin/sh\necho the plug does not answer >&2\nexit 1\n")?;
    let from_ns = now();
    lab.power_off(node)?;
    let run = pending(lab, other).and_then(|()| {
        let (status, text) = lab.operate(other, &["promote", "--force-unfenced"])?;
        ensure!(status == 0, "promote --force-unfenced: {text}");
        taken_over(lab, from_ns, LIMIT)
    });
    fs::write(&switch, works)?;
    lab.boot(node)?;
    Ok(Run { gap: None, ..run? })
}

fn pending(lab: &Lab, node: usize) -> Result<()> {
    let is_pending = |lab: &Lab| lab.status(node).is_some_and(|status| status.role == "fence_pending");
    lab.wait("a pending fence", is_pending)?;
    let moves = lab.keepalived_said(node, "Entering");
    // Long enough for two more rounds of fences.
    for _ in 0..12 {
        thread::sleep(Duration::from_secs(1));
        ensure!(lab.net.has_address(node), "the address has gone");
        ensure!(lab.is_healthy(node), "it is not ready");
    }
    ensure!(lab.keepalived_said(node, "Entering") == moves, "keepalived has moved");
    let status = lab.status(node).context("no status")?;
    ensure!(status.gate == "closed" && status.role == "fence_pending", "{status:?}");
    let said = format!("{status:?}");
    ensure!(said.contains("the plug does not answer"), "it does not say why: {said}");
    ensure!(lab.audited(node, "not confirmed"), "no failed fence is in the audit log");
    Ok(())
}
