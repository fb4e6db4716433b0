//! Spans of time as people read them: ages in two units, leases exactly.

use std::time::{Duration, SystemTime};

use admin_api::Time;

/// How long ago something was, by this machine's clock: `3m20s`. A clock that is behind the server's makes it
/// `0s`.
pub(super) fn since(time: Time, now: SystemTime) -> String {
    age(now.duration_since(time.0).unwrap_or_default())
}

/// A span in its two largest units: `0s`, `59s`, `3m20s`, `4h05m`, `12d04h`.
pub(super) fn age(span: Duration) -> String {
    let s = span.as_secs();
    let (m, h, d) = (s / 60, s / 3600, s / 86_400);
    match s {
        0..60 => format!("{s}s"),
        60..3600 => format!("{m}m{:02}s", s % 60),
        3600..86_400 => format!("{h}h{:02}m", m % 60),
        _ => format!("{d}d{:02}h", h % 24),
    }
}

/// A lease exactly, as it may be given to `monolock run --lease`: `10s`, `1m30s`, `1s500ms`.
pub(super) fn lease(lease_ms: u32) -> String {
    let units = [
        (lease_ms / 3_600_000, "h"),
        (lease_ms / 60_000 % 60, "m"),
        (lease_ms / 1000 % 60, "s"),
        (lease_ms % 1000, "ms"),
    ];
    let parts = units.iter().filter(|(number, _)| *number > 0);
    parts.map(|(number, unit)| format!("{number}{unit}")).collect()
}

/// A time in seconds, RFC 3339 in UTC.
pub(super) fn date(time: SystemTime) -> String {
    humantime::format_rfc3339_seconds(time).to_string()
}

#[cfg(test)]
mod tests {
    use std::time::UNIX_EPOCH;

    use super::*;
    use cli::parse_duration;

    #[test]
    fn an_age_has_its_two_largest_units() {
        for (s, text) in [
            (0, "0s"),
            (59, "59s"),
            (60, "1m00s"),
            (200, "3m20s"),
            (3599, "59m59s"),
            (3600, "1h00m"),
            (14_700, "4h05m"),
            (86_399, "23h59m"),
            (86_400, "1d00h"),
            (1_051_200, "12d04h"),
        ] {
            assert_eq!(age(Duration::from_secs(s)), text);
        }
        assert_eq!(age(Duration::from_millis(1999)), "1s");
    }

    #[test]
    fn what_a_clock_that_is_ahead_has_stamped_is_new() {
        let s = |s| UNIX_EPOCH + Duration::from_secs(s);
        assert_eq!((since(Time(s(10)), s(70)), since(Time(s(70)), s(10))), ("1m00s".into(), "0s".into()));
    }

    #[test]
    fn a_lease_is_exact_and_reads_as_a_duration() {
        for (ms, text) in
            [(10_000, "10s"), (90_000, "1m30s"), (250, "250ms"), (1500, "1s500ms"), (3_600_001, "1h1ms")]
        {
            assert_eq!(lease(ms), text);
        }
        for ms in [1, 999, 61_001, u32::MAX] {
            assert_eq!(parse_duration(&lease(ms)), Ok(Duration::from_millis(ms.into())));
        }
    }
}
