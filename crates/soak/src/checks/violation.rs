//! What the checks find.

use std::fmt;

use crate::logs::entry::ClaimId;
use crate::logs::history::Claim;

/// A broken promise, and the claims that show it: two at most.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Violation {
    pub(crate) what: String,
    pub(crate) claims: Vec<ClaimId>,
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
