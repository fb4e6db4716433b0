//! Valid frames, damaged at random, against [`invariants::check`].
//!
//! Each input has a seed of its own. `FUZZ_ITERATIONS` makes a run longer; a failure prints the `FUZZ_SEED`
//! that repeats it at once.

use std::env;
use std::fmt::Debug;
use std::panic;
use std::str::FromStr;

use fastrand::Rng;
use protocol::{Acquire, ErrorCode, ErrorFrame, HEARTBEAT, Lease, LockName, Token, WAITING, acquired};

use crate::invariants;

/// About one second in a debug build.
const ITERATIONS: u64 = 40_000;

/// Damage done to one input: few enough that most of its frames stay recognisable.
const MUTATIONS_MAX: usize = 4;

/// The longest input: two frames of the greatest length with something around them. Each of its prefixes is
/// decoded.
const INPUT_BYTES_MAX: usize = 600;

/// The bytes at which some decision of a decoder turns.
const EDGES: [u8; 10] = [0, 1, 2, 3, 0x11, 0x12, 0x13, 0x7f, 0x80, 0xff];

/// Streams as real peers send them.
fn corpus() -> Vec<Vec<u8>> {
    let acquire = |name: &str, ms| {
        let (name, lease) = (LockName::new(name).unwrap(), Lease::from_ms(ms).unwrap());
        Acquire { name, lease }.encode().to_vec()
    };
    let error = |code, reason: &str| ErrorFrame::with_reason(code, reason).to_vec();
    let acquired = acquired(Token(0x0001_0203_0405_0607));
    vec![
        acquire("a", 10_000),
        acquire("büro/drucker-3", 1),
        acquire(&"n".repeat(255), u32::MAX),
        [acquire("job", 1_000), HEARTBEAT.repeat(5)].concat(),
        HEARTBEAT.repeat(20),
        WAITING.to_vec(),
        acquired.to_vec(),
        error(ErrorCode::SHUTTING_DOWN, ""),
        ErrorFrame::new(ErrorCode::NOT_AUTHORIZED).to_vec(),
        error(ErrorCode::STANDBY, &"é".repeat(127)),
        [&WAITING[..], &WAITING, &acquired, &acquired, &error(ErrorCode::CLOSED_BY_ADMINISTRATOR, "bye")]
            .concat(),
    ]
}

fn mutate(input: &mut Vec<u8>, corpus: &[Vec<u8>], rng: &mut Rng) {
    let at = rng.usize(..=input.len());
    match rng.u8(..6) {
        0 if at < input.len() => input[at] ^= 1 << rng.u8(..8),
        1 if at < input.len() => input[at] = rng.choice(EDGES).expect("there are some"),
        2 => input.insert(at, rng.u8(..)),
        3 => input.truncate(at),
        4 => drop(input.drain(at..rng.usize(at..=input.len()))),
        _ => {
            let other = &corpus[rng.usize(..corpus.len())];
            input.splice(at..at, other[rng.usize(..other.len())..].iter().copied());
        }
    }
    input.truncate(INPUT_BYTES_MAX);
}

fn input(corpus: &[Vec<u8>], seed: u64) -> Vec<u8> {
    let mut rng = Rng::with_seed(seed);
    let mut input = corpus[rng.usize(..corpus.len())].clone();
    for _ in 0..rng.usize(..=MUTATIONS_MAX) {
        mutate(&mut input, corpus, &mut rng);
    }
    input
}

fn from_env<T: FromStr<Err: Debug>>(name: &str) -> Option<T> {
    let value = env::var(name).ok()?;
    Some(value.parse().unwrap_or_else(|error| panic!("{name}={value}: {error:?}")))
}

#[test]
fn damaged_frames_break_no_invariant() {
    let seed: u64 = from_env("FUZZ_SEED").unwrap_or_else(|| fastrand::u64(..));
    let iterations: u64 = from_env("FUZZ_ITERATIONS").unwrap_or(ITERATIONS);
    println!("FUZZ_SEED={seed} FUZZ_ITERATIONS={iterations}");
    let corpus = corpus();
    for iteration in 0..iterations {
        let seed = seed.wrapping_add(iteration);
        let input = input(&corpus, seed);
        if let Err(panic) = panic::catch_unwind(|| invariants::check(&input)) {
            println!("repeat with FUZZ_SEED={seed} FUZZ_ITERATIONS=1; the input is {input:02x?}");
            panic::resume_unwind(panic);
        }
    }
}
