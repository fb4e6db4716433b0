//! What the checks find.

use std::fmt;

use crate::logs::entry::ClaimId;
use crate::logs::history::Claim;

/// A broken promise, and the claims that show it: two at most.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Violation {
    /// The promise, and what was seen instead.
    pub what: String,
    /// The claims that show it.
    pub claims: Vec<ClaimId>,
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
