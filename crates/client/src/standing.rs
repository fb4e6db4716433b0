//! What the rest of the program may know of a claim, while one task drives it.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use protocol::Lease;

use crate::rhythm::{GIVE_UP_TENTHS, tenths_ns};

/// The work of a lost claim has this many tenths of the lease to stop.
const STOP_TENTHS: u64 = 1;

/// And no longer than this many tenths of the lease after the last confirmation, as with `monolock run`: the
/// last tenth is for clocks that run apart.
const STOPPED_TENTHS: u64 = 9;

/// The last confirmation of a claim, and whether it is lost. The driver writes, anybody reads. The reader
/// brings the time, so that a claim is over in time also while its driver does not run.
#[derive(Debug)]
pub(crate) struct Standing {
    lease: Lease,
    confirmed_ns: AtomicU64,
    is_lost: AtomicBool,
}

impl Standing {
    pub(crate) fn new(lease: Lease) -> Self {
        Self { lease, confirmed_ns: AtomicU64::new(0), is_lost: AtomicBool::new(false) }
    }

    pub(crate) fn confirm(&self, confirmed_ns: u64) {
        self.confirmed_ns.store(confirmed_ns, Ordering::Release);
    }

    pub(crate) fn lose(&self) {
        self.is_lost.store(true, Ordering::Release);
    }

    /// True while now < confirmed + 0.8 × lease and nothing else has ended the claim.
    pub(crate) fn is_confirmed(&self, now_ns: u64) -> bool {
        !self.is_lost.load(Ordering::Acquire) && now_ns < self.after_ns(GIVE_UP_TENTHS)
    }

    /// When the work of a claim that is found lost now must have stopped.
    pub(crate) fn stopped_by_ns(&self, now_ns: u64) -> u64 {
        (now_ns + tenths_ns(self.lease.as_ns(), STOP_TENTHS)).min(self.after_ns(STOPPED_TENTHS))
    }

    fn after_ns(&self, tenths: u64) -> u64 {
        self.confirmed_ns.load(Ordering::Acquire) + tenths_ns(self.lease.as_ns(), tenths)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    fn confirmed_at_5_s() -> Standing {
        let standing = Standing::new(Lease::from_ms(10_000).unwrap());
        standing.confirm(5000 * MS);
        standing
    }

    #[test]
    fn a_claim_is_over_by_the_readers_clock_though_nobody_has_said_that_it_is_lost() {
        let standing = confirmed_at_5_s();
        assert!(standing.is_confirmed(13_000 * MS - 1));
        assert!(!standing.is_confirmed(13_000 * MS));
    }

    #[test]
    fn a_claim_that_is_said_to_be_lost_is_over_at_once() {
        let standing = confirmed_at_5_s();
        standing.lose();
        assert!(!standing.is_confirmed(5000 * MS));
    }

    #[test]
    fn work_has_a_tenth_of_the_lease_to_stop_and_ends_at_nine_tenths() {
        let standing = confirmed_at_5_s();
        assert_eq!(standing.stopped_by_ns(6000 * MS), 7000 * MS);
        assert_eq!(standing.stopped_by_ns(13_000 * MS), 14_000 * MS);
        assert_eq!(standing.stopped_by_ns(13_500 * MS), 14_000 * MS);
        assert_eq!(standing.stopped_by_ns(60_000 * MS), 14_000 * MS);
    }
}
