//! The gate of the grant path: a deadline that every shard compares itself, once a turn.
//!
//! A deadline and not a message: a process that was stopped past it grants and confirms nothing when it wakes,
//! whatever still lies in its queues.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::clock;

/// `open_until_ns` of a server that needs nobody's leave to grant.
const FOREVER: u64 = u64::MAX;

/// `open_until_ns` once shutdown has begun.
const NEVER: u64 = 0;

/// Until when this process may grant and confirm.
#[derive(Debug)]
pub(crate) struct Gate {
    /// CLOCK_BOOTTIME, ns.
    open_until_ns: AtomicU64,
}

impl Gate {
    /// The gate of a server without a standby: open until shutdown.
    pub(crate) fn standalone() -> Self {
        Self { open_until_ns: AtomicU64::new(FOREVER) }
    }

    /// Closes the gate for good. Comes before any session is ended, so that no ended session promotes a waiter.
    pub(crate) fn shut_down(&self) {
        self.open_until_ns.store(NEVER, Ordering::SeqCst);
    }

    /// The gate as it stands now.
    pub(crate) fn look(&self) -> locks::Gate {
        match self.open_until_ns.load(Ordering::SeqCst) {
            FOREVER => locks::Gate::Open,
            NEVER => locks::Gate::ShuttingDown,
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
        let gate = Gate { open_until_ns: AtomicU64::new(clock::boot_ns() + 1_000_000_000_000) };
        assert_eq!(gate.look(), locks::Gate::Open);
        gate.open_until_ns.store(clock::boot_ns() - 1, Ordering::SeqCst);
        assert_eq!(gate.look(), locks::Gate::Standby);
    }

    #[test]
    fn a_standalone_gate_is_open_until_shutdown() {
        let gate = Gate::standalone();
        assert_eq!(gate.look(), locks::Gate::Open);
        gate.shut_down();
        assert_eq!(gate.look(), locks::Gate::ShuttingDown);
    }
}
