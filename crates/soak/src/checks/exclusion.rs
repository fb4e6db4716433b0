//! Exclusion, as far as logs of clients can tell: nobody believes that it holds a lock while another one
//! does.

use std::collections::BTreeMap;

use locks::Reason;
use locks::checker::{Checker, Event};

use super::deeds;
use super::violation::Violation;
use crate::logs::history::{Claim, History};

/// Beliefs of one lock do not overlap within a server's life, and their tokens grow, from life to life too.
pub(super) fn check(history: &History) -> Vec<Violation> {
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
