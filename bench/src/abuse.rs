//! Well-behaved sessions beside clients that misbehave: what the one kind feels of the other.
//!
//! "own late" is how late this tool's own heartbeats went out at worst, in µs, and "starved %" how long the
//! server's threads were ready but had no CPU: where these are large, the latencies are the machine's.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use protocol::Lease;
use testkit::process::{self, Server, Start};

use crate::attack::{self, Attack, Floods};
use crate::claim::Claim;
use crate::clock::{NS_PER_S, as_ns, now_ns};
use crate::usage::{CpuTime, anonymous_bytes};
use crate::witnesses::{Felt, LEASE_MS, Rhythm, Witnesses};
use crate::{Verdict, numbered_name};

/// Sessions that behave, and how often each sends a heartbeat.
const WELL_BEHAVED: Rhythm = Rhythm { sessions: 20, interval: Duration::from_millis(50) };

/// Few, so that each gets far ahead.
const FLOODS: Floods = Floods { sessions: 16, lease_ms: attack::LEASE_MS, half_are_deaf: true };

/// An attack that has not ended this long after it was told to is an error of this tool.
const ATTACK_OVERTIME_MAX: Duration = Duration::from_secs(60);

/// How long the server may take to serve a newcomer after an attack.
const RECOVERY_MAX: Duration = Duration::from_secs(10);

/// Random bytes, floods and descriptor exhaustion beside well-behaved sessions.
#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// Length of each phase.
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..=600))]
    seconds: u32,
    /// Hard limit of open files that the server gets, to be exhausted.
    #[arg(long, default_value_t = 1024, value_parser = clap::value_parser!(u32).range(128..=16_384))]
    nofile: u32,
    /// Fails when a well-behaved heartbeat takes this long.
    #[arg(long, default_value_t = 50.0)]
    max_ms: f64,
    /// Shards of the server. One leaves a CPU to the attackers, which in truth sit on other machines.
    #[arg(long, default_value_t = 1)]
    shards: usize,
    /// Makes the random bytes the same again.
    #[arg(long)]
    seed: Option<u64>,
}

/// Measures and prints.
pub(crate) fn run(options: &Options, program: &Path) -> Result<Verdict> {
    let limit = process::raise_nofile()?;
    ensure!(
        u64::from(options.nofile + WELL_BEHAVED.sessions) + attack::BEYOND_LIMIT as u64 + 100 <= limit,
        "--nofile {} is too near to this process's own limit of {limit}",
        options.nofile
    );
    let seed = options.seed.unwrap_or_else(|| fastrand::u64(..));
    let Rhythm { sessions, interval } = WELL_BEHAVED;
    println!("{sessions} sessions, a heartbeat every {interval:?} each; --seed {seed}");
    let start = Start { nofile: Some(u64::from(options.nofile)), ..Start::new(program, options.shards) };
    let mut server = Server::start(&start)?;
    let mut witnesses = Witnesses::join(server.address(), None, WELL_BEHAVED)?;
    println!(
        "{:<16} {:>6}  latency µs: {:>6} {:>7} {:>7} {:>8} {:>8} {:>7} {:>9} {:>8} {:>9}  what happened",
        "phase",
        "beats",
        "p50",
        "p99",
        "max",
        "overdue",
        "own late",
        "core %",
        "starved %",
        "memory",
        "newcomer"
    );
    let phases = [
        ("quiet", Attack::None),
        ("random bytes", Attack::RandomBytes { seed }),
        ("floods", Attack::Floods(FLOODS)),
        ("descriptors", Attack::Descriptors { limit: options.nofile as usize }),
        ("quiet again", Attack::None),
    ];
    let mut worst_ms: f64 = 0.0;
    for (name, attack) in phases {
        worst_ms = worst_ms.max(phase(name, attack, options.seconds, &mut server, &mut witnesses)?);
    }
    for ended in &witnesses.ended {
        println!("FAULT well-behaved session {ended}");
    }
    Ok(if !witnesses.ended.is_empty() {
        Verdict::Missed(format!("{} well-behaved sessions were closed", witnesses.ended.len()))
    } else if worst_ms >= options.max_ms {
        Verdict::Missed(format!(
            "a well-behaved heartbeat took {worst_ms:.1} ms, the limit is {}",
            options.max_ms
        ))
    } else {
        Verdict::Met
    })
}

/// Runs one phase and prints its line; returns the worst latency in ms.
fn phase(
    name: &str,
    attack: Attack,
    seconds: u32,
    server: &mut Server,
    witnesses: &mut Witnesses,
) -> Result<f64> {
    let address = server.address();
    let before = CpuTime::of(server.pid())?;
    let start_ns = now_ns();
    let end_ns = start_ns + u64::from(seconds) * NS_PER_S;
    let stop = AtomicBool::new(false);
    let story = thread::scope(|scope| {
        let attacker = scope.spawn(|| attack.run(address, &stop));
        let give_up_ns = end_ns + as_ns(ATTACK_OVERTIME_MAX);
        let watched = witnesses.watch(|now| {
            stop.store(now >= end_ns, Ordering::Relaxed);
            (now >= end_ns && attacker.is_finished()) || now >= give_up_ns
        });
        stop.store(true, Ordering::Relaxed);
        let story = attacker.join().expect("an attacker does not panic");
        watched.and(story)
    })
    .with_context(|| name.to_owned())?;
    let elapsed_ns = now_ns() - start_ns;
    let used = CpuTime::of(server.pid())?.since(&before);
    let [core, starved] = [used.run_ns, used.wait_ns].map(|ns| ns as f64 * 100.0 / elapsed_ns as f64);
    server.check_alive()?;
    let mebibytes = anonymous_bytes(server.pid())? >> 20;
    let newcomer = serve_newcomer(address).with_context(|| format!("after {name}"))?;
    let Felt { latencies, overdue, own_late_us } = witnesses.take_felt();
    let [p50, p99] = [0.5, 0.99].map(|share| latencies.quantile_us(share));
    let (beats, max) = (latencies.len(), latencies.max_us());
    println!(
        "{name:<16} {beats:>6}              {p50:>6.0} {p99:>7.0} {max:>7.0} {overdue:>8} {own_late_us:>8} {core:>7.1} {starved:>9.1} {mebibytes:>4} MiB {:>6.1} ms  {story}",
        newcomer.as_secs_f64() * 1e3
    );
    ensure!(beats > 0, "no heartbeat was answered");
    Ok(max / 1e3)
}

/// How long a newcomer takes from its connect to its lock.
fn serve_newcomer(server: SocketAddr) -> Result<Duration> {
    let start_ns = now_ns();
    let lease = Lease::from_ms(LEASE_MS).expect("a positive constant");
    let mut claim = Claim::send(server, numbered_name("newcomer", usize::try_from(start_ns)?), lease)?;
    claim.wait_at_most(RECOVERY_MAX)?;
    claim.expect_acquired().context("a newcomer on a free lock")?;
    Ok(Duration::from_nanos(now_ns() - start_ns))
}
