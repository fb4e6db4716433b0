//! Turns: a lock for which someone waits does not stand still.

use super::violation::Violation;
use crate::logs::history::{Claim, History};

/// The longest hold, in leases: some heartbeats, and a lock that still moves. The clients keep to it.
pub const HOLD_LEASES_MAX: u32 = 2;

/// What a turn may take beyond the holder's time: a machine that is busy with hundreds of clients, and then
/// some.
const SLACK_NS: u64 = 3_000_000_000;

/// While someone waits, the lock moves on: no pause between two grants is longer than a turn may be. A claim
/// that ended without a word may have had a turn of its own.
pub(super) fn check(history: &History, queue: &[&Claim]) -> Vec<Violation> {
    let lease_max_ns = queue.iter().map(|claim| claim.lease_ns).max().unwrap_or(0);
    let turn_max_ns = lease_max_ns * u64::from(HOLD_LEASES_MAX + 1) + SLACK_NS;
    let mut grants: Vec<u64> = queue.iter().filter_map(|claim| Some(claim.grant?.read_ns)).collect();
    grants.sort_unstable();
    let gone_ns = |claim: &Claim| claim.end.map(|(end_ns, _)| end_ns).or(history.killed_ns(claim));
    let silent: Vec<u64> =
        queue.iter().filter(|claim| claim.grant.is_none()).filter_map(|claim| gone_ns(claim)).collect();
    let mut found = Vec::new();
    for claim in queue {
        let until_ns = claim.grant.map(|grant| grant.read_ns).or(claim.queued_until_ns);
        let (Some(queued_ns), Some(until_ns)) = (claim.queued_ns, until_ns) else { continue };
        let first = grants.partition_point(|&grant_ns| grant_ns <= queued_ns);
        let mut from_ns = queued_ns;
        for to_ns in grants[first..].iter().copied().take_while(|&to_ns| to_ns < until_ns).chain([until_ns]) {
            let idle_ns = to_ns.saturating_sub(from_ns);
            if idle_ns > turn_max_ns {
                let unseen = silent.iter().filter(|&&gone_ns| gone_ns >= from_ns).count() as u64;
                if idle_ns > turn_max_ns + unseen * lease_max_ns {
                    let what =
                        format!("it waited, and nobody was granted the lock for {} ms", idle_ns / 1_000_000);
                    found.push(Violation::of(claim, what));
                    break;
                }
            }
            from_ns = to_ns;
        }
    }
    found
}
