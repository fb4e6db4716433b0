//! A host's clocks: boot time, monotonic time and wall time, as functions of the true time.

/// True time 0 on every wall clock, ns since the Unix epoch: some day in 2023.
const UNIX_AT_START_NS: u64 = 1_700_000_000_000_000_000;

/// The clocks of one host. They run faster than true time by a constant factor, and stand where they stand.
#[derive(Debug, Clone)]
pub(crate) struct HostClock {
    offset_ns: u64,
    rate_permille: u64,
    /// Time on this host's boot clock for which the monotonic clock stood still, in suspends that are over.
    slept_ns: u64,
    /// The last suspend, in true time.
    suspend: Option<(u64, u64)>,
    skew_ns: u64,
}

impl HostClock {
    /// `rate_permille` of 1000 keeps true time.
    pub(crate) fn new(offset_ns: u64, rate_permille: u64, skew_ns: u64) -> Self {
        Self { offset_ns, rate_permille, slept_ns: 0, suspend: None, skew_ns }
    }

    /// CLOCK_BOOTTIME: goes on in a suspend.
    pub(crate) fn boot_ns(&self, true_ns: u64) -> u64 {
        self.offset_ns + true_ns * self.rate_permille / 1000
    }

    /// CLOCK_MONOTONIC: stands still in a suspend.
    pub(crate) fn monotonic_ns(&self, true_ns: u64) -> u64 {
        let asleep_ns = self.suspend.map_or(0, |(from_ns, until_ns)| {
            self.boot_ns(true_ns.clamp(from_ns, until_ns)) - self.boot_ns(from_ns)
        });
        self.boot_ns(true_ns) - self.slept_ns - asleep_ns
    }

    /// CLOCK_REALTIME: kept by NTP except where it was stepped.
    pub(crate) fn unix_ns(&self, true_ns: u64) -> u64 {
        UNIX_AT_START_NS + true_ns + self.skew_ns
    }

    /// The first moment at which the boot clock shows that much.
    pub(crate) fn when_boot_shows(&self, shown_ns: u64) -> u64 {
        (shown_ns.saturating_sub(self.offset_ns) * 1000).div_ceil(self.rate_permille)
    }

    /// The first moment at which the monotonic clock shows that much, if that is not before the last suspend.
    pub(crate) fn when_monotonic_shows(&self, shown_ns: u64) -> u64 {
        let asleep_ns = self.suspend.map_or(0, |(from, until)| self.boot_ns(until) - self.boot_ns(from));
        self.when_boot_shows(shown_ns + self.slept_ns + asleep_ns)
    }

    /// The host is suspended from now on.
    pub(crate) fn suspend(&mut self, now_ns: u64, until_ns: u64) {
        assert!(!self.is_suspended(now_ns) && now_ns < until_ns, "a host that sleeps is not put to sleep");
        if let Some((from, until)) = self.suspend.replace((now_ns, until_ns)) {
            self.slept_ns += self.boot_ns(until) - self.boot_ns(from);
        }
    }

    /// Whether the host is suspended at this moment.
    pub(crate) fn is_suspended(&self, true_ns: u64) -> bool {
        self.suspend.is_some_and(|(from_ns, until_ns)| (from_ns..until_ns).contains(&true_ns))
    }

    /// When the host is awake again; now if it is.
    pub(crate) fn awake_ns(&self, now_ns: u64) -> u64 {
        self.suspend.filter(|_| self.is_suspended(now_ns)).map_or(now_ns, |(_, until_ns)| until_ns)
    }

    /// Steps the wall clock to so much before or after true time, counted from a common start.
    pub(crate) fn set_skew(&mut self, skew_ns: u64) {
        self.skew_ns = skew_ns;
    }

    /// Steps the wall clock forward, if it is behind that.
    pub(crate) fn catch_up(&mut self, true_ns: u64, unix_ns: u64) {
        self.skew_ns = self.skew_ns.max(unix_ns.saturating_sub(UNIX_AT_START_NS + true_ns));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_suspend_stops_the_monotonic_clock_and_no_other() {
        let mut clock = HostClock::new(500, 1200, 0);
        clock.suspend(1000, 2000);
        assert_eq!([1000, 1500, 2000, 3000].map(|now| clock.monotonic_ns(now)), [1700, 1700, 1700, 2900]);
        assert_eq!(clock.boot_ns(3000), 4100);
        clock.suspend(3000, 4000);
        assert_eq!(clock.monotonic_ns(5000), 4100);
        assert_eq!(clock.unix_ns(7), UNIX_AT_START_NS + 7);
    }

    #[test]
    fn a_moment_is_found_by_what_a_clock_shows() {
        let mut clock = HostClock::new(500, 1100, 0);
        clock.suspend(1000, 2000);
        for shown_ns in 2000..3000 {
            let boot = clock.when_boot_shows(shown_ns);
            assert!(clock.boot_ns(boot) >= shown_ns && clock.boot_ns(boot - 1) < shown_ns);
            let monotonic = clock.when_monotonic_shows(shown_ns);
            assert!(
                clock.monotonic_ns(monotonic) >= shown_ns && clock.monotonic_ns(monotonic - 1) < shown_ns
            );
        }
    }
}
