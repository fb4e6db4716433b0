//! What is kept for a session and for a lock.

use protocol::{Lease, Token};

use crate::Reason;
use crate::wheel::{Timed, Timer};

#[derive(Debug)]
pub(crate) struct Session<C> {
    pub(crate) last_seen_ns: u64,
    pub(crate) lease: Lease,
    /// The record of its lock.
    pub(crate) lock: u32,
    pub(crate) timer: Timer,
    pub(crate) role: Role,
    pub(crate) conn: C,
}

#[derive(Debug)]
pub(crate) enum Role {
    Waiter(Waiter),
    Holder(Holder),
}

#[derive(Debug)]
pub(crate) struct Waiter {
    /// Its place in the order of the table's ACQUIREs.
    pub(crate) sequence: u64,
    pub(crate) queued_ns: u64,
    pub(crate) place: Place,
}

/// Which part of the lock's `Queue` a waiter is in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Place {
    /// In the line, between these two.
    Line { prev: u32, next: u32 },
    /// Aside: under suspicion.
    Suspect,
    /// Back from suspicion.
    Returned,
}

#[derive(Debug)]
pub(crate) struct Holder {
    pub(crate) token: Token,
    pub(crate) granted_ns: u64,
    pub(crate) standing: Standing,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Standing {
    Live,
    Suspect,
    /// Its I/O was given up, and this will be the reason of its release.
    Reserved(Reason),
}

impl<C> Session<C> {
    /// The last moment of its lease, by what was heard so far.
    pub(crate) fn deadline_ns(&self) -> u64 {
        self.last_seen_ns.saturating_add(self.lease.as_ns())
    }

    /// Strictly after the last moment of the lease.
    pub(crate) fn is_overdue(&self, now_ns: u64) -> bool {
        now_ns > self.deadline_ns()
    }

    pub(crate) fn is_reserved(&self) -> bool {
        matches!(self.role, Role::Holder(Holder { standing: Standing::Reserved(_), .. }))
    }

    pub(crate) fn is_suspect(&self) -> bool {
        match &self.role {
            Role::Waiter(waiter) => waiter.place == Place::Suspect,
            Role::Holder(holder) => holder.standing == Standing::Suspect,
        }
    }

    /// # Panics
    ///
    /// The session holds its lock.
    pub(crate) fn waiter(&self) -> &Waiter {
        match &self.role {
            Role::Waiter(waiter) => waiter,
            Role::Holder(_) => panic!("a queue has only waiters"),
        }
    }

    /// # Panics
    ///
    /// The session holds its lock.
    pub(crate) fn waiter_mut(&mut self) -> &mut Waiter {
        match &mut self.role {
            Role::Waiter(waiter) => waiter,
            Role::Holder(_) => panic!("a queue has only waiters"),
        }
    }
}

impl<C> Timed for Session<C> {
    fn timer(&mut self) -> &mut Timer {
        &mut self.timer
    }
}
