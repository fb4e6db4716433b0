//! Random numbers that a seed gives back.

use std::hash::{BuildHasher, RandomState};

/// Names the seed of the one run to repeat.
const SEED_VARIABLE: &str = "LOCKS_SEED";

/// SplitMix64: every seed is a good one.
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `end`.
    pub(crate) fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }

    pub(crate) fn pick<T: Clone>(&mut self, of: &[T]) -> T {
        of[self.below(of.len() as u64) as usize].clone()
    }
}

/// Runs a test with `runs` seeds, printing each, or with the one of the environment.
pub(crate) fn with_seeds(runs: u64, test: impl Fn(Random)) {
    let seeds: Vec<u64> = match std::env::var(SEED_VARIABLE) {
        Ok(seed) => vec![seed.parse().expect("the seed is a number")],
        Err(_) => (0..runs).map(|run| RandomState::new().hash_one(run)).collect(),
    };
    for seed in seeds {
        println!("{SEED_VARIABLE}={seed}");
        test(Random::new(seed));
    }
}
