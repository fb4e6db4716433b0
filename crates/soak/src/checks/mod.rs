//! What a history may not show: each promise of the server, and of the client, that logs can tell to be
//! broken.

mod agreement;
mod deeds;
mod ends;
mod exclusion;
mod order;
mod ownership;
mod turns;
mod violation;
mod writes;

use std::collections::BTreeMap;

use crate::logs::history::{Claim, History};

pub(crate) use agreement::{Agreement, UNWRITTEN_MAX_MS, compare};
pub use turns::HOLD_LEASES_MAX;
pub use violation::Violation;
pub(crate) use writes::{Writes, replay};

/// The claims of one server life at one lock: the reach of exclusion and of a queue.
type Queues<'a> = BTreeMap<(usize, u32), Vec<&'a Claim>>;

/// Everything that is wrong. Each promise is looked at by itself: one fault may be found by several.
pub fn check(history: &History) -> Vec<Violation> {
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
        found.extend(ends::check(history, claim));
    }
    found.extend(exclusion::check(history));
    found.extend(order::check_tokens(history));
    for queue in queues.values() {
        found.extend(order::check_queue(queue));
        found.extend(turns::check(history, queue));
    }
    found.extend(writes::check(history));
    found.extend(deeds::check(history));
    found.extend(ownership::check(&history.audit, &history.lives));
    found.extend(compare(history).violations);
    found
}
