//! Where tokens come from: one source for all shards of the process.

use std::sync::atomic::{AtomicU64, Ordering};

use protocol::Token;

/// Issues the tokens of this process, each larger than all before it, whatever the wall clock does.
#[derive(Debug, Default)]
pub struct TokenSource {
    last: AtomicU64,
}

impl TokenSource {
    /// A source that has issued nothing.
    pub fn new() -> Self {
        Self::default()
    }

    /// The token of a grant at this wall-clock time: `max(previous + 1, Token::from_unix_ns(unix_ns))`.
    pub fn next(&self, unix_ns: u64) -> Token {
        let floor = Token::from_unix_ns(unix_ns).0;
        let after = |last: u64| floor.max(last + 1);
        // Relaxed is enough: the order that matters is the order of changes of this one atomic.
        let previous = self.last.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |last| Some(after(last)));
        Token(after(previous.expect("the update never declines")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
            let threads: Vec<_> =
                (0..4).map(|_| scope.spawn(|| [(); 1000].map(|()| tokens.next(7)))).collect();
            threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect::<Vec<_>>()
        });
        issued.sort_unstable();
        issued.dedup();
        assert_eq!(issued.len(), 4000);
    }
}
