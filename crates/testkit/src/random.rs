//! Random numbers that a seed gives back.

use std::env;
use std::hash::{BuildHasher, RandomState};

/// Names the seed of the one run to repeat.
const SEED_VARIABLE: &str = "TEST_SEED";

/// SplitMix64: every seed is a good one.
#[derive(Debug)]
pub struct Random(u64);

impl Random {
    /// What this seed gives.
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// With the seed of the environment, or a new one: printed.
    pub fn of_one_run() -> Self {
        let seed = given_seed().unwrap_or_else(new_seed);
        println!("{SEED_VARIABLE}={seed}");
        Self(seed)
    }

    /// Any number.
    pub fn next_u64(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `end`.
    pub fn below(&mut self, end: u64) -> u64 {
        self.next_u64() % end
    }

    /// One of these.
    pub fn pick<T: Clone>(&mut self, of: &[T]) -> T {
        of[self.below(of.len() as u64) as usize].clone()
    }
}

/// Runs a test with `runs` seeds, printing each, or with the one of the environment.
pub fn with_seeds(runs: u64, test: impl Fn(Random)) {
    let seeds: Vec<u64> = match given_seed() {
        Some(seed) => vec![seed],
        None => (0..runs).map(|_| new_seed()).collect(),
    };
    for seed in seeds {
        println!("{SEED_VARIABLE}={seed}");
        test(Random::new(seed));
    }
}

fn given_seed() -> Option<u64> {
    env::var(SEED_VARIABLE).ok().map(|seed| seed.parse().expect("the seed is a number"))
}

fn new_seed() -> u64 {
    RandomState::new().hash_one(0)
}
