//! What happens to a server's process.

use std::fs;
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result};
use nix::errno::Errno;
use nix::sys::ptrace;
use nix::sys::signal::Signal;
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;

use super::{active, measured, now, taken_over};
use crate::lab::Lab;
use crate::report::Run;

const LIMIT: Duration = Duration::from_secs(15);

pub(super) fn killed_at_customers(lab: &mut Lab) -> Result<Run> {
    killed(lab)
}

pub(super) fn killed(lab: &mut Lab) -> Result<Run> {
    let node = active(lab)?;
    let from_ns = now();
    lab.kill_server(node)?;
    taken_over(lab, from_ns, LIMIT)
}

pub(super) fn killed_with_power(lab: &mut Lab) -> Result<Run> {
    let node = active(lab)?;
    let run = killed(lab);
    // The command has cut the whole host off.
    lab.reap(node)?;
    lab.boot(node)?;
    run
}

pub(super) fn stopped(lab: &mut Lab) -> Result<Run> {
    let node = active(lab)?;
    let from_ns = now();
    lab.signal_server(node, Signal::SIGSTOP)?;
    let run = taken_over(lab, from_ns, LIMIT);
    // An agent has killed it; without one it goes on here.
    let _ = lab.signal_server(node, Signal::SIGCONT);
    run
}

/// Stops one thread of the server, as a debugger does: it holds locks, and answers nobody.
pub(super) fn shard_hangs(lab: &mut Lab) -> Result<Run> {
    let node = active(lab)?;
    let thread = shard(lab.server_pid(node)?)?;
    let from_ns = now();
    let tracer = thread::spawn(move || hold(thread));
    let run = taken_over(lab, from_ns, LIMIT);
    lab.kill_server(node)?;
    tracer.join().map_err(|_| anyhow::anyhow!("the tracer has panicked"))??;
    run
}

/// A traced thread belongs to the one that traces it, which has to take its end too: the process does not end
/// before.
fn hold(thread: Pid) -> Result<()> {
    ptrace::seize(thread, ptrace::Options::empty())?;
    ptrace::interrupt(thread)?;
    loop {
        match waitpid(thread, Some(WaitPidFlag::__WALL)) {
            Ok(WaitStatus::Exited(..) | WaitStatus::Signaled(..)) | Err(Errno::ECHILD) => return Ok(()),
            Ok(_) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

fn shard(process: u32) -> Result<Pid> {
    for task in fs::read_dir(format!("/proc/{process}/task"))? {
        let path = task?.path();
        if fs::read_to_string(path.join("comm"))?.starts_with("shard") {
            let number = path.file_name().and_then(|name| name.to_str()).context("a thread's number")?;
            return Ok(Pid::from_raw(number.parse()?));
        }
    }
    anyhow::bail!("no shard's thread")
}

/// The server takes the health file away, and the address goes to the peer; the new agent answers it.
pub(super) fn agent_restarted(lab: &mut Lab) -> Result<Run> {
    let node = active(lab)?;
    let from_ns = now();
    lab.kill_agent(node)?;
    // As its unit has it.
    thread::sleep(Duration::from_millis(100));
    lab.start_agent(node)?;
    taken_over(lab, from_ns, LIMIT)
}

pub(super) fn both_rebooted(lab: &mut Lab) -> Result<Run> {
    let from_ns = now();
    lab.power_off(0)?;
    lab.power_off(1)?;
    lab.boot(0)?;
    lab.boot(1)?;
    taken_over(lab, from_ns, LIMIT)
}

pub(super) fn restarted_at_once(lab: &mut Lab) -> Result<Run> {
    let node = active(lab)?;
    let from_ns = now();
    lab.kill_server(node)?;
    lab.start_server(node)?;
    taken_over(lab, from_ns, LIMIT)
}

pub(super) fn restarted_alone(lab: &mut Lab) -> Result<Run> {
    let node = active(lab)?;
    lab.power_off(1 - node)?;
    thread::sleep(Duration::from_millis(500));
    let from_ns = now();
    lab.kill_server(node)?;
    lab.start_server(node)?;
    let run = taken_over(lab, from_ns, LIMIT);
    lab.boot(1 - node)?;
    run?;
    measured(lab, from_ns)
}
