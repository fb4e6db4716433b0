//! The monotonic clock in nanoseconds, and durations as people write them.

use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

pub(crate) const NS_PER_S: u64 = 1_000_000_000;

/// Nanoseconds of CLOCK_MONOTONIC, the clock that the server counts leases by.
pub(crate) fn now_ns() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    let seconds = u64::try_from(now.tv_sec).expect("the monotonic clock starts at zero");
    let nanoseconds = u64::try_from(now.tv_nsec).expect("a normalised timespec");
    seconds * NS_PER_S + nanoseconds
}

/// A duration in nanoseconds; `u64::MAX` where it is longer.
pub(crate) fn as_ns(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

/// Parses `200ms` or `2s`.
pub(crate) fn parse_duration(text: &str) -> Result<Duration, String> {
    let (number, unit_ms) = match text.strip_suffix("ms") {
        Some(number) => (number, 1),
        None => (text.strip_suffix('s').ok_or("write it as 200ms or 2s")?, 1000),
    };
    let number: u32 = number.parse().map_err(|error| format!("{number:?}: {error}"))?;
    Ok(Duration::from_millis(u64::from(number) * unit_ms))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_duration_has_a_whole_number_and_a_unit() {
        assert_eq!(parse_duration("200ms"), Ok(Duration::from_millis(200)));
        assert_eq!(parse_duration("2s"), Ok(Duration::from_secs(2)));
        for wrong in ["", "2", "s", "ms", "-1s", "1.5s", "2m"] {
            assert!(parse_duration(wrong).is_err(), "{wrong:?}");
        }
    }
}
