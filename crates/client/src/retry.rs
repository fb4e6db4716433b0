//! Whether to try again, and after how long a pause: decided without clock, socket or chance.

use std::time::Duration;

use protocol::ErrorCode;

use crate::error::{Error, Loss};

/// The longest first pause; it doubles from failure to failure.
pub(crate) const PAUSE_MIN: Duration = Duration::from_millis(100);

/// The longest pause of all. The upper limit of what a client adds to a failover.
const PAUSE_MAX: Duration = Duration::from_secs(5);

/// After a server that shuts down: enough to keep a thousand clients from coming back in step.
const PAUSE_AFTER_SHUTDOWN: Duration = Duration::from_millis(100);

/// The attempts of one caller to get a claim, and the pauses between them: exponential, with full jitter.
///
/// For callers of [`Connection`](crate::Connection); a [`Client`](crate::Client) tries again by itself. Times
/// are nanoseconds of CLOCK_BOOTTIME, as [`boottime_ns`](crate::boottime_ns) has them.
#[derive(Debug)]
pub struct Retry {
    pause: Duration,
    begun: usize,
    begun_ns: u64,
}

impl Default for Retry {
    fn default() -> Self {
        Self { pause: PAUSE_MIN, begun: 0, begun_ns: 0 }
    }
}

impl Retry {
    /// An attempt begins now. Returns its number, from 0, for
    /// [`Connection::open_with`](crate::Connection::open_with).
    pub fn begin(&mut self, now_ns: u64) -> usize {
        let number = self.begun;
        self.begun += 1;
        self.begun_ns = now_ns;
        number
    }

    /// The attempt failed now. The pause before the next is to be [drawn](draw_pause) from zero to what this
    /// returns: up to 100 ms, doubling to up to 5 s; up to 100 ms after a server that shuts down. `None`: a
    /// new attempt is of no use.
    pub fn failed(&mut self, now_ns: u64, error: &Error) -> Option<Duration> {
        if !error.is_temporary() {
            return None;
        }
        if let Error::Lost(loss) = error {
            if matches!(loss, Loss::Server { code: ErrorCode::SHUTTING_DOWN, .. }) {
                return Some(PAUSE_AFTER_SHUTDOWN);
            }
            // It was no part of a series of failures: it had come as far as the queue.
            if Duration::from_nanos(now_ns.saturating_sub(self.begun_ns)) > PAUSE_MAX {
                self.pause = PAUSE_MIN;
            }
        }
        let pause = self.pause;
        self.pause = (2 * pause).min(PAUSE_MAX);
        Some(pause)
    }
}

/// A moment between zero and `longest`, the same chance for each nanosecond.
pub fn draw_pause(longest: Duration) -> Duration {
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
}
