//! The simulation's command line: many seeds, or one again.

use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use clap::Parser;
use sim::{Figures, Outcome, Sabotage, Tracing, run};

/// Lines of the trace that a failure prints.
const TRACE_LINES: usize = 120;

/// Runs real lock tables and real claims against each other in virtual time.
#[derive(Debug, Parser)]
struct Arguments {
    /// Run this one seed
    #[arg(long, conflicts_with_all = ["seeds", "minutes"])]
    seed: Option<u64>,
    /// Run so many seeds
    #[arg(long, default_value_t = 200)]
    seeds: u64,
    /// Run seeds for so many minutes instead
    #[arg(long, conflicts_with = "seeds")]
    minutes: Option<u64>,
    /// Begin with this seed
    #[arg(long, default_value_t = 0)]
    first_seed: u64,
    /// Threads; each run stays on one
    #[arg(long, default_value_t = 1)]
    jobs: usize,
    /// Plant a fault
    #[arg(long, value_enum, default_value_t = Sabotage::None)]
    sabotage: Sabotage,
    /// Print everything that happens in the one seed
    #[arg(long, requires = "seed")]
    verbose: bool,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let (figures, failed) = match arguments.seed {
        Some(seed) => {
            let tracing = if arguments.verbose { Tracing::Print } else { Tracing::Off };
            let outcome = run(seed, arguments.sabotage, tracing);
            let failed = outcome.violation.is_some().then_some(seed);
            (outcome.figures, failed)
        }
        None => run_many(&arguments),
    };
    print!("{figures}");
    let Some(seed) = failed else { return ExitCode::SUCCESS };
    let Outcome { violation, end_ns, trace, .. } = run(seed, arguments.sabotage, Tracing::Last(TRACE_LINES));
    println!("\nseed {seed} fails; its last {} lines:", trace.len());
    trace.iter().for_each(|line| println!("{line}"));
    let violation = violation.expect("a seed fails each time");
    println!("\nSIM_SEED={seed} at {:.6} s: {violation}", end_ns as f64 / 1e9);
    ExitCode::FAILURE
}

/// Runs seeds until one fails. The figures of all, and the first seed that failed.
fn run_many(arguments: &Arguments) -> (Figures, Option<u64>) {
    let begun = Instant::now();
    let time_max = arguments.minutes.map(|minutes| Duration::from_secs(60 * minutes));
    let next = AtomicU64::new(arguments.first_seed);
    let stops = AtomicBool::new(false);
    let total = Mutex::new((Figures::default(), None::<u64>));
    let work = || {
        while !stops.load(Ordering::Relaxed) {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            let is_over = match time_max {
                Some(time_max) => begun.elapsed() >= time_max,
                None => seed - arguments.first_seed >= arguments.seeds,
            };
            if is_over {
                return;
            }
            let outcome = run(seed, arguments.sabotage, Tracing::Off);
            let mut total = total.lock().expect("no run panics with it");
            total.0.add(&outcome.figures);
            if outcome.violation.is_some() {
                stops.store(true, Ordering::Relaxed);
                total.1 = Some(total.1.map_or(seed, |first| first.min(seed)));
            }
        }
    };
    std::thread::scope(|scope| (0..arguments.jobs.max(1)).for_each(|_| drop(scope.spawn(work))));
    println!("{:.1} s with {} jobs", begun.elapsed().as_secs_f64(), arguments.jobs.max(1));
    total.into_inner().expect("no run panics with it")
}
