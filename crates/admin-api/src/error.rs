//! Why a call has no answer, or is refused.

use std::io;

/// Why a call did not do what it should.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The caller's mistake: the API's reason.
    #[error("{0}")]
    BadRequest(String),
    /// The lock or the waiter is not there: the API's reason.
    #[error("{0}")]
    NotFound(String),
    /// The token is not the holder's: the API's reason.
    #[error("{0}")]
    AnotherHolder(String),
    /// Nobody listens there, or the name is unknown.
    #[error("cannot connect to the admin API at {address}: {error}; {}", to_check(error))]
    Unreachable {
        /// Where the API should be.
        address: String,
        /// What the system says.
        error: io::Error,
    },
    /// Somebody listens, and does not answer.
    #[error(
        "no answer from {address} within {limit_s} s; is it a server's -admin-listen, and does the server hang?"
    )]
    Silent {
        /// Where the API should be.
        address: String,
        /// How long an answer may take, in s.
        limit_s: u64,
    },
    /// The connection ended before the answer did.
    #[error("{address} broke off its answer: {error}; did the server end, or have too many callers?")]
    BrokenOff {
        /// Where the API should be.
        address: String,
        /// What the connection says.
        error: hyper::Error,
    },
    /// 503: the API's reason.
    #[error("the server at {address} cannot answer now: {reason}; try again")]
    Unavailable {
        /// Where the API should be.
        address: String,
        /// The API's reason.
        reason: String,
    },
    /// Something else listens there.
    #[error("{address} does not answer as an admin API: {what}; is it a server's -admin-listen?")]
    NotUnderstood {
        /// Where the API should be.
        address: String,
        /// What is wrong with its answer.
        what: String,
    },
    /// An action was sent, and then nothing was heard.
    #[error("{0}; whether it was done is not known: look with monolock inspect")]
    Unknown(Box<Error>),
}

impl Error {
    /// Of an action, which may have been done although there is no answer.
    pub(crate) fn of_action(self) -> Self {
        match self {
            Self::Silent { .. } | Self::BrokenOff { .. } | Self::NotUnderstood { .. } => {
                Self::Unknown(Box::new(self))
            }
            told => told,
        }
    }
}

/// What to look at when nobody can be connected to.
fn to_check(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::PermissionDenied => "only the server's user may use the socket",
        _ => "does a server run there, with this -admin-listen?",
    }
}
