//! What clients and operators do.

use std::process::{Command, Stdio};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, ensure};

use super::{active, now, taken_over};
use crate::lab::Lab;
use crate::net::Place;
use crate::report::Run;
use crate::returns::Returning;

const LIMIT: Duration = Duration::from_secs(15);

pub(super) fn promoted_behind_proxy(lab: &mut Lab) -> Result<Run> {
    let node = active(lab)?;
    let from_ns = now();
    let (status, text) = lab.operate(1 - node, &["promote"])?;
    ensure!(status == 0, "promote: {text}");
    taken_over(lab, from_ns, LIMIT)
}

pub(super) fn host_off_behind_proxy(lab: &mut Lab) -> Result<Run> {
    let node = active(lab)?;
    let from_ns = now();
    lab.power_off(node)?;
    let (status, text) = lab.operate(1 - node, &["promote"])?;
    ensure!(status == 0, "promote: {text}");
    let run = taken_over(lab, from_ns, LIMIT);
    lab.boot(node)?;
    run
}

/// The operator's own measurement agrees with the lab's, and passes.
pub(super) fn drill(lab: &mut Lab) -> Result<Run> {
    let node = active(lab)?;
    let drill = Command::new("ip")
        .args(["netns", "exec", &lab.net.name(Place::Clients)])
        .arg(lab.program())
        .args(["ha", "drill", "--for", "6s", "--address", &lab.address().to_string()])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .context("the drill")?;
    thread::sleep(Duration::from_secs(2));
    let from_ns = now();
    lab.net.link(node, 0, false)?;
    let run = taken_over(lab, from_ns, LIMIT);
    lab.net.link(node, 0, true)?;
    let output = drill.wait_with_output()?;
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    ensure!(output.status.success(), "the drill failed: {said}{}", String::from_utf8_lossy(&output.stderr));
    let interruption = said.lines().find(|line| line.contains(" grants, ")).unwrap_or_default();
    ensure!(!interruption.contains("no interruption"), "the drill saw nothing: {said}");
    run.map(|run| Run { fence: format!("{}; the drill: {interruption}", run.fence), ..run })
}

/// Many clients lose their server at once and come back to the next one, where others have heartbeats.
pub(super) fn returns(lab: &mut Lab) -> Result<Run> {
    let node = active(lab)?;
    let returning = Returning::start(&lab.net, lab.address())?;
    let from_ns = now();
    lab.net.link(node, 0, false)?;
    let run = taken_over(lab, from_ns, LIMIT);
    let figures = returning.finish(from_ns);
    lab.net.link(node, 0, true)?;
    let figures = figures?;
    run.map(|run| Run { fence: format!("{}; {figures}", run.fence), ..run })
}
