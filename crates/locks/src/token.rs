//! Where tokens come from: one source for all shards of the process.

use std::sync::atomic::{AtomicU64, Ordering};

use protocol::Token;

/// How far below the ceiling a token that follows the clock stays: a second's worth. A clock that is past the
/// ceiling would else use it up in one grant.
const ROOM_BELOW_CEILING: u64 = 1 << 20;

/// Issues the tokens of this process, each larger than all before it, whatever the wall clock does.
///
/// None is above the *ceiling*, up to which somebody has put tokens aside for this server where they outlast
/// it: who serves after it begins above that. Without such a place there is no ceiling.
#[derive(Debug)]
pub struct TokenSource {
    last: AtomicU64,
    ceiling: AtomicU64,
}

impl Default for TokenSource {
    fn default() -> Self {
        Self { last: AtomicU64::new(0), ceiling: AtomicU64::new(u64::MAX) }
    }
}

impl TokenSource {
    /// A source that has issued nothing, without a ceiling.
    pub fn new() -> Self {
        Self::default()
    }

    /// A source that issues nothing until a ceiling is raised, and then only tokens above `floor`.
    pub fn with_ceiling(floor: Token) -> Self {
        Self { last: AtomicU64::new(floor.0), ceiling: AtomicU64::new(floor.0) }
    }

    /// The last token that was issued; the floor before the first.
    pub fn last(&self) -> Token {
        Token(self.last.load(Ordering::Relaxed))
    }

    /// No later token is `floor` or below.
    pub fn stay_above(&self, floor: Token) {
        self.last.fetch_max(floor.0, Ordering::Relaxed);
    }

    /// Tokens up to this one have been put aside. A ceiling never sinks.
    pub fn raise_ceiling(&self, to: Token) {
        self.ceiling.fetch_max(to.0, Ordering::Relaxed);
    }

    /// The largest token that may be issued; none without a ceiling.
    pub fn ceiling(&self) -> Option<Token> {
        let ceiling = self.ceiling.load(Ordering::Relaxed);
        (ceiling != u64::MAX).then_some(Token(ceiling))
    }

    /// Whether every token up to the ceiling is issued.
    pub fn is_exhausted(&self) -> bool {
        self.last.load(Ordering::Relaxed) >= self.ceiling.load(Ordering::Relaxed)
    }

    /// The token of a grant at this wall-clock time: `max(previous + 1, min(time, ceiling − 2²⁰))`, the time
    /// being [`Token::from_unix_ns`]. None when that is above the ceiling.
    pub fn next(&self, unix_ns: u64) -> Option<Token> {
        // Relaxed is enough: a ceiling is true from the moment at which it can be seen, and the order that
        // matters is the order of changes of `last` alone.
        let ceiling = self.ceiling.load(Ordering::Relaxed);
        let floor = Token::from_unix_ns(unix_ns).0.min(ceiling.saturating_sub(ROOM_BELOW_CEILING));
        let after =
            |last: u64| last.checked_add(1).map(|next| next.max(floor)).filter(|&next| next <= ceiling);
        let previous = self.last.fetch_update(Ordering::Relaxed, Ordering::Relaxed, after);
        previous.ok().and_then(after).map(Token)
    }
}
