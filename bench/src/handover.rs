//! How fast a lock moves on when its holder goes, on a quiet server.

use std::io::{Read, Write};
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Stdio};
use std::{env, io};

use anyhow::{Context, Result, ensure};
use protocol::{Lease, LockName};
use testkit::process::{self, Server, Start};

use crate::claim::Claim;
use crate::clock::now_ns;
use crate::stats::Latencies;
use crate::{LEASE_LONG_MS, Verdict};

/// What a holder in a process of its own prints when it holds its lock.
const HOLDS: &str = "holds";

/// Time from the holder's end to the waiter's ACQUIRED: closed, reset, killed.
#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// Rounds for each way to go.
    #[arg(long, default_value_t = 200, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    rounds: u32,
    /// Shards of the server.
    #[arg(long, default_value_t = 1)]
    shards: usize,
}

/// The holder of a round, as a process that can be killed.
#[derive(Debug, clap::Args)]
pub(crate) struct HoldOptions {
    #[arg(long)]
    address: SocketAddr,
    #[arg(long)]
    name: String,
}

/// Measures and prints.
pub(crate) fn run(options: &Options, program: &Path) -> Result<Verdict> {
    let mut server = Server::start(&Start::new(program, options.shards))?;
    println!("{} rounds, from just before the holder's end to the waiter's ACQUIRED", options.rounds);
    for how in [Way::Closed, Way::Reset, Way::Killed] {
        let mut latencies = Latencies::new();
        for round in 0..options.rounds {
            let name = LockName::new(&format!("handover-{how:?}-{round}")).expect("a short name");
            let ns = one_round(&server, how, name).with_context(|| format!("{how:?}, round {round}"))?;
            latencies.record(ns);
        }
        println!("{:<7} {latencies}", format!("{how:?}"));
        server.check_alive()?;
    }
    Ok(Verdict::Met)
}

#[derive(Debug, Clone, Copy)]
enum Way {
    Closed,
    Reset,
    Killed,
}

/// Nanoseconds from the holder's end to the waiter's ACQUIRED.
fn one_round(server: &Server, how: Way, name: LockName) -> Result<u64> {
    let address = server.address();
    let lease = Lease::from_ms(LEASE_LONG_MS).expect("a positive constant");
    let holder = Holder::start(address, how, name.clone(), lease)?;
    let mut waiter = Claim::queue(address, name, lease)?;
    let start_ns = now_ns();
    match holder {
        Holder::Here(claim) if matches!(how, Way::Reset) => claim.reset()?,
        Holder::Here(claim) => drop(claim),
        // Only the signal: the wait for the process's end must not be in the figure.
        Holder::Process(ref child) => child.signal()?,
    }
    waiter.expect_acquired()?;
    Ok(now_ns() - start_ns)
}

enum Holder {
    Here(Claim),
    Process(HoldProcess),
}

impl Holder {
    fn start(address: SocketAddr, how: Way, name: LockName, lease: Lease) -> Result<Self> {
        Ok(match how {
            Way::Closed | Way::Reset => Self::Here(Claim::hold(address, name, lease)?),
            Way::Killed => Self::Process(HoldProcess::start(address, &name)?),
        })
    }
}

/// This tool once more, holding a lock; ended when dropped.
struct HoldProcess(Child);

impl HoldProcess {
    fn start(address: SocketAddr, name: &LockName) -> Result<Self> {
        let mut command = process::tied(&env::current_exe()?, None)?;
        command.args(["hold", "--address", &address.to_string(), "--name", name.as_str()]);
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut process = Self(command.spawn().context("starting a holder")?);
        let line = process::first_line(&mut process.0)?;
        ensure!(line.trim() == HOLDS, "the holder said {line:?}");
        Ok(process)
    }

    fn signal(&self) -> Result<()> {
        let pid = rustix::process::Pid::from_child(&self.0);
        rustix::process::kill_process(pid, rustix::process::Signal::KILL).context("killing the holder")
    }
}

impl Drop for HoldProcess {
    fn drop(&mut self) {
        process::end(&mut self.0);
    }
}

/// Holds a lock until this process is killed or its standard input ends.
pub(crate) fn hold(options: &HoldOptions) -> Result<Verdict> {
    let name = LockName::new(&options.name).ok().context("no lock name")?;
    let lease = Lease::from_ms(LEASE_LONG_MS).expect("a positive constant");
    let _claim = Claim::hold(options.address, name, lease)?;
    println!("{HOLDS}");
    io::stdout().flush()?;
    io::stdin().read_to_end(&mut Vec::new())?;
    Ok(Verdict::Met)
}
