//! Checks what was observed of locks against the promises.
//!
//! It knows nothing of the [`Table`](crate::Table): it is fed with observations, from a test, a simulation or
//! a log, in the order in which they happened, and says which one breaks a promise:
//!
//! - exclusion: one holder a lock, and *released* before the next *granted*;
//! - order: among the waiters that are there and not suspect, the one that came first is granted;
//! - tokens: each larger than all before it, of any lock, and the same in every confirmation;
//! - leases: nothing expires before its lease is over, and nothing is granted after it.
//!
//! What was not observed is not held against anyone: a log that has only grants and releases can be checked
//! too.

use std::collections::BTreeMap;
use std::fmt::Debug;

use protocol::{Lease, Token};

use crate::Reason;

/// Something that happened to a claim.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Event<S> {
    /// Its ACQUIRE was taken. Without a lease (it is not in every log), nothing about leases is checked.
    Arrived {
        /// The claim.
        claim: S,
        /// Its lease.
        lease: Option<Lease>,
    },
    /// A heartbeat was answered: ACQUIRED with a token, or WAITING.
    Confirmed {
        /// The claim.
        claim: S,
        /// The token of the answer.
        token: Option<Token>,
    },
    /// It fell under suspicion: it may be passed over.
    Suspected {
        /// The claim.
        claim: S,
    },
    /// Its suspicion ended: it has its old place.
    Returned {
        /// The claim.
        claim: S,
    },
    /// It became the holder.
    Granted {
        /// The claim.
        claim: S,
        /// The grant's token.
        token: Token,
    },
    /// It was the holder until now.
    Released {
        /// The claim.
        claim: S,
        /// The token of its grant.
        token: Token,
        /// Why.
        reason: Reason,
    },
    /// It ended, as a waiter or after its release.
    Ended {
        /// The claim.
        claim: S,
        /// Whether that was its lease's doing.
        expired: bool,
    },
}

/// An observation that breaks a promise.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("lock {lock} at {now_ns} ns: {fault}")]
pub struct Violation {
    /// When it was observed.
    pub now_ns: u64,
    /// The lock.
    pub lock: String,
    /// The broken promise.
    pub fault: Fault,
}

/// A broken promise. Claims are shown as their `Debug`.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    /// Two holders, or a grant that was observed before the release that makes way for it.
    #[error("{claim} was granted while {holder} holds it")]
    Held {
        /// The second holder.
        claim: String,
        /// The first one.
        holder: String,
    },
    /// A waiter was overtaken.
    #[error("{claim} was granted before {first}, which came first")]
    OutOfOrder {
        /// Who was granted.
        claim: String,
        /// Who should have been.
        first: String,
    },
    /// A claim under suspicion was granted.
    #[error("{claim} was granted under suspicion")]
    GrantedSuspect {
        /// Who was granted.
        claim: String,
    },
    /// A claim whose own lease was over was granted.
    #[error("{claim} was granted after its own lease")]
    GrantedOverdue {
        /// Who was granted.
        claim: String,
    },
    /// A token that is not larger than all before it.
    #[error("token {token} came after {last}")]
    TokenNotLarger {
        /// The token.
        token: Token,
        /// The largest one before it.
        last: Token,
    },
    /// A lease was ended before its time.
    #[error("{claim} expired at or before the last moment of its lease, {deadline_ns} ns")]
    Early {
        /// Whose lease.
        claim: String,
        /// The last moment of its lease.
        deadline_ns: u64,
    },
    /// A release by someone who did not hold the lock, or of another grant.
    #[error("{claim} released what it did not hold")]
    NotHeld {
        /// Who released.
        claim: String,
    },
    /// A confirmation that contradicts what is known of the claim.
    #[error("{claim} was told something wrong about its claim")]
    WrongAnswer {
        /// Who was told.
        claim: String,
    },
    /// Something was observed of a claim that had not come, had ended, or came a second time.
    #[error("{claim} came twice, or was not there")]
    WrongLife {
        /// The claim.
        claim: String,
    },
}

/// The observer. `L` names a lock, `S` a claim; a claim's name is used once.
#[derive(Debug)]
pub struct Checker<L, S> {
    locks: BTreeMap<L, Observed<S>>,
    last_token: Option<Token>,
    arrivals: u64,
}

#[derive(Debug)]
struct Observed<S> {
    holder: Option<(S, Token)>,
    claims: BTreeMap<S, ObservedClaim>,
    /// Waiters that are not suspect, by arrival.
    waiting: BTreeMap<u64, S>,
}

#[derive(Debug, Clone, Copy)]
struct ObservedClaim {
    arrival: u64,
    lease: Option<Lease>,
    last_seen_ns: u64,
    suspect: bool,
}

impl ObservedClaim {
    fn deadline_ns(self) -> Option<u64> {
        self.lease.map(|lease| self.last_seen_ns.saturating_add(lease.as_ns()))
    }

    fn is_overdue(self, now_ns: u64) -> bool {
        self.deadline_ns().is_some_and(|deadline_ns| now_ns > deadline_ns)
    }
}

impl<L: Ord + Clone + Debug, S: Ord + Copy + Debug> Default for Checker<L, S> {
    fn default() -> Self {
        Self::new()
    }
}

impl<L: Ord + Clone + Debug, S: Ord + Copy + Debug> Checker<L, S> {
    /// An observer that has seen nothing.
    pub fn new() -> Self {
        Self { locks: BTreeMap::new(), last_token: None, arrivals: 0 }
    }

    /// Takes the next observation.
    ///
    /// # Errors
    ///
    /// It breaks a promise. What is observed after that has no meaning.
    pub fn observe(&mut self, now_ns: u64, lock: &L, event: Event<S>) -> Result<(), Violation> {
        if let Event::Granted { token, .. } = event {
            self.check_token(token).map_err(|fault| violation(now_ns, lock, fault))?;
        }
        self.arrivals += 1;
        let observed = self.locks.entry(lock.clone()).or_insert_with(Observed::new);
        let result = observed.apply(now_ns, self.arrivals, event);
        if observed.holder.is_none() && observed.claims.is_empty() {
            self.locks.remove(lock);
        }
        result.map_err(|fault| violation(now_ns, lock, fault))
    }

    /// Who holds a lock, by what was observed.
    pub fn holder(&self, lock: &L) -> Option<S> {
        self.locks.get(lock)?.holder.map(|(claim, _)| claim)
    }

    fn check_token(&mut self, token: Token) -> Result<(), Fault> {
        match self.last_token.replace(token) {
            Some(last) if token <= last => Err(Fault::TokenNotLarger { token, last }),
            _ => Ok(()),
        }
    }
}

fn violation(now_ns: u64, lock: &impl Debug, fault: Fault) -> Violation {
    Violation { now_ns, lock: format!("{lock:?}"), fault }
}

fn shown(claim: impl Debug) -> String {
    format!("{claim:?}")
}

impl<S: Ord + Copy + Debug> Observed<S> {
    fn new() -> Self {
        Self { holder: None, claims: BTreeMap::new(), waiting: BTreeMap::new() }
    }

    fn apply(&mut self, now_ns: u64, arrival: u64, event: Event<S>) -> Result<(), Fault> {
        match event {
            Event::Arrived { claim, lease } => self.arrive(now_ns, arrival, claim, lease),
            Event::Confirmed { claim, token } => self.confirm(now_ns, claim, token),
            Event::Suspected { claim } => self.set_suspect(claim, true),
            Event::Returned { claim } => self.set_suspect(claim, false),
            Event::Granted { claim, token } => self.grant(now_ns, arrival, claim, token),
            Event::Released { claim, token, reason } => self.release(now_ns, claim, token, reason),
            Event::Ended { claim, expired } => self.end(now_ns, claim, expired),
        }
    }

    fn arrive(&mut self, now_ns: u64, arrival: u64, claim: S, lease: Option<Lease>) -> Result<(), Fault> {
        let new = ObservedClaim { arrival, lease, last_seen_ns: now_ns, suspect: false };
        if self.claims.insert(claim, new).is_some() {
            return Err(Fault::WrongLife { claim: shown(claim) });
        }
        self.waiting.insert(arrival, claim);
        Ok(())
    }

    fn confirm(&mut self, now_ns: u64, claim: S, token: Option<Token>) -> Result<(), Fault> {
        let held = self.holder.filter(|&(holder, _)| holder == claim).map(|(_, token)| token);
        if token != held {
            return Err(Fault::WrongAnswer { claim: shown(claim) });
        }
        self.claim_mut(claim)?.last_seen_ns = now_ns;
        self.set_suspect(claim, false)
    }

    fn set_suspect(&mut self, claim: S, suspect: bool) -> Result<(), Fault> {
        let known = self.claim_mut(claim)?;
        known.suspect = suspect;
        let arrival = known.arrival;
        if suspect {
            self.waiting.remove(&arrival);
        } else if self.holder.is_none_or(|(holder, _)| holder != claim) {
            self.waiting.insert(arrival, claim);
        }
        Ok(())
    }

    fn grant(&mut self, now_ns: u64, arrival: u64, claim: S, token: Token) -> Result<(), Fault> {
        if let Some((holder, _)) = self.holder {
            return Err(Fault::Held { claim: shown(claim), holder: shown(holder) });
        }
        let unseen = ObservedClaim { arrival, lease: None, last_seen_ns: now_ns, suspect: false };
        let known = self.claims.entry(claim).or_insert(unseen);
        if known.suspect {
            return Err(Fault::GrantedSuspect { claim: shown(claim) });
        }
        if known.is_overdue(now_ns) {
            return Err(Fault::GrantedOverdue { claim: shown(claim) });
        }
        if let Some((_, &first)) = self.waiting.first_key_value().filter(|&(_, &first)| first != claim) {
            return Err(Fault::OutOfOrder { claim: shown(claim), first: shown(first) });
        }
        known.last_seen_ns = now_ns;
        self.waiting.pop_first();
        self.holder = Some((claim, token));
        Ok(())
    }

    fn release(&mut self, now_ns: u64, claim: S, token: Token, reason: Reason) -> Result<(), Fault> {
        if self.holder != Some((claim, token)) {
            return Err(Fault::NotHeld { claim: shown(claim) });
        }
        // The two ways in which a claim ends without word from its client.
        if matches!(reason, Reason::Expired | Reason::AddressLost) {
            self.check_overdue(now_ns, claim)?;
        }
        self.holder = None;
        self.claims.remove(&claim);
        Ok(())
    }

    fn end(&mut self, now_ns: u64, claim: S, expired: bool) -> Result<(), Fault> {
        if self.holder.is_some_and(|(holder, _)| holder == claim) {
            return Err(Fault::WrongLife { claim: shown(claim) });
        }
        if expired {
            self.check_overdue(now_ns, claim)?;
        }
        if let Some(known) = self.claims.remove(&claim) {
            self.waiting.remove(&known.arrival);
        }
        Ok(())
    }

    fn check_overdue(&self, now_ns: u64, claim: S) -> Result<(), Fault> {
        match self.claims.get(&claim).and_then(|known| known.deadline_ns()) {
            Some(deadline_ns) if now_ns <= deadline_ns => {
                Err(Fault::Early { claim: shown(claim), deadline_ns })
            }
            _ => Ok(()),
        }
    }

    fn claim_mut(&mut self, claim: S) -> Result<&mut ObservedClaim, Fault> {
        self.claims.get_mut(&claim).ok_or_else(|| Fault::WrongLife { claim: shown(claim) })
    }
}
