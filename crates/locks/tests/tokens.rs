//! Tokens of all locks and threads.

use locks::TokenSource;
use protocol::Token;

#[test]
fn a_token_follows_the_clock_and_never_goes_back_with_it() {
    let tokens = TokenSource::new();
    assert_eq!(tokens.next(1_000_000_000), Token(1 << 20));
    assert_eq!(tokens.next(1_000_000_000), Token((1 << 20) + 1));
    assert_eq!(tokens.next(0), Token((1 << 20) + 2));
    assert_eq!(tokens.next(2_000_000_000), Token(2 << 20));
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
