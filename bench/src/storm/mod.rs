//! A storm of TLS handshakes, as after a failover, and what sessions that are there already feel of it.
//!
//! The storm comes from a child process at the lowest priority: a client's share of a handshake costs as much
//! as the server's, and on one machine it must take neither the server's CPU time nor the witnesses'.

mod clients;

use std::path::Path;
use std::time::Duration;

use anyhow::{Result, ensure};
use testkit::process::{self, Server, Start};

use crate::Verdict;
use crate::clock::{NS_PER_S, now_ns};
use crate::stats::Latencies;
use crate::tls::Certificates;
use crate::usage::CpuTime;
use crate::witnesses::{Felt, Rhythm, Witnesses};
pub(crate) use clients::{Options as ClientOptions, run as run_clients};
use clients::{Storm, Weathered};

/// Latencies of TLS sessions before, during and after a storm of handshakes.
#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// Length of each phase.
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..=600))]
    seconds: u32,
    /// Sessions that are there before the storm.
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=5000))]
    sessions: u32,
    /// Between two heartbeats of each of them.
    #[arg(long, default_value = "100ms", value_parser = crate::clock::parse_duration)]
    interval: Duration,
    /// Threads of the storm, each with one handshake at a time.
    #[arg(long, default_value_t = 16, value_parser = clap::value_parser!(u32).range(0..=1000))]
    threads: u32,
    /// Connections that send half a ClientHello and stay; as many again whenever the server closes some.
    #[arg(long, default_value_t = 0, value_parser = clap::value_parser!(u32).range(0..=100_000))]
    half_open: u32,
    /// Clients have certificates too.
    #[arg(long)]
    mutual: bool,
    /// Shards of the server. One leaves a CPU to the intake and to the storm.
    #[arg(long, default_value_t = 1)]
    shards: usize,
    /// Fails when the p99 of the witnesses grows by more in the storm.
    #[arg(long)]
    max_ms: Option<f64>,
}

/// Measures and prints.
pub(crate) fn run(options: &Options, program: &Path) -> Result<Verdict> {
    let limit = process::raise_nofile()?;
    ensure!(
        u64::from(options.half_open + options.threads + options.sessions) + 100 <= limit,
        "so many connections need more than the {limit} open files that are allowed"
    );
    let rhythm = Rhythm { sessions: options.sessions, interval: options.interval };
    println!(
        "{} TLS sessions, a heartbeat every {:?} each; the storm: {} threads at nice {}, a full handshake ({}), an \
         ACQUIRE and a close at a time; {} half-open connections",
        rhythm.sessions,
        rhythm.interval,
        options.threads,
        clients::NICE,
        if options.mutual { "mutual, ECDSA P-256" } else { "ECDSA P-256" },
        options.half_open
    );
    let certificates = Certificates::make(options.mutual)?;
    let start = Start { flags: certificates.server_flags(), ..Start::new(program, options.shards) };
    let mut server = Server::start(&start)?;
    let mut witnesses = Witnesses::join(server.address(), Some(certificates.dialer()?), rhythm)?;
    println!(
        "{:<8} {:>7}  latency µs: {:>6} {:>7} {:>7} {:>8} {:>8} {:>7} {:>9}",
        "phase", "beats", "p50", "p99", "max", "overdue", "own late", "core %", "starved %"
    );
    let before = phase("before", options.seconds, &mut server, &mut witnesses)?;
    let storm = Storm::start(server.address(), &certificates, options)?;
    let during = phase("storm", options.seconds, &mut server, &mut witnesses)?;
    let weathered = storm.end()?;
    phase("after", options.seconds, &mut server, &mut witnesses)?;
    println!("storm: {weathered}");
    let grown = |figure: fn(&Latencies) -> f64| figure(&during) - figure(&before);
    let p99_us = grown(|latencies| latencies.quantile_us(0.99));
    println!(
        "grown by the storm, µs: p50 {:+.0}  p99 {p99_us:+.0}  max {:+.0}",
        grown(|latencies| latencies.quantile_us(0.5)),
        grown(Latencies::max_us)
    );
    Ok(verdict(options, p99_us / 1e3, &weathered, &witnesses.ended))
}

/// Runs one phase, prints its line, and returns the latencies of its heartbeats.
fn phase(name: &str, seconds: u32, server: &mut Server, witnesses: &mut Witnesses) -> Result<Latencies> {
    let before = CpuTime::of(server.pid())?;
    let start_ns = now_ns();
    let end_ns = start_ns + u64::from(seconds) * NS_PER_S;
    witnesses.watch(|now| now >= end_ns)?;
    let elapsed_ns = now_ns() - start_ns;
    let used = CpuTime::of(server.pid())?.since(&before);
    server.check_alive()?;
    let [core, starved] = [used.run_ns, used.wait_ns].map(|ns| ns as f64 * 100.0 / elapsed_ns as f64);
    let Felt { latencies, overdue, own_late_us } = witnesses.take_felt();
    ensure!(latencies.len() > 0, "no heartbeat was answered");
    let [p50, p99] = [0.5, 0.99].map(|share| latencies.quantile_us(share));
    println!(
        "{name:<8} {:>7}              {p50:>6.0} {p99:>7.0} {:>7.0} {overdue:>8} {own_late_us:>8} {core:>7.1} {starved:>9.1}",
        latencies.len(),
        latencies.max_us()
    );
    Ok(latencies)
}

fn verdict(options: &Options, p99_grown_ms: f64, storm: &Weathered, ended: &[String]) -> Verdict {
    if let Some(first) = ended.first() {
        return Verdict::Missed(format!("{} sessions were closed, session {first}", ended.len()));
    }
    if let Some(failure) = &storm.failure {
        return Verdict::Missed(format!("{} handshakes of the storm failed: {failure}", storm.failed));
    }
    if options.threads > 0 && storm.served == 0 {
        return Verdict::Missed("no handshake of the storm was served".to_owned());
    }
    match options.max_ms {
        Some(max_ms) if p99_grown_ms > max_ms => {
            Verdict::Missed(format!("the p99 grew by {p99_grown_ms:.1} ms, the limit is {max_ms}"))
        }
        _ => Verdict::Met,
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Cli {
        #[command(flatten)]
        options: Options,
    }

    /// Why a run with these figures is not as demanded.
    fn missed(p99_grown_ms: f64, storm: &str, ended: &[&str]) -> Option<String> {
        let options = Cli::parse_from(["storm", "--max-ms", "10"]).options;
        let storm = Weathered::parse(storm).unwrap();
        let ended: Vec<String> = ended.iter().map(|&how| how.to_owned()).collect();
        match verdict(&options, p99_grown_ms, &storm, &ended) {
            Verdict::Met => None,
            Verdict::Missed(why) => Some(why),
        }
    }

    #[test]
    fn a_storm_is_weathered_when_all_of_it_was_served_and_nobody_felt_it() {
        let served = "1000 500 0 0 0 ";
        assert_eq!(missed(10.0, served, &[]), None);
        assert!(missed(10.1, served, &[]).unwrap().contains("10.1 ms"));
        assert!(missed(0.0, served, &["7: reset by the server"]).unwrap().contains("session 7: reset"));
        assert!(
            missed(0.0, "1000 500 3 0 0 the handshake: eof", &[]).unwrap().contains("the handshake: eof")
        );
        assert!(missed(0.0, "1000 0 0 0 0 ", &[]).unwrap().contains("no handshake"));
    }
}
