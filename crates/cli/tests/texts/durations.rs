//! Durations as people write them.

use cli::parse_duration;

fn ns(text: &str) -> u64 {
    u64::try_from(parse_duration(text).unwrap().as_nanos()).unwrap()
}

#[test]
fn durations_are_those_of_go() {
    assert_eq!(ns("0"), 0);
    assert_eq!(ns("+5s"), 5_000_000_000);
    assert_eq!(ns("250ms"), 250_000_000);
    assert_eq!(ns("1m30s"), 90_000_000_000);
    assert_eq!(ns("1.5h"), 5_400_000_000_000);
    assert_eq!(ns("100us"), 100_000);
    assert_eq!(ns("100µs"), 100_000);
    assert_eq!(ns("100μs"), 100_000);
    assert_eq!(ns("1h15m30.918273645s"), 4_530_918_273_645);
    assert_eq!(ns(".5s"), 500_000_000);
    assert_eq!(ns("5.s"), 5_000_000_000);
    assert_eq!(ns("0.3333333333333333333h"), 1_199_999_999_999);
    assert_eq!(ns("9223372036854775807ns"), 9_223_372_036_854_775_807);
}

#[test]
fn what_go_refuses_is_refused_and_so_is_a_negative_duration() {
    for text in ["", "+", "5", ".", ".s", "1.2.3s", "5 s", "s", "5sec", "5S", "1d", "٣s", "1e3s", "-5s", "-0"]
    {
        assert!(parse_duration(text).is_err(), "{text:?}");
    }
    for text in ["9223372036854775808ns", "2562048h", "99999999999999999999s", "2562047h48m"] {
        assert_eq!(parse_duration(text), Err("the duration is too long".into()), "{text:?}");
    }
}
