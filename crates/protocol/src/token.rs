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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_counts_units_of_two_to_the_minus_20_seconds() {
        assert_eq!(Token::from_unix_ns(0), Token(0));
        assert_eq!(Token::from_unix_ns(1_000_000_000), Token(1 << 20));
        assert_eq!(Token::from_unix_ns(1_500_000_000), Token((1 << 20) + (1 << 19)));
        assert_eq!(Token::from_unix_ns(u64::MAX), Token(19_342_813_113_834_066));
    }

    #[test]
    fn tokens_fit_in_53_bits_until_the_year_2242() {
        // 2242-01-01T00:00:00Z
        assert!(Token::from_unix_ns(8_583_494_400 * 1_000_000_000).0 < 1 << 53);
    }
}
