//! What is counted of a node: for `/metrics`, which reads it from another thread.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use ha::pair::Role;

use super::seen::Seen;

/// Fence levels that are told apart; a further one counts as the last.
pub(crate) const LEVELS_MAX: usize = 8;

/// Fence times that are kept for the next scrape.
const FENCE_TIMES_MAX: usize = 1000;

/// What a node became.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Transition {
    Active,
    Standby,
}

/// The numbers of a node.
#[derive(Debug, Default)]
pub(crate) struct HaMetrics {
    role: AtomicU64,
    term: AtomicU64,
    is_held: AtomicBool,
    gives_address: AtomicBool,
    became_active: AtomicU64,
    became_standby: AtomicU64,
    /// By level, and then: not confirmed, confirmed.
    fences: [[AtomicU64; 2]; LEVELS_MAX],
    /// How long fence levels took that nobody has read yet, in seconds.
    fence_times: Mutex<Vec<f64>>,
    warnings: AtomicU64,
    /// By how many ns the peer's wall clock is ahead; as i64.
    clock_offset_ns: AtomicU64,
}

/// The roles, in the order of their metric.
pub(crate) const ROLES: [(Role, &str); 3] =
    [(Role::Standby, "standby"), (Role::FencePending, "fence_pending"), (Role::Active, "active")];

impl HaMetrics {
    pub(super) fn show(&self, seen: &Seen) {
        let role = ROLES.iter().position(|(role, _)| *role == seen.status.role).unwrap_or(0);
        self.role.store(role as u64, Ordering::Relaxed);
        let term = seen.stored.promise.as_ref().map_or(0, |term| term.counter);
        self.term.store(term, Ordering::Relaxed);
        self.is_held.store(seen.status.held, Ordering::Relaxed);
        self.gives_address.store(seen.gives_address, Ordering::Relaxed);
    }

    pub(super) fn transition(&self, to: Transition) {
        let count = match to {
            Transition::Active => &self.became_active,
            Transition::Standby => &self.became_standby,
        };
        count.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn fenced(&self, level: usize, confirmed: bool, took: Option<Duration>) {
        let mut times = self.fence_times.lock().unwrap_or_else(PoisonError::into_inner);
        // Without anybody who scrapes there is no end to it.
        if let Some(took) = took.filter(|_| times.len() < FENCE_TIMES_MAX) {
            times.push(took.as_secs_f64());
        }
        let level = level.min(LEVELS_MAX - 1);
        self.fences[level][usize::from(confirmed)].fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn warned(&self) {
        self.warnings.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn peer_clock_is_ahead_by(&self, ns: i64) {
        self.clock_offset_ns.store(ns.cast_unsigned(), Ordering::Relaxed);
    }

    /// 1 for the role that the node has.
    pub(crate) fn role(&self, of: usize) -> u64 {
        u64::from(self.role.load(Ordering::Relaxed) == of as u64)
    }

    /// A switchover moves the address to the peer.
    pub(crate) fn gives_address(&self) -> bool {
        self.gives_address.load(Ordering::Relaxed)
    }

    /// It wants to be active, and may not yet.
    pub(crate) fn is_fence_pending(&self) -> bool {
        ROLES[self.role.load(Ordering::Relaxed) as usize].0 == Role::FencePending
    }

    /// The counter of the highest promised term.
    pub(crate) fn term(&self) -> u64 {
        self.term.load(Ordering::Relaxed)
    }

    pub(crate) fn is_held(&self) -> bool {
        self.is_held.load(Ordering::Relaxed)
    }

    pub(crate) fn transitions(&self, to: Transition) -> u64 {
        match to {
            Transition::Active => self.became_active.load(Ordering::Relaxed),
            Transition::Standby => self.became_standby.load(Ordering::Relaxed),
        }
    }

    pub(crate) fn fences(&self, level: usize, confirmed: bool) -> u64 {
        self.fences[level][usize::from(confirmed)].load(Ordering::Relaxed)
    }

    /// Those that came since the last call.
    pub(crate) fn take_fence_times(&self) -> Vec<f64> {
        std::mem::take(&mut *self.fence_times.lock().unwrap_or_else(PoisonError::into_inner))
    }

    pub(crate) fn warnings(&self) -> u64 {
        self.warnings.load(Ordering::Relaxed)
    }

    /// In seconds: above 0 when the peer's clock is ahead.
    pub(crate) fn peer_clock_offset_s(&self) -> f64 {
        self.clock_offset_ns.load(Ordering::Relaxed).cast_signed() as f64 / 1e9
    }
}
