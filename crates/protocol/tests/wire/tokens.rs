//! How tokens follow the clock.

use protocol::Token;

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
