//! What the clients, the servers, the network and the faults of one run share.

use fastrand::Rng;

use crate::agenda::Agenda;
use crate::checks::{Checks, Rule};
use crate::clock::HostClock;
use crate::figures::Figures;
use crate::network::Network;
use crate::plan::Plan;
use crate::sabotage::Sabotage;
use crate::trace::Trace;

/// What everything shares.
#[derive(Debug)]
pub(crate) struct Core {
    pub(crate) now_ns: u64,
    pub(crate) rng: Rng,
    pub(crate) agenda: Agenda,
    pub(crate) network: Network,
    pub(crate) hosts: Vec<HostClock>,
    /// The token ceiling on the disk of the one host that has a token file.
    pub(crate) ceiling_on_disk: u64,
    /// The latest wall-clock time at which an active server looked.
    pub(crate) unix_looked_at_ns: u64,
    pub(crate) checks: Checks,
    pub(crate) figures: Figures,
    pub(crate) plan: Plan,
    pub(crate) sabotage: Sabotage,
    pub(crate) trace: Trace,
}

impl Core {
    pub(crate) fn note(&mut self, who: impl std::fmt::Display, what: impl FnOnce() -> String) {
        self.trace.note(self.now_ns, who, what);
    }

    /// Until its first grant, unless it has a token file, a new active server's wall clock is behind neither
    /// the last token nor the last look of the old one: what the protocol asks of operators. After that it
    /// may step back as it likes.
    pub(crate) fn keep_wall_clock_ahead(&mut self, host: usize, life: usize) {
        let (token, granted_in) = self.checks.last_token();
        if granted_in == life || self.plan.has_token_file {
            return;
        }
        let next = u128::from(token.0) + 2;
        let unix_ns = u64::try_from((next * 1_000_000_000) >> 20).expect("tokens are times");
        self.hosts[host].catch_up(self.now_ns, unix_ns.max(self.unix_looked_at_ns));
    }

    /// A client was granted a lock in the quiet time.
    pub(crate) fn waited(&mut self, client: usize, waited_ns: u64) {
        let permille = waited_ns * 1000 / self.plan.wait_ns_max;
        self.figures.quiet_wait_permille_max = self.figures.quiet_wait_permille_max.max(permille);
        if permille > 1000 {
            let what = format!("client {client} waited {} ms in the quiet time", waited_ns / 1_000_000);
            self.checks.fail(Rule::Liveness, what);
        }
    }
}

/// The name of a lock.
pub(crate) fn lock_name(lock: usize) -> String {
    format!("lock-{lock}")
}
