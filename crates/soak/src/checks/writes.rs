//! What the guarded registers got, and what they did with it.

use super::violation::Violation;
use crate::logs::entry::ClaimId;
use crate::logs::history::History;

/// Every write was made by a client that believed that it holds the lock when it looked.
pub(super) fn check(history: &History) -> Vec<Violation> {
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
pub(crate) struct Writes {
    pub(crate) accepted: u64,
    /// Refused: the newer token is of the same server life. The writer was stopped after it had looked.
    pub(crate) stale_within_a_life: u64,
    /// Refused: the newer token is of a later server life.
    pub(crate) stale_across_lives: u64,
}

/// Lets each register decide about its writes, in the order in which they came.
pub(crate) fn replay(history: &History) -> Writes {
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
