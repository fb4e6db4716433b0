//! Ends of claims: each has a reason that somebody gave.

use protocol::ErrorCode;

use super::deeds;
use super::violation::Violation;
use crate::logs::entry::Cause;
use crate::logs::history::{Claim, End, History};

/// A claim ends by its client, by its client's silence, or by the end of its server.
pub(super) fn check(history: &History, claim: &Claim) -> Option<Violation> {
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
    // A connection that was opened before the server's begin, and never answered, may have been to the one
    // before.
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
