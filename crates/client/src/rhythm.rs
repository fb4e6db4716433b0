//! When the next heartbeat is due, and when to give up: arithmetic on whole nanoseconds, rounded down.

use protocol::Lease;

/// A claim is given up this many tenths of its lease after its last confirmation: 0.8 × lease, rounded down
/// to the nanosecond. The protocol's number; the other two tenths are for clock drift and for stopping the
/// work.
pub const GIVE_UP_TENTHS: u64 = 8;

/// No shorter pause between two heartbeats than this, where the lease allows it. The floor of upstream's
/// client.
const INTERVAL_MIN_NS: u64 = 100_000_000;

/// So many tenths of a lease.
pub(crate) fn tenths_ns(lease_ns: u64, tenths: u64) -> u64 {
    // A lease has at most 4.3 × 10¹⁵ ns: no product here comes near 2⁶⁴.
    lease_ns * tenths / 10
}

/// The heartbeat interval of one claim.
#[derive(Debug)]
pub(crate) struct Rhythm {
    lease_ns: u64,
    /// Moving average of the round trips, alpha 0.2; the first one starts it.
    rtt_ns: Option<u64>,
}

impl Rhythm {
    pub(crate) fn new(lease: Lease) -> Self {
        Self { lease_ns: lease.as_ns(), rtt_ns: None }
    }

    /// How long a claim lives on its last confirmation.
    pub(crate) fn give_up_after_ns(&self) -> u64 {
        tenths_ns(self.lease_ns, GIVE_UP_TENTHS)
    }

    /// Takes one measured round trip into the average, which rounding keeps less than 5 ns too small.
    pub(crate) fn answered_after(&mut self, rtt_ns: u64) {
        self.rtt_ns = Some(match self.rtt_ns {
            None => rtt_ns,
            Some(average_ns) => (4 * average_ns + rtt_ns) / 5,
        });
    }

    /// The time from one send to the next. Zero when the round trip eats up the pause: then the next
    /// heartbeat goes out as soon as the previous one is answered.
    pub(crate) fn interval_ns(&self) -> u64 {
        let base_ns = self.lease_ns / 4;
        let safe_rtt_ns = 2 * self.rtt_ns.unwrap_or(0);
        if safe_rtt_ns >= base_ns {
            return 0;
        }
        (base_ns - safe_rtt_ns).max(INTERVAL_MIN_NS.min(base_ns))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    fn rhythm(lease_ms: u32, rtts_ns: &[u64]) -> Rhythm {
        let mut rhythm = Rhythm::new(Lease::from_ms(lease_ms).unwrap());
        for &rtt_ns in rtts_ns {
            rhythm.answered_after(rtt_ns);
        }
        rhythm
    }

    #[test]
    fn the_interval_is_a_quarter_of_the_lease_less_two_round_trips() {
        assert_eq!(rhythm(10_000, &[]).interval_ns(), 2500 * MS);
        assert_eq!(rhythm(10_000, &[30 * MS]).interval_ns(), 2440 * MS);
    }

    #[test]
    fn the_round_trip_is_a_moving_average_that_takes_a_fifth_of_each_new_one() {
        assert_eq!(rhythm(10_000, &[100 * MS, 200 * MS]).interval_ns(), 2500 * MS - 2 * 120 * MS);
        assert_eq!(rhythm(10_000, &[100 * MS, 200 * MS, 0]).interval_ns(), 2500 * MS - 2 * 96 * MS);
    }

    #[test]
    fn the_interval_has_a_floor_of_100_ms_that_a_short_lease_lowers() {
        assert_eq!(rhythm(10_000, &[1249 * MS]).interval_ns(), 100 * MS);
        assert_eq!(rhythm(400, &[10 * MS]).interval_ns(), 100 * MS);
        assert_eq!(rhythm(40, &[MS]).interval_ns(), 10 * MS);
        assert_eq!(rhythm(1, &[]).interval_ns(), MS / 4);
    }

    #[test]
    fn round_trips_as_long_as_the_pause_leave_no_pause() {
        assert_eq!(rhythm(10_000, &[1250 * MS - 1]).interval_ns(), 100 * MS);
        assert_eq!(rhythm(10_000, &[1250 * MS]).interval_ns(), 0);
        assert_eq!(rhythm(1, &[MS]).interval_ns(), 0);
    }

    #[test]
    fn giving_up_rounds_down_and_the_longest_lease_does_not_overflow() {
        assert_eq!(rhythm(1, &[]).give_up_after_ns(), 800_000);
        let longest = rhythm(u32::MAX, &[u64::from(u32::MAX) * MS, u64::from(u32::MAX) * MS]);
        assert_eq!(longest.give_up_after_ns(), 3_435_973_836_000_000);
        assert_eq!(longest.interval_ns(), 0);
    }
}
