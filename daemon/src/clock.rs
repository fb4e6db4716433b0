//! The clocks: monotonic for leases, boot time for the gate, wall clock for tokens.

use rtime_clock::adjtime::{Timex, adjtimex};
use rustix::time::{ClockId, Timespec, clock_gettime};

/// CLOCK_MONOTONIC, ns: leases and durations.
pub(crate) fn monotonic_ns() -> u64 {
    as_ns(clock_gettime(ClockId::Monotonic))
}

/// CLOCK_BOOTTIME, ns: goes on while the machine is suspended, so that a gate's deadline passes then too.
pub(crate) fn boot_ns() -> u64 {
    as_ns(clock_gettime(ClockId::Boottime))
}

/// Time since the Unix epoch, ns; 0 for a clock set before it (tokens then only count up).
pub(crate) fn unix_ns() -> u64 {
    as_ns(clock_gettime(ClockId::Realtime))
}

/// What adjtimex(2) returns for a clock that nothing keeps right: TIME_ERROR of <sys/timex.h>.
const TIME_ERROR: i32 = 5;

/// Whether the kernel knows of somebody who keeps the wall clock right; `None` where it may not be asked, as
/// under a filter of system calls.
pub(crate) fn is_synchronised() -> Option<bool> {
    // With no mode set this only reads.
    adjtimex(&mut Timex::new()).ok().map(|state| state != TIME_ERROR)
}

/// The two clocks are read one after the other, which makes their difference jitter; only a larger change is
/// followed.
const JITTER_NS: u64 = 1_000_000;

/// Shows times of CLOCK_MONOTONIC as times since the Unix epoch: the same one each time, unless somebody sets
/// the wall clock.
#[derive(Debug, Default)]
pub(crate) struct WallClock {
    /// Unix time when CLOCK_MONOTONIC began.
    began_unix_ns: u64,
}

impl WallClock {
    /// Takes one look at both clocks.
    pub(crate) fn follow(&mut self, now_ns: u64, unix_ns: u64) {
        let began_unix_ns = unix_ns.saturating_sub(now_ns);
        if began_unix_ns.abs_diff(self.began_unix_ns) > JITTER_NS {
            self.began_unix_ns = began_unix_ns;
        }
    }

    /// A time of CLOCK_MONOTONIC as one since the Unix epoch.
    pub(crate) fn unix_ns(&self, ns: u64) -> u64 {
        self.began_unix_ns.saturating_add(ns)
    }
}

fn as_ns(time: Timespec) -> u64 {
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    let nanoseconds = u64::try_from(time.tv_nsec).unwrap_or(0);
    seconds.saturating_mul(1_000_000_000).saturating_add(nanoseconds)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_is_shown_alike_until_the_wall_clock_is_set() {
        let mut wall = WallClock::default();
        wall.follow(1_000, 5_000_001_000);
        assert_eq!(wall.unix_ns(500), 5_000_000_500);
        wall.follow(2_000, 5_000_002_700);
        assert_eq!(wall.unix_ns(500), 5_000_000_500);
        wall.follow(3_000, 9_000_003_000);
        assert_eq!(wall.unix_ns(500), 9_000_000_500);
    }
}
