//! What runs were made of, in numbers.

use std::fmt;

use crate::faults::Fault;

/// Counts of one run, or of many.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Figures {
    /// Runs.
    pub seeds: u64,
    /// Virtual time, ms.
    pub simulated_ms: u64,
    /// The same, in longest leases of each run.
    pub leases: u64,
    /// Steps of the world, each checked.
    pub steps: u64,
    /// Claims: ACQUIREs that a server took.
    pub claims: u64,
    /// Grants, of which `pushes` were promotions of waiters.
    pub grants: u64,
    /// Grants to claims that had waited.
    pub pushes: u64,
    /// Grants by a look at the gate that was in time, carried out when it was closed.
    pub late_grants: u64,
    /// Heartbeats that were answered.
    pub heartbeats: u64,
    /// Claims that a server ended because their lease was over.
    pub expiries: u64,
    /// Overdue sessions with unread input, which were spared.
    pub spared: u64,
    /// Holders whose lock stayed reserved without I/O.
    pub reserved: u64,
    /// Claims that their clients found lost.
    pub losses: u64,
    /// Connections whose local kernel gave up.
    pub kernels_gave_up: u64,
    /// Server processes that started after the first.
    pub restarts: u64,
    /// Times that another server became the active one.
    pub failovers: u64,
    /// Writes that the guarded resource took, and those that it refused.
    pub writes: [u64; 2],
    /// The longest wait of a waiter in the quiet time, in thousandths of what is allowed.
    pub quiet_wait_permille_max: u64,
    /// Faults by kind, in the order of [`Fault::ALL`].
    pub faults: [u64; Fault::ALL.len()],
}

impl Figures {
    /// Adds another run's counts.
    pub fn add(&mut self, other: &Self) {
        self.seeds += other.seeds;
        self.simulated_ms += other.simulated_ms;
        self.leases += other.leases;
        self.steps += other.steps;
        self.claims += other.claims;
        self.grants += other.grants;
        self.pushes += other.pushes;
        self.late_grants += other.late_grants;
        self.heartbeats += other.heartbeats;
        self.expiries += other.expiries;
        self.spared += other.spared;
        self.reserved += other.reserved;
        self.losses += other.losses;
        self.kernels_gave_up += other.kernels_gave_up;
        self.restarts += other.restarts;
        self.failovers += other.failovers;
        self.writes = [self.writes[0] + other.writes[0], self.writes[1] + other.writes[1]];
        self.quiet_wait_permille_max = self.quiet_wait_permille_max.max(other.quiet_wait_permille_max);
        for (mine, others) in self.faults.iter_mut().zip(other.faults) {
            *mine += others;
        }
    }
}

impl fmt::Display for Figures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut line = |name: &str, count: u64| writeln!(f, "{name:<28} {count:>14}");
        line("seeds", self.seeds)?;
        line("simulated seconds", self.simulated_ms / 1000)?;
        line("simulated longest leases", self.leases)?;
        line("steps, each checked", self.steps)?;
        line("claims", self.claims)?;
        line("grants", self.grants)?;
        line("  to waiters", self.pushes)?;
        line("  by a look held up too long", self.late_grants)?;
        line("heartbeats answered", self.heartbeats)?;
        line("expiries", self.expiries)?;
        line("spared: heard after all", self.spared)?;
        line("reserved without I/O", self.reserved)?;
        line("claims found lost", self.losses)?;
        line("kernels that gave up", self.kernels_gave_up)?;
        line("server restarts", self.restarts)?;
        line("failovers", self.failovers)?;
        line("guarded writes taken", self.writes[0])?;
        line("guarded writes refused", self.writes[1])?;
        line("longest quiet wait, ‰ of max", self.quiet_wait_permille_max)?;
        line("faults", self.faults.iter().sum())?;
        for (fault, count) in Fault::ALL.iter().zip(self.faults) {
            line(&format!("  {}", fault.name()), count)?;
        }
        Ok(())
    }
}
