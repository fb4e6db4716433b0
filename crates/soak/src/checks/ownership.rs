//! What an audit log may not show: of each lock, one holder after the other, each event in its place, and
//! tokens that grow.

use std::collections::{BTreeMap, BTreeSet};

use protocol::Token;

use super::violation::Violation;
use crate::logs::audit::{Audit, Event, Reason, What};
use crate::logs::history::Life;

/// How far the time between two events may be from the duration that the second one states. Both are taken in
/// the same turns, from two clocks: a thread that is not run in between sees one of them later.
const CLOCKS_APART_MS: u64 = 250;

/// How far times may go back in the order of tokens: as long as one shard's turn may last on a busy machine.
const TURN_MAX_US: u64 = 1_000_000;

/// Everything that is wrong with a log by itself.
pub(super) fn check(audit: &Audit, lives: &[Life]) -> Vec<Violation> {
    let mut found: Vec<_> = audit.unreadable.iter().map(Violation::of_audit).collect();
    let mut newest: BTreeMap<u32, Token> = BTreeMap::new();
    for (number, (events, life)) in audit.lives.iter().zip(lives).enumerate() {
        let mut by_lock: BTreeMap<u32, Vec<&Event>> = BTreeMap::new();
        events.iter().for_each(|event| by_lock.entry(event.lock).or_default().push(event));
        for (lock, events) in by_lock {
            let mut ownership = Ownership { newest: newest.get(&lock).copied(), ..Ownership::default() };
            let faults = events.iter().map(|event| ownership.observe(event));
            // The first fault of a lock; what comes after it has no meaning.
            let fault = faults.filter_map(Result::err).next();
            let fault = fault.or_else(|| ownership.left().filter(|_| life.ended_in_order()));
            if let Some(fault) = fault {
                found.push(Violation::of_audit(format!("lock {lock}, server life {number}: {fault}")));
            }
            ownership.newest.map(|token| newest.insert(lock, token));
        }
    }
    found.extend(check_tokens(audit));
    found
}

/// No token is granted twice, and the order of tokens is that of time.
fn check_tokens(audit: &Audit) -> Vec<Violation> {
    let mut granted: Vec<(Token, u64)> =
        audit.lives.iter().flatten().filter_map(|event| Some((event.granted()?, event.unix_us))).collect();
    granted.sort_unstable();
    let mut found = Vec::new();
    let mut seen = BTreeSet::new();
    let mut latest_us = 0;
    for (token, unix_us) in granted {
        if !seen.insert(token) {
            found.push(Violation::of_audit(format!("token {token} is granted twice")));
        }
        if unix_us + TURN_MAX_US < latest_us {
            let what =
                format!("token {token} is granted {} ms before a smaller one", (latest_us - unix_us) / 1000);
            found.push(Violation::of_audit(what));
        }
        latest_us = latest_us.max(unix_us);
    }
    found
}

/// One lock in one server life, as its events tell.
#[derive(Default)]
struct Ownership<'a> {
    /// The grant whose release has not come.
    holder: Option<(Token, &'a Event)>,
    /// Of all lives.
    newest: Option<Token>,
    last: Option<&'a Event>,
}

impl<'a> Ownership<'a> {
    /// The lock's next event, or what is wrong with it.
    fn observe(&mut self, event: &'a Event) -> Result<(), String> {
        if let Some(last) = self.last {
            let is_release = matches!(event.what, What::Released { .. });
            if matches!(last.what, What::ForceRelease { .. }) && !is_release {
                return Err(format!("{last:?} is not followed by its release but by {event:?}"));
            }
            if matches!(last.what, What::Released { reason: Reason::Shutdown, .. }) {
                return Err(format!("after its release at the shutdown comes {event:?}"));
            }
            if event.unix_us < last.unix_us {
                return Err(format!("{event:?} comes after {last:?}"));
            }
        }
        match event.what {
            What::Granted { token, .. } => self.grant(event, token)?,
            What::Released { token, held_ms, reason } => self.release(event, token, held_ms, reason)?,
            What::ForceRelease { token } if !self.is_held_by(event, token) => {
                return Err(format!("{event:?} is not about the holder, {:?}", self.holder));
            }
            What::KickWaiter if self.holder.is_some_and(|(_, grant)| grant.peer == event.peer) => {
                return Err(format!("{event:?} is about the holder"));
            }
            What::ForceRelease { .. } | What::KickWaiter => {}
        }
        self.last = Some(event);
        Ok(())
    }

    fn grant(&mut self, event: &'a Event, token: Token) -> Result<(), String> {
        if let Some((_, grant)) = self.holder {
            return Err(format!("{event:?} while it is held by {grant:?}"));
        }
        if self.newest >= Some(token) {
            return Err(format!("{event:?} though a token was granted that is not smaller"));
        }
        self.holder = Some((token, event));
        self.newest = Some(token);
        Ok(())
    }

    fn release(&mut self, event: &Event, token: Token, held_ms: u64, reason: Reason) -> Result<(), String> {
        if !self.is_held_by(event, token) {
            return Err(format!("{event:?} is not about the holder, {:?}", self.holder));
        }
        let was_forced = self.last.is_some_and(|last| last.what == What::ForceRelease { token });
        if was_forced != (reason == Reason::Force) {
            return Err(format!("{event:?} comes after {:?}", self.last));
        }
        let (_, grant) = self.holder.take().expect("it is held by the event's session");
        let since_ms = (event.unix_us - grant.unix_us) / 1000;
        if since_ms.abs_diff(held_ms) > CLOCKS_APART_MS {
            return Err(format!("{event:?} comes {since_ms} ms after its grant"));
        }
        Ok(())
    }

    fn is_held_by(&self, event: &Event, token: Token) -> bool {
        self.holder.is_some_and(|(held, grant)| held == token && grant.peer == event.peer)
    }

    /// What is missing at the end of a server that was not killed.
    fn left(&self) -> Option<String> {
        self.holder.map(|(_, grant)| format!("{grant:?} has no release, and the server ended in order"))
    }
}
