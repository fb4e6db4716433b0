//! How long a caller waits until it tries again.

use std::io;
use std::time::Duration;

use monolock_client::{Closed, Error, ErrorCode, Loss, Retry, draw_pause};

fn dial() -> Error {
    Error::Dial { address: "a:1".into(), source: io::ErrorKind::ConnectionRefused.into() }
}

fn server(code: ErrorCode) -> Error {
    Error::Lost(Loss::Server { code, reason: String::new() })
}

/// The longest pauses of a caller whose attempts all last so long and fail so.
fn pauses_ms(error: &Error, lasted: Duration, count: usize) -> Vec<u128> {
    let lasted_ns = u64::try_from(lasted.as_nanos()).unwrap();
    let (mut retry, mut now_ns) = (Retry::default(), 1_000_000_000_000);
    let mut longest = |number| {
        assert_eq!(retry.begin(now_ns), number);
        now_ns += lasted_ns;
        let pause = retry.failed(now_ns, error).expect("a new attempt is of use");
        now_ns += u64::try_from(pause.as_nanos()).unwrap();
        pause.as_millis()
    };
    (0..count).map(&mut longest).collect()
}

#[test]
fn pauses_double_from_100_ms_to_5_s() {
    let expected = [100, 200, 400, 800, 1600, 3200, 5000, 5000];
    for error in [dial(), server(ErrorCode::STANDBY), server(ErrorCode(0x0f)), closed()] {
        assert_eq!(pauses_ms(&error, Duration::ZERO, 8), expected, "{error}");
    }
}

fn closed() -> Error {
    Error::Lost(Loss::ConnectionClosed(Closed::ByServer))
}

#[test]
fn a_server_that_shuts_down_is_followed_within_100_ms_each_time() {
    assert_eq!(pauses_ms(&server(ErrorCode::SHUTTING_DOWN), Duration::ZERO, 3), [100, 100, 100]);
}

#[test]
fn a_claim_that_had_waited_longer_than_any_pause_starts_over() {
    assert_eq!(pauses_ms(&closed(), Duration::from_secs(6), 3), [100, 100, 100]);
    assert_eq!(pauses_ms(&dial(), Duration::from_secs(6), 3), [100, 200, 400]);
}

#[test]
fn what_nobody_mends_is_not_tried_again() {
    let refused = server(ErrorCode::NOT_AUTHORIZED);
    for error in [refused, Error::InvalidLease, Error::InvalidName(ErrorCode::EMPTY_NAME)] {
        assert_eq!(Retry::default().failed(0, &error), None, "{error}");
    }
}

#[test]
fn pauses_are_spread_over_their_whole_range() {
    let longest = Duration::from_millis(100);
    let mut tenths = [0; 10];
    for _ in 0..10_000 {
        let tenth = usize::try_from(draw_pause(longest).as_millis() / 10).unwrap();
        tenths[tenth.min(9)] += 1;
    }
    // 1000 each, with a standard deviation of 30.
    assert!(tenths.iter().all(|count| (700..1300).contains(count)), "{tenths:?}");
}
