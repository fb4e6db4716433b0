//! What is done to clients and server, and when: the same for the same seed.

use std::time::Duration;

use fastrand::Rng;

/// The longest stop of a client, in leases: past its own claim and well into the next holder's.
const STOP_LEASES_MAX: u32 = 2;

/// Kills a second: one client in this many.
const KILLED_ONE_IN: u64 = 100;

/// Stops a second: one client in this many.
const STOPPED_ONE_IN: u64 = 20;

/// Force-releases a second, and as many kicks: one lock in this many. Its other grants end as before.
const ADMINISTERED_ONE_IN: u64 = 5;

/// Something to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Planned {
    /// SIGKILL to the client in this place.
    Kill(u32),
    /// SIGSTOP.
    Stop(u32),
    /// SIGCONT.
    Continue(u32),
    /// SIGTERM to the server, and a new one.
    RestartByTerm,
    /// SIGKILL to the server, and a new one.
    RestartByKill,
    /// An administrator takes this lock from its holder.
    ForceRelease(u32),
    /// An administrator removes one of this lock's waiters, the one in the place `pick` modulo their number.
    Kick { lock: u32, pick: usize },
}

/// What is done in a run, by the millisecond since its start.
pub(super) fn plan(
    seed: u64,
    clients: u32,
    locks: u32,
    run: Duration,
    lease_max: Duration,
) -> Vec<(u64, Planned)> {
    let mut rng = Rng::with_seed(seed);
    let run_ms = u64::try_from(run.as_millis()).expect("an hour at most");
    let lease_ms = u64::try_from(lease_max.as_millis()).expect("a lease");
    let count = |of: u32, one_in: u64| (u64::from(of) * run_ms / 1000 / one_in).max(1);
    let mut planned = vec![(run_ms / 3, Planned::RestartByTerm), (2 * run_ms / 3, Planned::RestartByKill)];
    for _ in 0..count(clients, KILLED_ONE_IN) {
        planned.push((rng.u64(0..run_ms), Planned::Kill(rng.u32(0..clients))));
    }
    for _ in 0..count(clients, STOPPED_ONE_IN) {
        let (at_ms, place) = (rng.u64(0..run_ms), rng.u32(0..clients));
        let stop_ms = rng.u64(lease_ms / 10..=lease_ms * u64::from(STOP_LEASES_MAX));
        planned.extend([(at_ms, Planned::Stop(place)), (at_ms + stop_ms, Planned::Continue(place))]);
    }
    for _ in 0..count(locks, ADMINISTERED_ONE_IN) {
        planned.push((rng.u64(0..run_ms), Planned::ForceRelease(rng.u32(0..locks))));
        let kick = Planned::Kick { lock: rng.u32(0..locks), pick: rng.usize(..) };
        planned.push((rng.u64(0..run_ms), kick));
    }
    planned.retain(|&(at_ms, _)| at_ms < run_ms);
    planned.sort_by_key(|&(at_ms, _)| at_ms);
    planned
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_gives_the_same_plan_each_time_and_another_one_another() {
        let plan_of = |seed| plan(seed, 50, 5, Duration::from_secs(30), Duration::from_secs(3));
        assert_eq!(plan_of(7), plan_of(7));
        assert_ne!(plan_of(7), plan_of(8));
        assert!(plan_of(7).is_sorted_by_key(|&(at_ms, _)| at_ms));
    }

    #[test]
    fn each_way_to_restart_comes_once() {
        for how in [Planned::RestartByTerm, Planned::RestartByKill] {
            let planned = plan(1, 1, 1, Duration::from_secs(1), Duration::from_secs(1));
            assert_eq!(planned.iter().filter(|&&(_, one)| one == how).count(), 1);
        }
    }
}
