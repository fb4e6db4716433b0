//! Why a call is refused or fails: a status and a sentence.

use axum::http::{Method, StatusCode};

use crate::shard::NoAnswer;
use threads::NotDone;

/// An answer other than 200.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Refusal {
    pub(super) status: StatusCode,
    pub(super) problem: String,
    /// The header `Allow`.
    pub(super) allow: Option<String>,
}

impl Refusal {
    pub(super) fn new(status: StatusCode, problem: impl Into<String>) -> Self {
        Self { status, problem: problem.into(), allow: None }
    }

    pub(super) fn method_not_allowed(method: &Method, allowed: &[Method]) -> Self {
        let allowed: Vec<&str> = allowed.iter().map(Method::as_str).collect();
        let allow = allowed.join(", ");
        let problem = format!("{method} is not allowed here: {allow} is");
        Self { allow: Some(allow), ..Self::new(StatusCode::METHOD_NOT_ALLOWED, problem) }
    }

    pub(super) fn unavailable(problem: impl Into<String>) -> Self {
        Self::new(StatusCode::SERVICE_UNAVAILABLE, problem)
    }
}

impl From<NoAnswer> for Refusal {
    fn from(no_answer: NoAnswer) -> Self {
        Self::unavailable(no_answer.to_string())
    }
}

impl From<NotDone> for Refusal {
    fn from(not_done: NotDone) -> Self {
        let status = match not_done {
            NotDone::Busy => StatusCode::SERVICE_UNAVAILABLE,
            // Whether an action was done is not known.
            NotDone::Panicked => StatusCode::INTERNAL_SERVER_ERROR,
        };
        Self::new(status, not_done.to_string())
    }
}
