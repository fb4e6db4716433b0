//! The clocks.

use rustix::time::{ClockId, Timespec, clock_gettime};

/// CLOCK_BOOTTIME, ns: it goes on while the machine is suspended.
pub(crate) fn boot_ns() -> u64 {
    as_ns(clock_gettime(ClockId::Boottime))
}

/// Time since the Unix epoch, ns; 0 for a clock that is set before it.
pub(crate) fn unix_ns() -> u64 {
    as_ns(clock_gettime(ClockId::Realtime))
}

fn as_ns(time: Timespec) -> u64 {
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    let nanoseconds = u64::try_from(time.tv_nsec).unwrap_or(0);
    seconds.saturating_mul(1_000_000_000).saturating_add(nanoseconds)
}
