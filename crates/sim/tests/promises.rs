//! The promises hold in every seed, and a seed is the same run each time.
//!
//! `SIM_SEED=n` runs that one seed.

use sim::{Figures, Sabotage, Tracing, run};

/// Takes some seconds without optimisation; `cargo run --release -p sim -- --minutes 5 --jobs 2` runs many
/// more.
const SEEDS: u64 = 100;

/// Lines of a failed run.
const TRACE_LINES: usize = 80;

#[test]
fn no_seed_breaks_a_promise() {
    let only = std::env::var("SIM_SEED").ok().map(|seed| seed.parse().expect("SIM_SEED is a number"));
    let seeds = only.map_or(0..SEEDS, |seed: u64| seed..seed + 1);
    let mut figures = Figures::default();
    for seed in seeds {
        let outcome = run(seed, Sabotage::None, Tracing::Off);
        figures.add(&outcome.figures);
        if let Some(violation) = outcome.violation {
            let trace = run(seed, Sabotage::None, Tracing::Last(TRACE_LINES)).trace.join("\n");
            panic!("{trace}\nSIM_SEED={seed}: {violation}");
        }
    }
    println!("{figures}");
    if only.is_none() {
        assert!(figures.faults.iter().all(|&count| count > 0), "every kind of fault struck: {figures}");
        let happened =
            [figures.pushes, figures.expiries, figures.spared, figures.reserved, figures.failovers];
        assert!(happened.iter().all(|&count| count > 0), "everything that can happen did: {figures}");
        assert!(figures.leases >= 60 * figures.seeds, "a run is at least 60 leases long");
    }
}

#[test]
fn a_seed_is_the_same_run_each_time() {
    for seed in 0..4 {
        let [first, second] = [0, 1].map(|_| run(seed, Sabotage::None, Tracing::Last(usize::MAX)));
        assert_eq!(first.figures, second.figures);
        assert_eq!(first.trace, second.trace);
        assert_ne!(first.trace, run(seed + 1, Sabotage::None, Tracing::Last(usize::MAX)).trace);
    }
}
