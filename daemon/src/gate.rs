//! The gate of the grant path: a deadline that every shard compares itself, once a turn.
//!
//! A deadline and not a message: a process that was stopped past it grants and confirms nothing when it
//! wakes, whatever still lies in its queues.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crate::clock;

/// `open_until_ns` of a server that needs nobody's leave to grant.
const FOREVER: u64 = u64::MAX;

/// Until when this process may grant and confirm.
#[derive(Debug)]
pub(crate) struct Gate {
    /// CLOCK_BOOTTIME, ns.
    open_until_ns: AtomicU64,
    /// Never cleared, and stronger than any deadline: a renewal that comes late must not open the gate again.
    is_shutting_down: AtomicBool,
}

impl Gate {
    /// The gate of a server without a standby: open until shutdown.
    pub(crate) fn standalone() -> Self {
        Self { open_until_ns: AtomicU64::new(FOREVER), is_shutting_down: AtomicBool::new(false) }
    }

    /// Closes the gate for good. Comes before any session is ended, so that no ended session promotes a
    /// waiter.
    pub(crate) fn shut_down(&self) {
        self.is_shutting_down.store(true, Ordering::SeqCst);
    }

    /// The gate as it stands now.
    pub(crate) fn look(&self) -> locks::Gate {
        if self.is_shutting_down.load(Ordering::SeqCst) {
            return locks::Gate::ShuttingDown;
        }
        match self.open_until_ns.load(Ordering::SeqCst) {
            FOREVER => locks::Gate::Open,
            open_until_ns if clock::boot_ns() < open_until_ns => locks::Gate::Open,
            _ => locks::Gate::Standby,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_deadline_that_has_passed_closes_the_gate_without_a_message() {
        let gate = Gate::standalone();
        gate.open_until_ns.store(clock::boot_ns() + 1_000_000_000_000, Ordering::SeqCst);
        assert_eq!(gate.look(), locks::Gate::Open);
        gate.open_until_ns.store(clock::boot_ns() - 1, Ordering::SeqCst);
        assert_eq!(gate.look(), locks::Gate::Standby);
    }

    #[test]
    fn a_shutdown_is_not_undone_by_a_renewal_that_comes_later() {
        let gate = Gate::standalone();
        assert_eq!(gate.look(), locks::Gate::Open);
        gate.shut_down();
        assert_eq!(gate.look(), locks::Gate::ShuttingDown);
        gate.open_until_ns.store(clock::boot_ns() + 1_000_000_000_000, Ordering::SeqCst);
        assert_eq!(gate.look(), locks::Gate::ShuttingDown);
    }
}
