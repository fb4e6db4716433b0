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
