//! `monolock-failover`: runs the lab and prints its table. Root only.

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use anyhow::{Result, ensure};
use clap::Parser;
use failover::lab::{Lab, Plan};
use failover::report::{Figures, HEAD, Run};
use failover::scenarios::{self, Scenario};
use testkit::process::{become_what_was_asked, find_program};

/// Two servers, the real keepalived, and something that fails: how long nobody is served, and whether
/// anything is promised twice.
///
/// It makes network namespaces, so it needs root. They are gone when it has ended.
#[derive(Debug, Parser)]
struct Args {
    /// Each scenario a few times: what CI runs.
    #[arg(long, conflicts_with = "all")]
    sample: bool,
    /// Each scenario as often as --times says.
    #[arg(long)]
    all: bool,
    /// Runs of each scenario.
    #[arg(long, default_value_t = 2)]
    times: usize,
    /// Labs side by side.
    #[arg(long, default_value_t = 2)]
    labs: usize,
    /// Only scenarios whose name has this.
    #[arg(long)]
    only: Option<String>,
    /// The program under test; without it `monolock` beside this one.
    #[arg(long)]
    program: Option<PathBuf>,
    /// A bound that is not kept is said, and no failure: for a machine that is busy.
    #[arg(long)]
    figures_only: bool,
    /// Keeps logs of every lab.
    #[arg(long)]
    keep: bool,
}

/// Runs of each scenario in CI.
const SAMPLE: usize = 2;

fn main() -> ExitCode {
    become_what_was_asked();
    match run(&Args::parse()) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("monolock-failover: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(args: &Args) -> Result<bool> {
    ensure!(args.sample || args.all, "say --sample or --all");
    ensure!(
        rustix::process::geteuid().is_root(),
        "only root can make network namespaces: run it as root, on a machine or in a container for tests"
    );
    for program in ["/usr/sbin/keepalived", "/usr/bin/curl"] {
        ensure!(Path::new(program).exists(), "{program} is missing");
    }
    let program = std::fs::canonicalize(find_program(args.program.as_deref())?)?;
    let agent = Command::new(&program).args(["ha-agent", "--help"]).output()?.status.success();
    let wanted = |scenario: &&Scenario| args.only.as_ref().is_none_or(|only| scenario.name.contains(only));
    let queue: Mutex<Vec<&Scenario>> = Mutex::new(scenarios::ALL.iter().filter(wanted).rev().collect());
    let times = if args.sample { SAMPLE } else { args.times };
    println!("{HEAD}");
    let is_fine = Mutex::new(true);
    thread::scope(|scope| {
        for _ in 0..args.labs {
            let (queue, program, is_fine) = (&queue, &program, &is_fine);
            scope.spawn(move || {
                let next = || queue.lock().unwrap_or_else(PoisonError::into_inner).pop();
                while let Some(scenario) = next() {
                    let plan =
                        Plan { kind: scenario.kind, power: scenario.power, program: program.clone(), agent };
                    if !figures(args, scenario, plan, times) {
                        *is_fine.lock().unwrap_or_else(PoisonError::into_inner) = false;
                    }
                }
            });
        }
    });
    Ok(is_fine.into_inner().unwrap_or_else(PoisonError::into_inner))
}

/// Runs a scenario, prints its line, and says whether all was right.
fn figures(args: &Args, scenario: &Scenario, plan: Plan, times: usize) -> bool {
    let name = scenario.name;
    if scenario.agent && !plan.agent {
        println!("| {name} | 0 | this program has no agent | | | | |");
        return true;
    }
    static LABS: AtomicUsize = AtomicUsize::new(0);
    let tag = format!("mlf{}-{}", std::process::id(), LABS.fetch_add(1, Ordering::Relaxed));
    let mut runs: Vec<Run> = Vec::new();
    let result = Lab::start(&tag, plan).and_then(|mut lab| {
        if args.keep {
            eprintln!("{name}: {}", lab.keep_files().display());
        }
        let result = repeat(&mut lab, scenario, times, &mut runs);
        if result.is_err() {
            eprintln!("{name}: logs are in {}", lab.keep_files().display());
        }
        result
    });
    let figures = Figures { name, runs: &runs, limit: scenario.limit };
    println!("{figures}");
    if let Err(error) = &result {
        println!("FAILED: {name}: {error:#}");
    }
    if !figures.keeps_limit() {
        println!("TOO SLOW: {name}");
    }
    result.is_ok() && (figures.keeps_limit() || args.figures_only)
}

fn repeat(lab: &mut Lab, scenario: &Scenario, times: usize, runs: &mut Vec<Run>) -> Result<()> {
    for _ in 0..times {
        // Of keepalived's checks, which run every second, any moment.
        thread::sleep(Duration::from_millis(fastrand::u64(0..1000)));
        let run = (scenario.run)(lab);
        // What clients saw counts also when something else went wrong.
        scenarios::check(lab)?;
        runs.push(run?);
        lab.settle()?;
    }
    scenarios::check(lab)
}
