//! What a history may not show: each promise of the server, and of the client, that logs can tell to be broken.

use std::collections::BTreeMap;
use std::fmt;

use locks::Reason;
use locks::checker::{Checker, Event};
use protocol::ErrorCode;

use super::entry::{Cause, ClaimId};
use super::history::{Claim, End, History, Life};
use super::{HOLD_LEASES_MAX, agreement, deeds, order, ownership};

/// What a turn may take beyond the holder's time: a machine that is busy with hundreds of clients, and then some.
const SLACK_NS: u64 = 3_000_000_000;

/// A broken promise, and the claims that show it: two at most.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Violation {
    pub(super) what: String,
    pub(super) claims: Vec<ClaimId>,
}

impl Violation {
    pub(super) fn of(claim: &Claim, what: impl Into<String>) -> Self {
        Self { what: what.into(), claims: vec![claim.id] }
    }

    pub(super) fn of_both(claim: &Claim, other: &Claim, what: impl Into<String>) -> Self {
        Self { what: what.into(), claims: vec![claim.id, other.id] }
    }

    pub(super) fn of_audit(what: impl fmt::Display) -> Self {
        Self { what: format!("audit log: {what}"), claims: Vec::new() }
    }
}

/// The claims of one server life at one lock: the reach of exclusion and of a queue.
pub(super) type Queues<'a> = BTreeMap<(usize, u32), Vec<&'a Claim>>;

/// Everything that is wrong.
pub(super) fn check(history: &History) -> Vec<Violation> {
    let mut found = Vec::new();
    let mut queues = Queues::new();
    for claim in history.claims.values() {
        match history.life_of(claim) {
            Some(life) => queues.entry((life, claim.lock)).or_default().push(claim),
            None if claim.answered_ns().is_some() => {
                found.push(Violation::of(claim, "it was answered while no server lived"));
            }
            None => {}
        }
        found.extend(check_end(history, claim));
    }
    found.extend(check_exclusion(history));
    found.extend(order::check_tokens(history));
    for queue in queues.values() {
        found.extend(order::check_queue(queue));
        found.extend(check_turns(history, queue));
    }
    found.extend(check_writes(history));
    found.extend(deeds::check(history));
    found.extend(ownership::check(&history.audit, &history.lives));
    found.extend(agreement::compare(history).violations);
    found
}

/// Beliefs of one lock do not overlap within a server's life, and their tokens grow, from life to life too.
fn check_exclusion(history: &History) -> Vec<Violation> {
    let mut events: BTreeMap<u32, Vec<(u64, bool, &Claim)>> = BTreeMap::new();
    for claim in history.claims.values() {
        let Some(life) = history.life_of(claim) else { continue };
        let Some((start_ns, end_ns)) = history.belief_ns(claim) else { continue };
        // A lock is lost with its server; the token decides against the next one's holder.
        let end_ns = end_ns.min(history.lives[life].ended_ns);
        // It is lost by force as well, and the client may hear of it late.
        let forced_ns = claim.grant.and_then(|grant| deeds::forced_ns(history, grant.token));
        let end_ns = end_ns.min(forced_ns.unwrap_or(u64::MAX));
        if start_ns < end_ns {
            events.entry(claim.lock).or_default().extend([(start_ns, true, claim), (end_ns, false, claim)]);
        }
    }
    events.into_values().filter_map(|events| check_beliefs(history, events)).collect()
}

/// The first fault of one lock; what comes after it has no meaning.
fn check_beliefs(history: &History, mut events: Vec<(u64, bool, &Claim)>) -> Option<Violation> {
    events.sort_by_key(|&(at_ns, begins, claim)| (at_ns, begins, claim.id));
    let mut checker = Checker::new();
    let mut last: Option<&Claim> = None;
    for (at_ns, begins, claim) in events {
        let token = claim.grant.expect("a belief has a grant").token;
        let holder = checker.holder(&claim.lock).map(|holder| &history.claims[&holder]);
        let event = if begins {
            Event::Granted { claim: claim.id, token }
        } else {
            Event::Released { claim: claim.id, token, reason: Reason::Graceful }
        };
        if let Err(violation) = checker.observe(at_ns, &claim.lock, event) {
            let what = violation.to_string();
            return Some(match holder.or(last) {
                Some(other) => Violation::of_both(other, claim, what),
                None => Violation::of(claim, what),
            });
        }
        last = Some(claim);
    }
    None
}

/// A claim ends by its client, by its client's silence, or by the end of its server.
fn check_end(history: &History, claim: &Claim) -> Option<Violation> {
    let (end_ns, End::Lost(cause)) = claim.end? else { return None };
    match cause {
        Cause::Violation => return Some(Violation::of(claim, "the server broke the protocol")),
        Cause::Error(code) if ErrorCode(code) == ErrorCode::CLOSED_BY_ADMINISTRATOR => {
            let what = "it was closed by an administrator who did nothing to it";
            return (!deeds::explain(history, claim, end_ns)).then(|| Violation::of(claim, what));
        }
        Cause::Error(code) if ErrorCode(code) != ErrorCode::SHUTTING_DOWN => {
            return Some(Violation::of(
                claim,
                format!("it was ended by ERROR {code}, which nothing here asks for"),
            ));
        }
        _ => {}
    }
    // A connection that was opened before the server's begin, and never answered, may have been to the one before.
    let life = history.life_of(claim).map(|life| history.lives[life]);
    let life = life.filter(|life| claim.answered_ns().is_some() || claim.opened_ns >= life.start_ns)?;
    let ending = life.signal.filter(|&(signal_ns, _)| signal_ns <= end_ns);
    let what = match (cause, ending) {
        (Cause::Error(_), None) => "it was told of a shutdown that nobody asked for",
        (Cause::Closed | Cause::Broken, None) => {
            "it was closed without ERROR though it was confirmed in time"
        }
        (Cause::Closed | Cause::Broken, Some((_, false))) if claim.answered_ns().is_some() => {
            "it was closed without ERROR at a shutdown in order"
        }
        (Cause::Timeout, None) if !is_excused(history, claim, end_ns) => {
            "its heartbeat, or its ACQUIRE, was not answered in time"
        }
        _ => return None,
    };
    Some(Violation::of(claim, what))
}

/// Whether the client itself was stopped while it should have been confirmed.
fn is_excused(history: &History, claim: &Claim, end_ns: u64) -> bool {
    let confirmed_ns = claim.confirmed_ns.or(claim.sent_ns).unwrap_or(claim.opened_ns);
    history.fates.get(&claim.id.client).is_some_and(|fate| fate.was_stopped_within(confirmed_ns, end_ns))
}

/// While someone waits, the lock moves on: no pause between two grants is longer than a turn may be. A claim that ended
/// without a word may have had a turn of its own.
fn check_turns(history: &History, queue: &[&Claim]) -> Vec<Violation> {
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

/// Every write was made by a client that believed that it holds the lock when it looked.
fn check_writes(history: &History) -> Vec<Violation> {
    let mut found = Vec::new();
    for write in history.registers.values().flatten() {
        let Some(claim) = history.claims.get(&write.claim) else {
            found.push(Violation { what: "it wrote, and is not known".into(), claims: vec![write.claim] });
            continue;
        };
        let is_right = claim.grant.is_some_and(|grant| {
            let belief_ns = grant.read_ns..claim.belief_end_ns();
            grant.token == write.token && belief_ns.contains(&write.looked_ns)
        });
        if !is_right {
            found.push(Violation::of(
                claim,
                format!("it wrote at {} without holding the lock", write.looked_ns),
            ));
        }
    }
    found
}

/// What the registers did with the writes that reached them: accept, unless a newer token had come before.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Writes {
    pub(super) accepted: u64,
    /// Refused: the newer token is of the same server life. The writer was stopped after it had looked.
    pub(super) stale_within_a_life: u64,
    /// Refused: the newer token is of a later server life.
    pub(super) stale_across_lives: u64,
}

/// Lets each register decide about its writes, in the order in which they came.
pub(super) fn replay(history: &History) -> Writes {
    let mut writes = Writes::default();
    let life = |claim: ClaimId| history.claims.get(&claim).and_then(|claim| history.life_of(claim));
    for register in history.registers.values() {
        let mut newest = None;
        for write in register {
            match newest {
                Some((token, claim)) if write.token < token => {
                    let within = life(claim) == life(write.claim);
                    *(if within {
                        &mut writes.stale_within_a_life
                    } else {
                        &mut writes.stale_across_lives
                    }) += 1;
                }
                _ => {
                    newest = Some((write.token, write.claim));
                    writes.accepted += 1;
                }
            }
        }
    }
    writes
}

/// The clients that a server's end cut off, and how long after the next one listened each was answered again: sorted.
/// Those that were killed or stopped meanwhile are left out.
pub(super) fn returns_ns(history: &History, life: usize) -> Vec<Option<u64>> {
    let (Some(before), Life { listening_ns, ended_ns, .. }) =
        (life.checked_sub(1).map(|before| history.lives[before]), history.lives[life])
    else {
        return Vec::new();
    };
    let Some((signal_ns, _)) = before.signal else { return Vec::new() };
    let mut cut: BTreeMap<_, Option<u64>> = BTreeMap::new();
    for claim in history.claims.values() {
        let was_cut = claim.answered_ns().is_some_and(|answered_ns| answered_ns < signal_ns)
            && matches!(claim.end, Some((end_ns, End::Lost(_))) if (signal_ns..ended_ns).contains(&end_ns));
        if was_cut {
            cut.insert(claim.id.client, None);
        }
    }
    for claim in history.claims.values() {
        let Some(first) = cut.get_mut(&claim.id.client) else { continue };
        if let Some(answered_ns) = claim.answered_ns().filter(|_| history.life_of(claim) == Some(life)) {
            *first = Some(first.map_or(answered_ns, |first| first.min(answered_ns)));
        }
    }
    cut.retain(|client, first| {
        let until_ns = first.unwrap_or(ended_ns);
        let fate = history.fates.get(client);
        fate.is_none_or(|fate| {
            fate.killed_ns.is_none_or(|killed_ns| killed_ns > until_ns)
                && !fate.was_stopped_within(signal_ns, until_ns)
        })
    });
    let mut returns: Vec<_> =
        cut.into_values().map(|first| first.map(|first_ns| first_ns.saturating_sub(listening_ns))).collect();
    // Those that never came back last.
    returns.sort_by_key(|first| first.unwrap_or(u64::MAX));
    returns
}
