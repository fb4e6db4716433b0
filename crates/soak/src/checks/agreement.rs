//! Whether the audit log tells what the clients and the administrator tell.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;

use protocol::{ErrorCode, Token};

use super::violation::Violation;
use crate::logs::audit::{Event, Reason, What};
use crate::logs::entry::{Answer, Cause};
use crate::logs::history::{Claim, Deed, End, History, Life};

/// The log lacks at most what happened in this time before a SIGKILL. The server writes every 10 ms, from a
/// thread of its own; the rest is a machine that is busy with clients.
pub(crate) const UNWRITTEN_MAX_MS: u64 = 500;

/// What the comparison gives.
#[derive(Debug, Default)]
pub(crate) struct Agreement {
    pub(crate) violations: Vec<Violation>,
    /// Grants in the log that no client read: it was killed or stopped, or had left at that moment.
    pub(crate) unread: usize,
    /// What clients or the administrator were told and the log lacks, as its server was killed.
    pub(crate) unwritten: usize,
}

/// A grant in the log, and how it ended.
struct Granted<'a> {
    life: usize,
    event: &'a Event,
    wait_ms: u64,
    /// How long it was held, and why no longer.
    release: Option<(u64, Reason)>,
}

/// Compares.
pub(crate) fn compare(history: &History) -> Agreement {
    let mut found = Agreement::default();
    let grants = grants(history);
    let granted = history.claims.values().filter_map(|claim| Some((claim.grant?.token, claim)));
    let read: BTreeMap<Token, &Claim> = granted.collect();
    for (&token, claim) in &read {
        match grants.get(&token) {
            Some(granted) => found.violations.extend(check_grant(history, claim, granted)),
            None => found.note_missing_grant(history, claim, token),
        }
    }
    found.unread = grants.keys().filter(|token| !read.contains_key(token)).count();
    let asked = |claim: &Claim| Some((history.life_of(claim)?, claim.lock, claim.from?));
    let asked: BTreeSet<_> = history.claims.values().filter_map(asked).collect();
    for Granted { life, event, .. } in grants.values() {
        if !asked.contains(&(*life, event.lock, event.peer)) {
            let what = format!("{event:?}, and no client asked for it from there");
            found.violations.push(Violation::of_audit(what));
        }
    }
    found.compare_deeds(history);
    found
}

fn grants(history: &History) -> BTreeMap<Token, Granted<'_>> {
    let mut grants = BTreeMap::new();
    for (life, events) in history.audit.lives.iter().enumerate() {
        for event in events {
            match event.what {
                What::Granted { token, wait_ms } => {
                    grants.insert(token, Granted { life, event, wait_ms, release: None });
                }
                What::Released { token, held_ms, reason } => {
                    if let Some(granted) = grants.get_mut(&token) {
                        granted.release = Some((held_ms, reason));
                    }
                }
                What::ForceRelease { .. } | What::KickWaiter => {}
            }
        }
    }
    grants
}

/// What client and log say about a grant that both have.
fn check_grant(history: &History, claim: &Claim, granted: &Granted<'_>) -> Option<Violation> {
    let Granted { life, event, wait_ms, release } = granted;
    if (Some(*life), event.lock, Some(event.peer)) != (history.life_of(claim), claim.lock, claim.from) {
        return Some(Violation::of(claim, format!("the audit log says: {event:?}, in server life {life}")));
    }
    let sent_ns = claim.sent_ns.expect("a grant was asked for");
    let read_ns = claim.grant.expect("it has one").read_ns;
    // From the ACQUIRE's coming to the grant is less than from its sending to the grant's being read.
    let waited_ms = read_ns.saturating_sub(sent_ns) / 1_000_000;
    if *wait_ms > waited_ms {
        let what = format!("it waited {waited_ms} ms, and the audit log says {wait_ms} ms");
        return Some(Violation::of(claim, what));
    }
    let (held_ms, reason) = (*release)?;
    check_release(claim, read_ns, held_ms, reason)
}

/// What client and log say about the end of a grant that was read at this time.
fn check_release(claim: &Claim, read_ns: u64, held_ms: u64, reason: Reason) -> Option<Violation> {
    let was_told = |(_, end)| end == End::Lost(Cause::Error(ErrorCode::SHUTTING_DOWN.0));
    if claim.end.is_some_and(was_told) && reason != Reason::Shutdown {
        let what = format!("it was told of the shutdown, and the audit log says {reason:?}");
        return Some(Violation::of(claim, what));
    }
    // The server heard it no earlier than it sent what was answered, and had granted before that was read.
    let heard_ns = claim.confirmed_ns.unwrap_or(0).saturating_sub(read_ns);
    let least_ms = (heard_ns + claim.lease_ns) / 1_000_000;
    (reason == Reason::Expired && held_ms < least_ms).then(|| {
        Violation::of(claim, format!("it expired after {held_ms} ms, and {least_ms} ms were its own"))
    })
}

impl Agreement {
    /// A grant that its client read is not in the log.
    fn note_missing_grant(&mut self, history: &History, claim: &Claim, token: Token) {
        let read_ns = claim.grant.expect("it has one").read_ns;
        let Some(life) = history.life_of(claim) else { return };
        let newest = history.audit.lives[life]
            .iter()
            .filter(|event| event.lock == claim.lock)
            .filter_map(Event::granted)
            .max();
        if is_unwritten(&history.lives[life], read_ns) && newest < Some(token) {
            self.unwritten += 1;
        } else {
            self.violations
                .push(Violation::of(claim, format!("its grant, token {token}, is not in the audit log")));
        }
    }

    /// Each deed that hit somebody has its event, and each event its deed.
    fn compare_deeds(&mut self, history: &History) {
        for (life, events) in history.audit.lives.iter().enumerate() {
            let within = |deed: &&Deed| history.lives[life].has(deed.begin_ns);
            let mut done: Vec<(&Deed, u64, Done)> = history
                .deeds
                .iter()
                .filter(within)
                .filter_map(|deed| {
                    let (answered_ns, answer) = deed.answer.as_ref()?;
                    Some((deed, *answered_ns, Done::of_answer(deed.lock, answer)?))
                })
                .collect();
            for event in events {
                let Some(logged) = Done::of_event(event) else { continue };
                match done.iter().position(|&(_, _, said)| said == logged) {
                    Some(at) => drop(done.remove(at)),
                    None => {
                        let what = format!("{event:?}, and no administrator was told so");
                        self.violations.push(Violation::of_audit(what));
                    }
                }
            }
            for (deed, answered_ns, _) in done {
                if is_unwritten(&history.lives[life], answered_ns) {
                    self.unwritten += 1;
                } else {
                    let what = format!("{deed:?} is not in the audit log");
                    self.violations.push(Violation::of_audit(what));
                }
            }
        }
    }
}

/// What was done to whom, as an answer and an event tell it alike.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Done {
    Released(u32, Token),
    Kicked(u32, SocketAddr),
}

impl Done {
    fn of_answer(lock: u32, answer: &Answer) -> Option<Self> {
        match *answer {
            Answer::Released(token) => Some(Self::Released(lock, token)),
            Answer::Kicked(waiter) => Some(Self::Kicked(lock, waiter)),
            Answer::Nobody | Answer::Failed(_) => None,
        }
    }

    fn of_event(event: &Event) -> Option<Self> {
        match event.what {
            What::ForceRelease { token } => Some(Self::Released(event.lock, token)),
            What::KickWaiter => Some(Self::Kicked(event.lock, event.peer)),
            What::Granted { .. } | What::Released { .. } => None,
        }
    }
}

/// What was known at that time may have been in a killed server's memory only.
fn is_unwritten(life: &Life, known_ns: u64) -> bool {
    let killed_ns = life.signal.filter(|&(_, was_killed)| was_killed).map(|(signal_ns, _)| signal_ns);
    killed_ns.is_some_and(|killed_ns| known_ns + UNWRITTEN_MAX_MS * 1_000_000 >= killed_ns)
}
