//! Order, as far as logs of clients can tell: tokens grow, and who surely came first is granted first.

use std::collections::BTreeMap;

use super::violation::Violation;
use crate::logs::history::{Claim, Grant, History};

/// No token is used twice, and a grant that was read before another claim was even sent has the smaller
/// token: of any lock, and across server lives.
pub(super) fn check_tokens(history: &History) -> Vec<Violation> {
    let mut found = Vec::new();
    let mut granted: Vec<(Grant, &Claim)> =
        history.claims.values().filter_map(|claim| Some((claim.grant?, claim))).collect();
    let mut seen: BTreeMap<_, &Claim> = BTreeMap::new();
    for (grant, claim) in &granted {
        if let Some(other) = seen.insert(grant.token, claim) {
            found.push(Violation::of_both(other, claim, format!("token {} was granted twice", grant.token)));
        }
    }
    granted.sort_by_key(|(grant, claim)| (grant.read_ns, claim.id));
    let mut by_send: Vec<_> =
        granted.iter().filter_map(|&(grant, claim)| Some((claim.sent_ns?, grant, claim))).collect();
    by_send.sort_by_key(|&(sent_ns, _, claim)| (sent_ns, claim.id));
    let mut earlier = granted.iter().peekable();
    let mut largest: Option<(Grant, &Claim)> = None;
    for (sent_ns, grant, claim) in by_send {
        while let Some(&(before, other)) = earlier.next_if(|(before, _)| before.read_ns < sent_ns) {
            if largest.is_none_or(|(largest, _)| largest.token < before.token) {
                largest = Some((before, other));
            }
        }
        if let Some((before, other)) = largest.filter(|(before, _)| before.token > grant.token) {
            let what = format!("token {} was granted after token {}", grant.token, before.token);
            found.push(Violation::of_both(other, claim, what));
        }
    }
    found
}

/// Whoever read WAITING before another one's ACQUIRE was sent is granted before it, or has left by then. It
/// was still there if it was granted later, or if a heartbeat that it sent after the other's grant was
/// answered with WAITING.
pub(super) fn check_queue(queue: &[&Claim]) -> Vec<Violation> {
    let mut waiters: Vec<(u64, &Claim)> =
        queue.iter().filter_map(|&claim| Some((claim.queued_ns?, claim))).collect();
    waiters.sort_by_key(|&(queued_ns, claim)| (queued_ns, claim.id));
    let mut later: Vec<(u64, Grant, &Claim)> =
        queue.iter().filter_map(|&claim| Some((claim.sent_ns?, claim.grant?, claim))).collect();
    later.sort_by_key(|&(sent_ns, _, claim)| (sent_ns, claim.id));
    let mut first_granted: Option<(Grant, &Claim)> = None;
    let mut first_read: Option<(Grant, &Claim)> = None;
    let mut found = Vec::new();
    for (queued_ns, waiter) in waiters.into_iter().rev() {
        while let Some((_, grant, other)) = later.pop_if(|(sent_ns, ..)| *sent_ns > queued_ns) {
            if first_granted.is_none_or(|(first, _)| grant.token < first.token) {
                first_granted = Some((grant, other));
            }
            if first_read.is_none_or(|(first, _)| grant.read_ns < first.read_ns) {
                first_read = Some((grant, other));
            }
        }
        let overtaker = match (waiter.grant, waiter.queued_until_ns) {
            (Some(own), _) => first_granted.filter(|(other, _)| other.token < own.token),
            (None, Some(until_ns)) => first_read.filter(|(other, _)| other.read_ns < until_ns),
            (None, None) => None,
        };
        if let Some((_, other)) = overtaker {
            let what = format!("{} was overtaken by {}, which came later", waiter.id, other.id);
            found.push(Violation::of_both(waiter, other, what));
        }
    }
    found
}
