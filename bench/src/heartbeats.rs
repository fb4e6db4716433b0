//! What a heartbeat costs: the server against the floor, in alternating slices of one run.

use std::fmt;
use std::path::Path;
use std::str::FromStr;

use anyhow::{Context, Result, bail, ensure};
use protocol::Lease;
use testkit::process::{self, Server, Start};

use crate::clock::{NS_PER_S, as_ns, now_ns};
use crate::load::{ANSWER_MAX, Fleet, Happened, Sent, What};
use crate::stats::{Latencies, Spread};
use crate::usage::{CpuTime, pinned_cpus};
use crate::{LEASE_LONG_MS, Verdict, cpus, floor, numbered_name};

/// Descriptors of this process besides the connections.
const DESCRIPTORS_OTHER: u64 = 100;

/// CPU, rate and latency of heartbeats, as a ratio to the floor.
#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// Connections to each of the two, all open all the time.
    #[arg(long, default_value_t = 1000, value_parser = clap::value_parser!(u32).range(1..))]
    connections: u32,
    /// Pairs of slices.
    #[arg(long, default_value_t = 9, value_parser = clap::value_parser!(u32).range(1..=1000))]
    slices: u32,
    /// Length of a slice in seconds.
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..=600))]
    slice_seconds: u32,
    /// `closed` (each connection always has one heartbeat in flight) or heartbeats a second over all
    /// connections.
    #[arg(long, default_value = "closed", value_name = "closed|N/s")]
    rate: Pace,
    /// Shards of the server.
    #[arg(long, default_value_t = 1)]
    shards: usize,
    /// Fails when the median ratio of CPU a heartbeat is above this.
    #[arg(long)]
    max_ratio: Option<f64>,
}

/// How heartbeats follow each other.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Pace {
    /// The next one as soon as the last one is answered, on every connection.
    Closed,
    /// At random moments (clients are independent of each other), this many a second.
    PerSecond(f64),
}

impl fmt::Display for Pace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Closed => f.write_str("closed loop"),
            Self::PerSecond(rate) => write!(f, "{rate} heartbeats/s"),
        }
    }
}

impl FromStr for Pace {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text.eq_ignore_ascii_case("closed") {
            return Ok(Self::Closed);
        }
        let number = text.strip_suffix("/s").unwrap_or(text);
        match number.parse() {
            Ok(rate) if rate > 0.0 && f64::is_finite(rate) => Ok(Self::PerSecond(rate)),
            _ => Err("write `closed`, or a positive number of heartbeats a second".to_owned()),
        }
    }
}

/// Measures and prints.
pub(crate) fn run(options: &Options, program: &Path) -> Result<Verdict> {
    let connections = usize::try_from(options.connections)?;
    let limit = process::raise_nofile()?;
    let needed = 2 * u64::from(options.connections) + DESCRIPTORS_OTHER;
    ensure!(needed <= limit, "{needed} descriptors are needed, the hard limit of open files is {limit}");

    let server = Server::start(&Start::new(program, options.shards))?;
    let shard_cpus = pinned_cpus(server.pid())?;
    let floor = floor::start(shard_cpus.first().copied())?;
    let own_cpu = cpus::pin_away_from(&shard_cpus)?;
    let mut targets =
        [Target::join("server", server, connections)?, Target::join("floor", floor, connections)?];
    println!(
        "{connections} connections each, {}, shards on CPUs {shard_cpus:?}, load on CPU {own_cpu:?}",
        options.rate
    );
    println!(
        "{:>5} {:<7} {:>9} {:>7} {:>9} {:>7} {:>9}  latency µs: {:>6} {:>7} {:>7} {:>7}",
        "slice", "target", "CPU µs/hb", "core %", "starved %", "load %", "hb/s", "p50", "p99", "p99.9", "max"
    );
    let mut slices = [Vec::new(), Vec::new()];
    for slice in 0..options.slices {
        let order = if slice % 2 == 0 { [0, 1] } else { [1, 0] };
        for which in order {
            let measured = targets[which].measure(options.rate, options.slice_seconds)?;
            measured.print(slice, targets[which].name);
            slices[which].push(measured);
        }
    }
    summarise(&slices, options.max_ratio)
}

fn summarise([server, floor]: &[Vec<Slice>; 2], max_ratio: Option<f64>) -> Result<Verdict> {
    let ratios = |figure: fn(&Slice) -> f64| {
        let each: Vec<_> =
            server.iter().zip(floor).map(|(server, floor)| figure(server) / figure(floor)).collect();
        Spread::of(&each).context("no slices")
    };
    let cpu = ratios(Slice::cpu_us)?;
    println!("server / floor, CPU a heartbeat: {cpu}");
    println!("server / floor, rate:            {}", ratios(|slice| slice.rate)?);
    println!("server / floor, p50 latency:     {}", ratios(|slice| slice.latencies.quantile_us(0.5))?);
    println!("server / floor, p99 latency:     {}", ratios(|slice| slice.latencies.quantile_us(0.99))?);
    for (name, slices) in [("server", server), ("floor", floor)] {
        let cores: Vec<_> = slices.iter().map(|slice| slice.core_share * 100.0).collect();
        println!("{name:<6} % of a core: {:.1}", Spread::of(&cores).context("no slices")?);
    }
    Ok(match max_ratio {
        Some(max) if cpu.median > max => {
            Verdict::Missed(format!("median CPU ratio {:.3} is above {max}", cpu.median))
        }
        _ => Verdict::Met,
    })
}

/// A process under measurement with its connections.
struct Target {
    name: &'static str,
    server: Server,
    fleet: Fleet,
    random: fastrand::Rng,
}

impl Target {
    fn join(name: &'static str, server: Server, connections: usize) -> Result<Self> {
        let mut fleet = Fleet::new(server.address())?;
        let lease = Lease::from_ms(LEASE_LONG_MS).expect("a positive constant");
        let joined = fleet.join_all(connections, lease, |n| numbered_name("heartbeats", n));
        joined.with_context(|| format!("connecting to the {name}"))?;
        // Both targets get the same moments.
        Ok(Self { name, server, fleet, random: fastrand::Rng::with_seed(1) })
    }

    fn measure(&mut self, pace: Pace, seconds: u32) -> Result<Slice> {
        self.server.check_alive()?;
        let before = CpuTime::of(self.server.pid())?;
        let load_before = CpuTime::of(std::process::id())?;
        let start_ns = now_ns();
        let driven = drive(&mut self.fleet, pace, u64::from(seconds) * NS_PER_S, &mut self.random)?;
        let elapsed_ns = now_ns() - start_ns;
        let used = CpuTime::of(self.server.pid())?.since(&before);
        let load_ns = CpuTime::of(std::process::id())?.since(&load_before).run_ns;
        let latencies = driven.latencies;
        ensure!(latencies.len() > 0, "no heartbeat was answered");
        Ok(Slice {
            cpu_ns: used.run_ns,
            core_share: used.run_ns as f64 / elapsed_ns as f64,
            starved_share: used.wait_ns as f64 / elapsed_ns as f64,
            load_share: load_ns as f64 / elapsed_ns as f64,
            rate: latencies.len() as f64 * 1e9 / elapsed_ns as f64,
            latencies,
            skipped: driven.skipped,
        })
    }
}

struct Slice {
    cpu_ns: u64,
    core_share: f64,
    /// How long threads of the target were ready but had no CPU.
    starved_share: f64,
    /// Share of a core that this tool itself took: in a closed loop, either side near 100% is the bottleneck,
    /// and neither means that something else has the CPUs.
    load_share: f64,
    rate: f64,
    latencies: Latencies,
    skipped: u64,
}

impl Slice {
    fn cpu_us(&self) -> f64 {
        self.cpu_ns as f64 / 1e3 / self.latencies.len() as f64
    }

    fn print(&self, slice: u32, name: &str) {
        let [p50, p99, p999] = [0.5, 0.99, 0.999].map(|share| self.latencies.quantile_us(share));
        let (cpu, max) = (self.cpu_us(), self.latencies.max_us());
        let [core, starved, load] =
            [self.core_share, self.starved_share, self.load_share].map(|share| share * 100.0);
        print!("{slice:>5} {name:<7} {cpu:>9.2} {core:>7.1} {starved:>9.1} {load:>7.1} {:>9.0}", self.rate);
        print!("              {p50:>6.0} {p99:>7.0} {p999:>7.0} {max:>7.0}");
        println!(
            "{}",
            if self.skipped > 0 { format!("  ({} not sent: busy)", self.skipped) } else { String::new() }
        );
    }
}

/// What a slice's load was.
struct Driven {
    latencies: Latencies,
    /// Heartbeats that were due while every connection that was tried had one in flight.
    skipped: u64,
}

/// Sends heartbeats for `length_ns` and waits for the last answers.
fn drive(fleet: &mut Fleet, pace: Pace, length_ns: u64, random: &mut fastrand::Rng) -> Result<Driven> {
    let mut driven = Driven { latencies: Latencies::new(), skipped: 0 };
    let mut happened = Vec::with_capacity(fleet.len());
    let end_ns = now_ns() + length_ns;
    match pace {
        Pace::Closed => {
            for index in 0..fleet.len() {
                fleet.heartbeat(index)?;
            }
            while now_ns() < end_ns {
                fleet.poll(end_ns.saturating_sub(now_ns()), &mut happened)?;
                record(&happened, &mut driven.latencies)?;
                for Happened { index, .. } in &happened {
                    fleet.heartbeat(*index)?;
                }
            }
        }
        Pace::PerSecond(rate) => {
            let mut due = Due::new(rate, random);
            let mut next = 0;
            while now_ns() < end_ns {
                while due.is_over(now_ns()) {
                    driven.skipped += u64::from(!send_on_a_free_one(fleet, &mut next)?);
                }
                fleet.poll(due.next_ns.min(end_ns).saturating_sub(now_ns()), &mut happened)?;
                record(&happened, &mut driven.latencies)?;
            }
        }
    }
    let give_up_ns = now_ns() + as_ns(ANSWER_MAX);
    while fleet.in_flight() > 0 {
        ensure!(now_ns() < give_up_ns, "{} heartbeats have no answer", fleet.in_flight());
        fleet.poll(give_up_ns.saturating_sub(now_ns()), &mut happened)?;
        record(&happened, &mut driven.latencies)?;
    }
    Ok(driven)
}

fn record(happened: &[Happened], latencies: &mut Latencies) -> Result<()> {
    for Happened { index, what, .. } in happened {
        match what {
            What::Beat { rtt_ns } => latencies.record(*rtt_ns),
            What::Ended(end) => bail!("session {index}: {end}"),
            What::Queued | What::Granted(_) => bail!("session {index}: answered although it has not asked"),
        }
    }
    Ok(())
}

/// Sends on the next connection in turn that is free; gives up after a few.
fn send_on_a_free_one(fleet: &mut Fleet, next: &mut usize) -> Result<bool> {
    const TRIES_MAX: usize = 16;
    for _ in 0..TRIES_MAX {
        *next = (*next + 1) % fleet.len();
        match fleet.heartbeat(*next)? {
            Sent::Yes => return Ok(true),
            Sent::Busy => {}
            Sent::Gone => bail!("session {next} is over"),
        }
    }
    Ok(false)
}

/// Moments at random with a mean rate.
struct Due<'a> {
    mean_gap_ns: f64,
    next_ns: u64,
    random: &'a mut fastrand::Rng,
}

impl<'a> Due<'a> {
    fn new(rate: f64, random: &'a mut fastrand::Rng) -> Self {
        Self { mean_gap_ns: NS_PER_S as f64 / rate, next_ns: now_ns(), random }
    }

    /// Whether the next moment is over; then the one after it is next.
    fn is_over(&mut self, now: u64) -> bool {
        let is_over = self.next_ns <= now;
        if is_over {
            let gap_ns = -self.mean_gap_ns * (1.0 - self.random.f64()).ln();
            self.next_ns += gap_ns as u64;
        }
        is_over
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::floor;
    use std::thread;
    use std::time::Duration;

    /// Long enough for any of these tests; the thread then ends by itself.
    const FLOOR_TIME: Duration = Duration::from_secs(60);
    const SLICE_NS: u64 = NS_PER_S / 5;

    fn fleet_at_a_floor(connections: usize) -> Fleet {
        let listener = floor::listen(([127, 0, 0, 1], 0).into()).unwrap();
        let address = listener.local_addr().unwrap();
        thread::spawn(move || floor::serve(&listener, FLOOR_TIME).unwrap());
        let mut fleet = Fleet::new(address).unwrap();
        let lease = Lease::from_ms(LEASE_LONG_MS).unwrap();
        fleet.join_all(connections, lease, |n| numbered_name("test", n)).unwrap();
        fleet
    }

    #[test]
    fn a_closed_loop_keeps_every_connection_busy_and_ends_with_none_in_flight() {
        let mut fleet = fleet_at_a_floor(50);
        let driven = drive(&mut fleet, Pace::Closed, SLICE_NS, &mut fastrand::Rng::with_seed(1)).unwrap();
        assert!(driven.latencies.len() > 50, "{} heartbeats", driven.latencies.len());
        assert_eq!((fleet.in_flight(), driven.skipped), (0, 0));
    }

    #[test]
    fn an_open_rate_is_kept() {
        let mut fleet = fleet_at_a_floor(200);
        let seed =
            std::env::var("MONOLOCK_TEST_SEED").map_or_else(|_| fastrand::u64(..), |s| s.parse().unwrap());
        println!("MONOLOCK_TEST_SEED={seed}");
        let rate = Pace::PerSecond(2000.0);
        let driven = drive(&mut fleet, rate, SLICE_NS, &mut fastrand::Rng::with_seed(seed)).unwrap();
        // 400 on average with a deviation of 20.
        let sent = driven.latencies.len() + driven.skipped;
        assert!((250..550).contains(&sent), "{sent} heartbeats in a fifth of a second at 2000/s");
    }

    #[test]
    fn a_rate_is_closed_or_a_positive_number() {
        assert_eq!("CLOSED".parse(), Ok(Pace::Closed));
        assert_eq!("4000".parse(), Ok(Pace::PerSecond(4000.0)));
        assert_eq!("4000/s".parse(), Ok(Pace::PerSecond(4000.0)));
        for wrong in ["", "0", "-1", "fast", "inf", "NaN"] {
            assert!(wrong.parse::<Pace>().is_err(), "{wrong:?}");
        }
    }
}
