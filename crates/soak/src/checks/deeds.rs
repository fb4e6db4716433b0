//! An administrator's deeds: that they were answered, what they explain, and what may not come after them.

use protocol::Token;

use super::violation::Violation;
use crate::logs::audit::What;
use crate::logs::entry::Answer;
use crate::logs::history::{Claim, Deed, History};

/// What is wrong with deeds, as their answers and the clients tell.
pub(super) fn check(history: &History) -> Vec<Violation> {
    let mut found = Vec::new();
    for deed in &history.deeds {
        let Some((answered_ns, answer)) = &deed.answer else { continue };
        match answer {
            Answer::Released(token) => {
                let holder =
                    claims_that(history, |claim| claim.grant.is_some_and(|grant| grant.token == *token));
                let confirmed = holder.filter(|claim| claim.confirmed_ns > Some(*answered_ns));
                found.extend(
                    confirmed.map(|claim| Violation::of(claim, "it was confirmed after its force-release")),
                );
            }
            Answer::Kicked(_) => {
                let Some(claim) = kicked(history, deed) else {
                    let what = format!("{deed:?} hit a waiter that is not known");
                    found.push(Violation { what, claims: Vec::new() });
                    continue;
                };
                if claim.grant.is_some() {
                    found.push(Violation::of(claim, "it was granted its lock and kicked from the queue"));
                }
                if claim.confirmed_ns > Some(*answered_ns) {
                    found.push(Violation::of(claim, "it was confirmed after it was kicked"));
                }
            }
            Answer::Nobody => {}
            Answer::Failed(why) => {
                let lock = deed.lock;
                let what =
                    format!("what an administrator did to lock {lock} at {} failed: {why}", deed.begin_ns);
                found.push(Violation { what, claims: Vec::new() });
            }
        }
    }
    found
}

/// Whether an administrator ended a claim, by the time when its client read so.
pub(super) fn explain(history: &History, claim: &Claim, read_ns: u64) -> bool {
    let begun = history.deeds.iter().filter(|deed| deed.begin_ns <= read_ns && deed.lock == claim.lock);
    let mut answered = begun.filter_map(|deed| Some((deed, deed.answer.as_ref()?)));
    answered.any(|(deed, (answered_ns, answer))| match answer {
        Answer::Released(token) => match claim.grant {
            Some(grant) => grant.token == *token,
            // A client that reads its grant and the end of it at once passes over the grant.
            None => claim.sent_ns < Some(*answered_ns) && may_be_holder(history, claim, *token),
        },
        Answer::Kicked(_) => kicked(history, deed).is_some_and(|kicked| kicked.id == claim.id),
        Answer::Nobody | Answer::Failed(_) => false,
    })
}

/// Whether the holder that was made to let go came from the claim's address, as far as the audit log can
/// tell: the end of a server that is killed is not in it.
fn may_be_holder(history: &History, claim: &Claim, token: Token) -> bool {
    let mut events = history.audit.lives.iter().flatten();
    let released = events.find(|event| event.what == What::ForceRelease { token });
    released.is_none_or(|event| Some(event.peer) == claim.from)
}

/// When the deed began that took a token's lock away: from then on the lock may be another's.
pub(super) fn forced_ns(history: &History, token: Token) -> Option<u64> {
    let released = Answer::Released(token);
    let forced = |deed: &&Deed| deed.answer.as_ref().is_some_and(|(_, answer)| *answer == released);
    history.deeds.iter().find(forced).map(|deed| deed.begin_ns)
}

/// The claim that a kick ended: the last one that came from its address by then.
fn kicked<'a>(history: &'a History, deed: &Deed) -> Option<&'a Claim> {
    let (answered_ns, Answer::Kicked(waiter)) = deed.answer.as_ref()? else { return None };
    let from = claims_that(history, move |claim| claim.from == Some(*waiter));
    let last = from.filter(|claim| claim.sent_ns <= Some(*answered_ns)).max_by_key(|claim| claim.sent_ns)?;
    (last.lock == deed.lock).then_some(last)
}

fn claims_that(history: &History, is: impl Fn(&Claim) -> bool) -> impl Iterator<Item = &Claim> {
    history.claims.values().filter(move |claim| is(claim))
}
