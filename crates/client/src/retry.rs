//! Whether to try again, and after how long a pause.

use std::time::Duration;

use protocol::ErrorCode;

use crate::error::{Error, Loss};

/// The longest first pause; it doubles from failure to failure.
pub(crate) const PAUSE_MIN: Duration = Duration::from_millis(100);

/// The longest pause of all. The upper limit of what a client adds to a failover.
const PAUSE_MAX: Duration = Duration::from_secs(5);

/// After a server that shuts down: enough to keep a thousand clients from coming back in step.
const PAUSE_AFTER_SHUTDOWN: Duration = Duration::from_millis(100);

/// The pauses of one caller: exponential, with full jitter, which the caller draws.
#[derive(Debug)]
pub(crate) struct Backoff {
    pause: Duration,
}

impl Backoff {
    pub(crate) fn new() -> Self {
        Self { pause: PAUSE_MIN }
    }

    /// An attempt failed after `lasted`. The pause before the next is drawn from zero to what this returns; `None`: a new
    /// attempt is of no use.
    pub(crate) fn failed(&mut self, error: &Error, lasted: Duration) -> Option<Duration> {
        if !error.is_temporary() {
            return None;
        }
        if let Error::Lost(loss) = error {
            if matches!(loss, Loss::Server { code: ErrorCode::SHUTTING_DOWN, .. }) {
                return Some(PAUSE_AFTER_SHUTDOWN);
            }
            // It was no part of a series of failures: it had come as far as the queue.
            if lasted > PAUSE_MAX {
                self.pause = PAUSE_MIN;
            }
        }
        let pause = self.pause;
        self.pause = (2 * pause).min(PAUSE_MAX);
        Some(pause)
    }
}

/// A moment between zero and `longest`, the same chance for each nanosecond.
pub(crate) fn draw(longest: Duration) -> Duration {
    let longest_ns = u64::try_from(longest.as_nanos()).expect("pauses are short");
    Duration::from_nanos(fastrand::u64(0..=longest_ns))
}

#[cfg(test)]
mod tests {
    use super::*;

    use std::io;

    use crate::error::Closed;

    fn dial() -> Error {
        Error::Dial { address: "a:1".into(), source: io::ErrorKind::ConnectionRefused.into() }
    }

    fn server(code: ErrorCode) -> Error {
        Error::Lost(Loss::Server { code, reason: String::new() })
    }

    fn pauses_ms(error: &Error, lasted: Duration, count: usize) -> Vec<u128> {
        let mut backoff = Backoff::new();
        (0..count).map(|_| backoff.failed(error, lasted).unwrap().as_millis()).collect()
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
            assert_eq!(Backoff::new().failed(&error, Duration::ZERO), None, "{error}");
        }
    }

    #[test]
    fn pauses_are_spread_over_their_whole_range() {
        let longest = Duration::from_millis(100);
        let mut tenths = [0; 10];
        for _ in 0..10_000 {
            let tenth = usize::try_from(draw(longest).as_millis() / 10).unwrap();
            tenths[tenth.min(9)] += 1;
        }
        // 1000 each, with a standard deviation of 30.
        assert!(tenths.iter().all(|count| (700..1300).contains(count)), "{tenths:?}");
    }
}
