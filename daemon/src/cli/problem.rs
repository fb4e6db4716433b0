//! Why a command has no answer, whose fault it is, and the exit status that says so.

use std::io;

use crate::exit;

#[derive(Debug, thiserror::Error)]
pub(super) enum Problem {
    /// The user's mistake.
    #[error("{0}")]
    Usage(String),
    /// The lock or the waiter is not there: the API's reason.
    #[error("{0}")]
    NotFound(String),
    /// The token is not the holder's: the API's reason.
    #[error("{0}")]
    AnotherHolder(String),
    #[error("cannot connect to the admin API at {address}: {error}; {}", to_check(error))]
    Unreachable { address: String, error: io::Error },
    #[error(
        "no answer from {address} within {limit_s} s; is it a server's -admin-listen, and does the server hang?"
    )]
    Silent { address: String, limit_s: u64 },
    #[error("{address} broke off its answer: {error}; did the server end, or have too many callers?")]
    BrokenOff { address: String, error: hyper::Error },
    /// 503: the API's reason.
    #[error("the server at {address} cannot answer now: {reason}; try again")]
    Unavailable { address: String, reason: String },
    #[error("{address} does not answer as an admin API: {what}; is it a server's -admin-listen?")]
    NotUnderstood { address: String, what: String },
    /// An action was sent, and then nothing was heard.
    #[error("{0}; whether it was done is not known: look with monolock inspect")]
    Unknown(Box<Problem>),
    #[error("cannot write the output: {0}")]
    Output(#[from] io::Error),
}

/// The statuses, for the help text.
pub(super) const HELP: &str = "\
Exit status:
   0  done
   1  no such lock, holder or waiter
   2  release --token: another token holds the lock
  64  an argument or the variable is invalid
  69  the admin API cannot be reached, or cannot answer now
  74  the output cannot be written
  76  what answers is no admin API";

impl Problem {
    pub(super) fn exit_status(&self) -> u8 {
        match self {
            Self::Usage(_) => exit::USAGE,
            Self::NotFound(_) => exit::NOT_THERE,
            Self::AnotherHolder(_) => exit::ANOTHER_HOLDER,
            Self::Unreachable { .. }
            | Self::Silent { .. }
            | Self::BrokenOff { .. }
            | Self::Unavailable { .. } => exit::UNAVAILABLE,
            Self::NotUnderstood { .. } => exit::PROTOCOL,
            Self::Output(_) => exit::IO_ERROR,
            Self::Unknown(problem) => problem.exit_status(),
        }
    }

    /// The problem of an action, which may have been done although there is no answer.
    pub(super) fn of_action(self) -> Self {
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
