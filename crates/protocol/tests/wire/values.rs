//! Random values of the protocol, and the seed that they come from.

use proptest::prelude::*;
use proptest::sample::Index;
use proptest::test_runner::RngSeed;
use protocol::{Acquire, ErrorCode, Lease, LockName, NAME_BYTES_MAX, ServerFrame, Token};

/// Cuts of one stream: enough for pieces within one frame and across several.
const CUTS_MAX: usize = 12;

/// The configuration of one property: prints its seed, which `PROPTEST_RNG_SEED` gives back;
/// `PROPTEST_CASES` makes the run longer. Nothing is written to disk.
pub(crate) fn config() -> ProptestConfig {
    let mut config = ProptestConfig { failure_persistence: None, ..ProptestConfig::default() };
    if config.rng_seed == RngSeed::Random {
        config.rng_seed = RngSeed::Fixed(fastrand::u64(..));
    }
    println!("PROPTEST_RNG_SEED={}", config.rng_seed);
    config
}

/// As [`config`], for a property that is itself a loop over thousands of inputs.
pub(crate) fn config_of_slow_cases() -> ProptestConfig {
    let config = config();
    ProptestConfig { cases: config.cases.div_ceil(8), ..config }
}

/// Names of all lengths, with all characters; some have exactly the greatest length.
pub(crate) fn name() -> impl Strategy<Value = LockName> {
    let any_length = prop::collection::vec(any::<char>(), 1..=NAME_BYTES_MAX).prop_map(|characters| {
        let text = String::from_iter(characters);
        text[..text.floor_char_boundary(NAME_BYTES_MAX)].to_owned()
    });
    let short = prop::collection::vec(any::<char>(), 1..=4).prop_map(String::from_iter);
    let longest = "[a-z/\n\0]{255}";
    prop_oneof![short, any_length, longest].prop_map(|text| LockName::new(&text).expect("1 to 255 bytes"))
}

pub(crate) fn lease() -> impl Strategy<Value = Lease> {
    prop_oneof![Just(1), Just(u32::MAX), 1..=u32::MAX]
        .prop_map(|ms| Lease::from_ms(ms).expect("the range starts at 1"))
}

pub(crate) fn acquire() -> impl Strategy<Value = Acquire> {
    (name(), lease()).prop_map(|(name, lease)| Acquire { name, lease })
}

/// Reasons that fit in an ERROR.
pub(crate) fn reason() -> impl Strategy<Value = String> {
    prop_oneof![
        Just(String::new()),
        "[ -~]{255}",
        prop::collection::vec(any::<char>(), 0..=63).prop_map(String::from_iter)
    ]
}

pub(crate) fn server_frame() -> impl Strategy<Value = ServerFrame> {
    prop_oneof![
        Just(ServerFrame::Waiting),
        any::<u64>().prop_map(|token| ServerFrame::Acquired(Token(token))),
        (any::<u8>(), reason())
            .prop_map(|(code, reason)| ServerFrame::Error { code: ErrorCode(code), reason }),
    ]
}

/// Where a stream is cut; see [`pieces`].
pub(crate) fn cuts() -> impl Strategy<Value = Vec<Index>> {
    prop::collection::vec(any::<Index>(), 0..=CUTS_MAX)
}

/// The pieces of a stream that is cut there; some may be empty, together they are the stream.
pub(crate) fn pieces<'a>(stream: &'a [u8], cuts: &[Index]) -> Vec<&'a [u8]> {
    let mut ends: Vec<usize> = cuts.iter().map(|cut| cut.index(stream.len() + 1)).collect();
    ends.push(stream.len());
    ends.sort_unstable();
    let mut start = 0;
    ends.into_iter().map(|end| &stream[std::mem::replace(&mut start, end)..end]).collect()
}
