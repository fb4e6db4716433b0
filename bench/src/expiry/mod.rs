//! How late a silent holder's lock moves on; it must never be early.
//!
//! First on a quiet server, one lock after the other; then beside clients that flood the one shard that the
//! locks are on.

mod flooded;
mod pairs;

use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use protocol::{Lease, LockName};
use testkit::process::{self, Server, Start};

use crate::claim::Claim;
use crate::clock::now_ns;
use crate::cpus;
use crate::stats::Latencies;
use crate::usage::{CpuTime, pinned_cpus};
use crate::{LEASE_LONG_MS, Verdict};
use pairs::Lateness;

/// Lateness of the waiter's ACQUIRED after a silent holder's lease.
#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// The holder's lease, on the quiet server.
    #[arg(long, default_value = "200ms", value_parser = crate::clock::parse_duration)]
    lease: Duration,
    /// Rounds on the quiet server.
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    rounds: u32,
    /// Sessions that then flood the shard, one phase for each number.
    #[arg(long, value_delimiter = ',', default_values_t = [3, 40, 200, 1000])]
    flooders: Vec<usize>,
    /// Length of each phase.
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..=600))]
    seconds: u32,
    /// Leases that are over at one moment beside a flood, in phases of their own.
    #[arg(long, default_value_t = 5000, value_parser = clap::value_parser!(u32).range(1..=8000))]
    at_once: u32,
    /// Fails when a hundredth of the locks of a flood are later than this. Not where leases are over at once:
    /// there a shard's one core sends thousands of grants, some 14 µs each, and the last ones wait for the
    /// first.
    #[arg(long, default_value_t = 20.0)]
    max_p99_ms: f64,
    /// Fails when any lock is later than this.
    #[arg(long, default_value_t = 100.0)]
    max_ms: f64,
}

/// What lateness is no fault.
#[derive(Debug, Clone, Copy)]
struct Limits {
    p99_ms: f64,
    max_ms: f64,
}

/// Measures and prints.
pub(crate) fn run(options: &Options, program: &Path) -> Result<Verdict> {
    let Some(lease) = Lease::from_duration(options.lease) else { bail!("--lease 0ms is no lease") };
    process::raise_nofile()?;
    let mut server = Server::start(&Start::new(program, 1))?;
    // The clients leave the shard its CPU, as if they were on other machines.
    cpus::pin_away_from(&pinned_cpus(server.pid())?)?;
    let mut faults = quiet(&mut server, lease, options.rounds)?;
    println!(
        "beside floods, on one shard: lateness in ms, from the end of the lease to the waiter's ACQUIRED"
    );
    println!(
        "{:<44} {:>6} {:>6} {:>6} {:>6} {:>5} {:>9}",
        "", "locks", "p50", "p99", "max", "early", "starved %"
    );
    let address = server.address();
    let steady = |flood| move || flooded::steady(address, flood, options.seconds);
    let crowd = usize::try_from(options.at_once)?;
    let of_floods = Limits { p99_ms: options.max_p99_ms, max_ms: options.max_ms };
    let of_crowds = Limits { p99_ms: f64::INFINITY, ..of_floods };
    let mut phase = |name: String, limits: Limits, measure: &dyn Fn() -> Result<(Lateness, String)>| {
        faults.extend(one_phase(&mut server, limits, &name, measure)?);
        anyhow::Ok(())
    };
    for &sessions in &options.flooders {
        let flood = flooded::flood_of(sessions, flooded::LEASE_OF_FLOODS_MS);
        phase(format!("{sessions} sessions flood"), of_floods, &steady(flood))?;
    }
    let late_themselves = flooded::flood_of(40, flooded::LEASE_SHORT_MS);
    phase(
        format!("40 flood with leases of {} ms", flooded::LEASE_SHORT_MS),
        of_floods,
        &steady(late_themselves),
    )?;
    for sessions in [0].into_iter().chain(options.flooders.iter().copied()) {
        let flood = flooded::flood_of(sessions, flooded::LEASE_OF_FLOODS_MS);
        let name = format!("{crowd} leases over at once, {sessions} sessions flood");
        phase(name, of_crowds, &|| flooded::at_once(address, flood, crowd))?;
    }
    Ok(if faults.is_empty() { Verdict::Met } else { Verdict::Missed(faults.join("; ")) })
}

/// One lock after the other on a quiet server. What is not as it has to be.
fn quiet(server: &mut Server, lease: Lease, rounds: u32) -> Result<Vec<String>> {
    println!("{rounds} rounds with a lease of {lease}, counted from the send of the holder's last heartbeat");
    let mut lateness = Latencies::new();
    let mut early = 0_u32;
    for round in 0..rounds {
        let took_ns = one_round(server.address(), lease, round).with_context(|| format!("round {round}"))?;
        match took_ns.checked_sub(lease.as_ns()) {
            Some(late_ns) => lateness.record(late_ns),
            None => early += 1,
        }
        server.check_alive()?;
    }
    println!("lateness {lateness}, early {early}");
    Ok((early > 0)
        .then(|| format!("{early} grants before the holder's lease was over"))
        .into_iter()
        .collect())
}

/// Runs a phase and prints its line. What is not as it has to be.
fn one_phase(
    server: &mut Server,
    limits: Limits,
    name: &str,
    measure: &dyn Fn() -> Result<(Lateness, String)>,
) -> Result<Option<String>> {
    let (before, start_ns) = (CpuTime::of(server.pid())?, now_ns());
    let (lateness, story) = measure().with_context(|| name.to_owned())?;
    let starved_ns = CpuTime::of(server.pid())?.since(&before).wait_ns;
    server.check_alive()?;
    let Lateness { latencies, early, too_slow } = lateness;
    ensure!(latencies.len() > 0, "{name}: nothing was measured, {too_slow} waiters came too late");
    let [p50, p99, max] = [0.5, 0.99, 1.0].map(|share| latencies.quantile_us(share) / 1e3);
    let starved = starved_ns as f64 * 100.0 / (now_ns() - start_ns) as f64;
    println!(
        "{name:<44} {:>6} {p50:>6.1} {p99:>6.1} {max:>6.1} {early:>5} {starved:>9.1}  {story}",
        latencies.len()
    );
    let missed = early > 0 || p99 > limits.p99_ms || max > limits.max_ms;
    Ok(missed.then(|| format!("{name}: p99 {p99:.1} ms, max {max:.1} ms, {early} early")))
}

/// Nanoseconds from the send of the holder's last heartbeat to the waiter's ACQUIRED. The server heard the
/// heartbeat a moment after its send, so the real lateness is that moment smaller, and an early grant is
/// early beyond doubt.
fn one_round(server: SocketAddr, lease: Lease, round: u32) -> Result<u64> {
    let name = LockName::new(&format!("expiry-{round}")).expect("a short name");
    let patient = Lease::from_ms(LEASE_LONG_MS).expect("a positive constant");
    let mut holder = Claim::hold(server, name.clone(), lease)?;
    let mut waiter = Claim::queue(server, name, patient)?;
    let sent_ns = now_ns();
    holder.send_heartbeat()?;
    holder.expect_acquired()?;
    waiter.wait_at_most(Duration::from_nanos(lease.as_ns()) + crate::load::ANSWER_MAX)?;
    waiter.expect_acquired()?;
    Ok(now_ns() - sent_ns)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::net::{TcpListener, TcpStream};
    use std::thread;

    use protocol::{Token, WAITING, acquired};

    fn answer(socket: &mut TcpStream, answer: &[u8]) {
        let len = socket.read(&mut [0; 512]).unwrap();
        assert!(len > 0, "the client left");
        socket.write_all(answer).unwrap();
    }

    #[test]
    fn a_server_that_grants_at_once_is_early() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let server = thread::spawn(move || {
            let (mut holder, _) = listener.accept().unwrap();
            answer(&mut holder, &acquired(Token(1)));
            let (mut waiter, _) = listener.accept().unwrap();
            answer(&mut waiter, &WAITING);
            answer(&mut holder, &acquired(Token(1)));
            waiter.write_all(&acquired(Token(2))).unwrap();
        });
        // So long that no machine is slow enough to make the grant look late.
        let lease = Lease::from_ms(LEASE_LONG_MS).unwrap();
        let took_ns = one_round(address, lease, 0).unwrap();
        server.join().unwrap();
        assert!(took_ns < lease.as_ns());
    }
}
