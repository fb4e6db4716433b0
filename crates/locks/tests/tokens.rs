//! Tokens of all locks and threads.

use locks::TokenSource;
use protocol::Token;

#[test]
fn a_token_follows_the_clock_and_never_goes_back_with_it() {
    let tokens = TokenSource::new();
    assert_eq!(tokens.next(1_000_000_000), Some(Token(1 << 20)));
    assert_eq!(tokens.next(1_000_000_000), Some(Token((1 << 20) + 1)));
    assert_eq!(tokens.next(0), Some(Token((1 << 20) + 2)));
    assert_eq!(tokens.next(2_000_000_000), Some(Token(2 << 20)));
    assert_eq!(tokens.ceiling(), None);
    assert!(!tokens.is_exhausted());
}

/// A time whose token is 2⁴⁰.
const UNIX_NS: u64 = (1 << 20) * 1_000_000_000;
const NOW: u64 = 1 << 40;

/// How far below the ceiling a token that follows the clock stays.
const ROOM: u64 = 1 << 20;

#[test]
fn nothing_is_issued_above_the_ceiling_and_a_clock_past_it_does_not_use_it_up() {
    let tokens = TokenSource::with_ceiling(Token(NOW - 10));
    assert_eq!(tokens.next(UNIX_NS), None, "nothing is put aside yet");
    let ceiling = NOW + ROOM / 2;
    tokens.raise_ceiling(Token(ceiling));
    assert_eq!(tokens.next(UNIX_NS), Some(Token(NOW - 9)), "the floor is above what the clock may take");
    assert_eq!(tokens.next(2 * UNIX_NS), Some(Token(NOW - 8)));
    tokens.stay_above(Token(ceiling - 1));
    assert_eq!(tokens.next(UNIX_NS), Some(Token(ceiling)));
    assert!(tokens.is_exhausted());
    assert_eq!(tokens.next(UNIX_NS), None);
    tokens.raise_ceiling(Token(ceiling - 5));
    assert_eq!(tokens.next(UNIX_NS), None, "a ceiling never sinks");
    tokens.raise_ceiling(Token(ceiling + 1));
    assert_eq!(tokens.next(UNIX_NS), Some(Token(ceiling + 1)));
}

#[test]
fn a_clock_past_the_ceiling_leaves_a_second_of_tokens_below_it() {
    let tokens = TokenSource::with_ceiling(Token(0));
    tokens.raise_ceiling(Token(NOW));
    assert_eq!(tokens.next(UNIX_NS), Some(Token(NOW - ROOM)));
    let more = std::iter::from_fn(|| tokens.next(UNIX_NS)).count();
    assert_eq!(u64::try_from(more), Ok(ROOM));
}

#[test]
fn threads_never_get_the_same_token() {
    let tokens = TokenSource::new();
    let mut issued = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..4).map(|_| scope.spawn(|| [(); 1000].map(|()| tokens.next(7)))).collect();
        threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect::<Vec<_>>()
    });
    issued.sort_unstable();
    issued.dedup();
    assert_eq!(issued.len(), 4000);
}
