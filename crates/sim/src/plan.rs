//! What a seed decides before anything happens: who takes part, how long, and over what kind of network.

use fastrand::Rng;
use protocol::Lease;

use crate::sabotage::Sabotage;

const NS_PER_MS: u64 = 1_000_000;

/// A run is this many of its longest lease long, before the faults end.
const FAULTY_LEASES: u64 = 60;

/// After the last fault: the longest one lasts 3 leases, and what it left behind expires within one more.
const AFTERMATH_LEASES: u64 = 5;

/// The work under a lock in the quiet time at the end.
const QUIET_WORK_LEASES_MAX: u64 = 1;

/// Hosts' clocks are at most this much faster than the slowest. 0.8 × lease bears 1 / 0.8 = 1.25, less what a
/// millisecond of the server's lease wheel and the network leave of it.
const RATE_PERMILLE_MAX: u64 = 1200;
const RATE_PERMILLE_TOO_FAR: u64 = 1400;

/// Upstream's client keeps at least 100 ms between heartbeats, which needs leases well above 400 ms.
const GENTLE_LEASE_MS_MIN: u32 = 600;

/// What the network and the hosts may do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Climate {
    /// Any delay, any stop, clocks of different rates: for claims of ours alone.
    Rough,
    /// What upstream's rules bear: equal rates, a delay below 0.2 × lease in each direction or none at all,
    /// and no stop of its clients.
    Gentle,
}

/// Whose rules a client follows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Ours,
    Upstream,
}

/// A client that takes part.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Participant {
    pub(crate) kind: Kind,
    pub(crate) lease: Lease,
}

/// Everything that holds for a whole run.
#[derive(Debug, Clone)]
pub(crate) struct Plan {
    pub(crate) climate: Climate,
    rate_permille_max: u64,
    pub(crate) participants: Vec<Participant>,
    pub(crate) locks: usize,
    pub(crate) shards: usize,
    /// Two hosts, and a gate that is a deadline; else one host whose gate is always open.
    pub(crate) has_standby: bool,
    /// A server without a standby puts its tokens aside on a disk that outlasts it: then its wall clock may
    /// step back as it likes.
    pub(crate) has_token_file: bool,
    /// Strangers flood the shards: at no time is a completion queue empty after an enter.
    pub(crate) is_flooded: bool,
    /// The longest lease.
    pub(crate) lease_ns: u64,
    /// How many segments in a thousand have a long way.
    pub(crate) rough_permille: u32,
    /// The mean time between faults.
    pub(crate) fault_pause_ns: u64,
    pub(crate) faults_end_ns: u64,
    /// From here on nothing keeps a waiter from its turn.
    pub(crate) quiet_ns: u64,
    /// No live waiter waits longer than this in the quiet time.
    pub(crate) wait_ns_max: u64,
    pub(crate) end_ns: u64,
}

impl Plan {
    pub(crate) fn new(rng: &mut Rng, sabotage: Sabotage) -> Self {
        let climate = if rng.u32(..3) == 0 { Climate::Gentle } else { Climate::Rough };
        let lease_ms = match climate {
            Climate::Rough => [5, 50, 200, 1000, 10_000, 60_000][rng.usize(..6)],
            Climate::Gentle => [GENTLE_LEASE_MS_MIN, 1000, 10_000][rng.usize(..3)],
        };
        // Of equal claims only the order tells who should be next.
        let lease_ms_max = if sabotage == Sabotage::QueuesLastFirst { lease_ms } else { 2 * lease_ms };
        let participants: Vec<_> = (0..rng.usize(3..=6))
            .map(|_| Participant {
                kind: kind(rng, climate, sabotage),
                lease: Lease::from_ms(rng.u32(lease_ms..=lease_ms_max)).expect("not zero"),
            })
            .collect();
        let lease_ns = participants.iter().map(|one| one.lease.as_ns()).max().expect("at least three");
        let faults_end_ns = FAULTY_LEASES * lease_ns;
        let quiet_ns = faults_end_ns + AFTERMATH_LEASES * lease_ns;
        // Each of the others may come first, work, and take half a lease to hand over; one of them may have
        // died.
        let turns = participants.len() as u64;
        let wait_ns_max = turns * (2 * QUIET_WORK_LEASES_MAX + 1) * lease_ns / 2 + 2 * lease_ns;
        let (locks, shards, has_standby) = (rng.usize(1..=3), rng.usize(1..=2), rng.bool());
        Self {
            climate,
            rate_permille_max: match sabotage {
                Sabotage::ClocksTooFarApart => RATE_PERMILLE_TOO_FAR,
                _ => RATE_PERMILLE_MAX,
            },
            locks,
            shards,
            has_standby,
            // Without a draw of its own.
            has_token_file: !has_standby && rng.clone().bool(),
            is_flooded: rng.bool(),
            lease_ns,
            rough_permille: [0, 20, 100, 400][rng.usize(..4)],
            fault_pause_ns: lease_ns * rng.u64(2..=20) / 10,
            faults_end_ns,
            quiet_ns,
            wait_ns_max,
            end_ns: quiet_ns + wait_ns_max + 2 * lease_ns,
            participants,
        }
    }

    /// The rate of a host's clock.
    pub(crate) fn rate_permille(&self, rng: &mut Rng) -> u64 {
        match self.climate {
            Climate::Rough => {
                let fastest = self.rate_permille_max;
                [1000, rng.u64(1000..=fastest), fastest][rng.usize(..3)]
            }
            Climate::Gentle => 1000,
        }
    }

    /// How long someone works under a lock.
    pub(crate) fn work_ns(&self, rng: &mut Rng, now_ns: u64) -> u64 {
        let leases_max = if now_ns < self.faults_end_ns { 3 } else { QUIET_WORK_LEASES_MAX };
        rng.u64(..leases_max * self.lease_ns)
    }

    /// The time that a segment takes on a free way.
    pub(crate) fn delay_ns(&self, rng: &mut Rng, now_ns: u64, lease_ns: u64) -> u64 {
        let is_rough = now_ns < self.faults_end_ns && rng.u32(..1000) < self.rough_permille;
        match (self.climate, is_rough) {
            // A lost segment is sent again after 0.2 s, 0.4 s …
            (Climate::Rough, true) if rng.u32(..8) == 0 => rng.u64(..2 * lease_ns),
            (Climate::Rough, true) => rng.u64(..lease_ns / 2),
            (Climate::Gentle, true) => rng.u64(..lease_ns * 17 / 100),
            (_, false) => rng.u64(..(lease_ns / 50).min(5 * NS_PER_MS)),
        }
    }
}

fn kind(rng: &mut Rng, climate: Climate, sabotage: Sabotage) -> Kind {
    let upstream = match climate {
        Climate::Rough => sabotage == Sabotage::UpstreamInRoughNetwork,
        Climate::Gentle => rng.u32(..3) > 0,
    };
    if upstream { Kind::Upstream } else { Kind::Ours }
}
