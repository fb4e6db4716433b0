//! Fencing tokens.

use std::fmt;

/// A fencing token: larger than that of every earlier grant of the same server, of any lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Token(pub u64);

impl Token {
    /// The smallest token that a grant at this wall-clock time may carry: the time since the Unix epoch in
    /// units of 2⁻²⁰ s. It stays below 2⁵³ until the year 2242, so that JSON numbers hold it exactly.
    pub fn from_unix_ns(unix_ns: u64) -> Self {
        let units = (u128::from(unix_ns) << 20) / 1_000_000_000;
        Self(u64::try_from(units).expect("2⁶⁴ ns are fewer than 2⁶⁴ units"))
    }
}

impl fmt::Display for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}
