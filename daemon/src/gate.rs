//! The gate of the grant path: a deadline that every shard compares itself, once a turn.
//!
//! A deadline and not a message: a process that was stopped past it grants and confirms nothing when it
//! wakes, whatever still lies in its queues. Each opening has a number. What belongs to one is never
//! confirmed in another, and none begins before every shard has ended all sessions of the last.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use locks::Opening;
use tokio::sync::Notify;

use crate::clock;

/// A deadline that has passed for good. Nothing turns it back into an open gate but a new opening.
const CLOSED: u64 = 0;

/// The deadline of a server that needs nobody's leave to grant.
pub(crate) const FOREVER: u64 = u64::MAX;

/// Until when this process may grant and confirm. One owner opens, extends and closes it; everybody looks.
#[derive(Debug)]
pub(crate) struct Gate {
    /// CLOCK_BOOTTIME, ns.
    open_until_ns: AtomicU64,
    /// The number of the last opening; 0 before the first.
    opening: AtomicU64,
    /// The last opening that its owner has closed.
    closed: AtomicU64,
    /// Never cleared, and stronger than any deadline: what comes late must not open the gate again.
    is_shutting_down: AtomicBool,
    /// For each shard, the last closed opening of which it has no session left.
    confirmed: Box<[AtomicU64]>,
    all_may_have_confirmed: Notify,
}

/// The gate cannot open: it is open, or sessions of its last opening are left.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("sessions of the last opening are left")]
pub(crate) struct StillInUse;

/// The deadline has passed. The opening is over.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("the deadline of the gate has passed")]
pub(crate) struct Lapsed;

impl Gate {
    /// The gate of a server without a standby: open until shutdown.
    pub(crate) fn standalone(shards: usize) -> Self {
        let gate = Self::standby(shards);
        gate.open(FOREVER).expect("it has never been open");
        gate
    }

    /// A closed gate.
    pub(crate) fn standby(shards: usize) -> Self {
        Self {
            open_until_ns: AtomicU64::new(CLOSED),
            opening: AtomicU64::new(0),
            closed: AtomicU64::new(0),
            is_shutting_down: AtomicBool::new(false),
            confirmed: (0..shards).map(|_| AtomicU64::new(0)).collect(),
            all_may_have_confirmed: Notify::new(),
        }
    }

    /// Opens the gate until that time, CLOCK_BOOTTIME in ns. The shards are to be woken afterwards.
    ///
    /// # Errors
    ///
    /// The last opening is not over on every shard.
    pub(crate) fn open(&self, until_ns: u64) -> Result<Opening, StillInUse> {
        let last = self.opening.load(Ordering::SeqCst);
        if self.closed.load(Ordering::SeqCst) != last || !self.is_closed_everywhere() {
            return Err(StillInUse);
        }
        // The number before the deadline: who sees the deadline sees its number.
        self.opening.store(last + 1, Ordering::SeqCst);
        self.open_until_ns.store(until_ns, Ordering::SeqCst);
        Ok(Opening(last + 1))
    }

    /// Lets an open gate stay open longer.
    ///
    /// # Errors
    ///
    /// The deadline has passed: nothing extends it any more.
    #[cfg_attr(not(test), expect(dead_code, reason = "for the coordinator's keep-alives"))]
    pub(crate) fn extend(&self, until_ns: u64) -> Result<(), Lapsed> {
        let extend = |old_ns: u64| (clock::boot_ns() < old_ns).then(|| until_ns.max(old_ns));
        let old_ns = self.open_until_ns.fetch_update(Ordering::SeqCst, Ordering::SeqCst, extend);
        // This thread may have been stopped after its look at the clock.
        match old_ns {
            Ok(old_ns) if clock::boot_ns() < old_ns => Ok(()),
            _ => {
                self.open_until_ns.store(CLOSED, Ordering::SeqCst);
                Err(Lapsed)
            }
        }
    }

    /// Ends the opening. The shards are to be woken afterwards: they end its sessions, and confirm.
    pub(crate) fn close(&self) {
        self.open_until_ns.store(CLOSED, Ordering::SeqCst);
        self.closed.store(self.opening.load(Ordering::SeqCst), Ordering::SeqCst);
    }

    /// Closes the gate for good. Comes before any session is ended, so that no ended session promotes a
    /// waiter.
    pub(crate) fn shut_down(&self) {
        self.is_shutting_down.store(true, Ordering::SeqCst);
        self.close();
    }

    /// The gate as it stands now.
    pub(crate) fn look(&self) -> locks::Gate {
        if self.is_shutting_down.load(Ordering::SeqCst) {
            return locks::Gate::ShuttingDown;
        }
        let open_until_ns = self.open_until_ns.load(Ordering::SeqCst);
        if open_until_ns == FOREVER || clock::boot_ns() < open_until_ns {
            return locks::Gate::Open(Opening(self.opening.load(Ordering::SeqCst)));
        }
        // Who has seen the deadline pass closes the gate for everybody.
        let _ =
            self.open_until_ns.compare_exchange(open_until_ns, CLOSED, Ordering::SeqCst, Ordering::SeqCst);
        locks::Gate::Standby
    }

    /// How long the gate stays open if nobody extends it; none when it is closed or has no deadline.
    pub(crate) fn remaining_ns(&self) -> Option<u64> {
        match self.open_until_ns.load(Ordering::SeqCst) {
            CLOSED | FOREVER => None,
            open_until_ns => Some(open_until_ns.saturating_sub(clock::boot_ns())),
        }
    }

    /// The last opening that was closed, for [`Gate::confirm`]. To be read before [`Gate::look`]: an opening
    /// may begin in between, and that one is not closed.
    pub(crate) fn last_closed(&self) -> Opening {
        Opening(self.closed.load(Ordering::SeqCst))
    }

    /// A shard that has no session has seen the gate closed after it read this number.
    pub(crate) fn confirm(&self, shard: usize, closed: Opening) {
        if self.confirmed[shard].fetch_max(closed.0, Ordering::SeqCst) < closed.0 {
            self.all_may_have_confirmed.notify_waiters();
        }
    }

    /// Whether the gate is closed, and no shard has a session left of any opening so far.
    pub(crate) fn is_closed_everywhere(&self) -> bool {
        let last = self.opening.load(Ordering::SeqCst);
        self.open_until_ns.load(Ordering::SeqCst) == CLOSED
            && self.confirmed.iter().all(|confirmed| confirmed.load(Ordering::SeqCst) == last)
    }

    /// Waits until [`Gate::is_closed_everywhere`].
    pub(crate) async fn closed_everywhere(&self) {
        loop {
            let confirmed = self.all_may_have_confirmed.notified();
            tokio::pin!(confirmed);
            confirmed.as_mut().enable();
            if self.is_closed_everywhere() {
                return;
            }
            confirmed.await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LATER_NS: u64 = 1_000_000_000_000;
    const FIRST: locks::Gate = locks::Gate::Open(Opening::FIRST);

    /// What a shard without sessions does in its turn.
    fn turn(gate: &Gate, shard: usize) -> locks::Gate {
        let closed = gate.last_closed();
        let seen = gate.look();
        if !seen.is_open() {
            gate.confirm(shard, closed);
        }
        seen
    }

    #[test]
    fn a_deadline_that_has_passed_closes_the_gate_without_a_message() {
        let gate = Gate::standby(1);
        gate.open(clock::boot_ns() + LATER_NS).unwrap();
        assert_eq!(gate.look(), FIRST);
        gate.open_until_ns.store(clock::boot_ns() - 1, Ordering::SeqCst);
        assert_eq!(gate.look(), locks::Gate::Standby);
    }

    #[test]
    fn a_deadline_that_has_passed_is_never_extended() {
        let gate = Gate::standby(1);
        gate.open(clock::boot_ns() + LATER_NS).unwrap();
        assert_eq!(gate.extend(clock::boot_ns() + 2 * LATER_NS), Ok(()));
        assert!(gate.remaining_ns().unwrap() > LATER_NS);
        // Nobody but the owner of the deadline has looked.
        gate.open_until_ns.store(clock::boot_ns() - 1, Ordering::SeqCst);
        assert_eq!(gate.extend(clock::boot_ns() + LATER_NS), Err(Lapsed));
        assert_eq!(gate.look(), locks::Gate::Standby);
        assert_eq!(gate.extend(clock::boot_ns() + LATER_NS), Err(Lapsed));
        assert_eq!(gate.open(clock::boot_ns() + LATER_NS), Err(StillInUse), "it is closed first");
    }

    #[test]
    fn an_opening_begins_only_when_every_shard_has_confirmed_the_end_of_the_last() {
        let gate = Gate::standby(2);
        assert_eq!(gate.open(FOREVER), Ok(Opening::FIRST));
        assert_eq!(gate.open(FOREVER), Err(StillInUse));
        gate.close();
        assert_eq!(turn(&gate, 0), locks::Gate::Standby);
        assert_eq!(gate.open(FOREVER), Err(StillInUse));
        assert_eq!(turn(&gate, 1), locks::Gate::Standby);
        assert_eq!(gate.open(FOREVER), Ok(Opening(2)));
        assert_eq!(turn(&gate, 0), locks::Gate::Open(Opening(2)));
    }

    #[test]
    fn a_shard_that_was_held_up_over_an_opening_confirms_only_what_it_saw_closed() {
        let gate = Gate::standby(1);
        let closed = gate.last_closed();
        assert_eq!(gate.look(), locks::Gate::Standby);
        gate.open(FOREVER).unwrap();
        gate.confirm(0, closed);
        gate.close();
        assert!(!gate.is_closed_everywhere(), "it may have sessions of this opening");
    }

    #[test]
    fn a_shutdown_is_not_undone_by_what_comes_later() {
        let gate = Gate::standalone(1);
        assert_eq!(gate.look(), FIRST);
        gate.shut_down();
        assert_eq!(turn(&gate, 0), locks::Gate::ShuttingDown);
        gate.open(FOREVER).unwrap();
        assert_eq!(gate.look(), locks::Gate::ShuttingDown);
    }

    #[tokio::test]
    async fn who_waits_for_the_end_of_an_opening_hears_of_it() {
        let gate = std::sync::Arc::new(Gate::standalone(2));
        gate.close();
        let waits = tokio::spawn({
            let gate = std::sync::Arc::clone(&gate);
            async move { gate.closed_everywhere().await }
        });
        turn(&gate, 1);
        tokio::task::yield_now().await;
        assert!(!waits.is_finished());
        turn(&gate, 0);
        waits.await.unwrap();
    }
}
