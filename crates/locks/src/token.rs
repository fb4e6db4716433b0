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
