//! Why a command has no answer, whose fault it is, and the exit status that says so.

use std::io;

use admin_api::Error;

use cli::exit;

#[derive(Debug, thiserror::Error)]
pub(super) enum Problem {
    /// The user's mistake.
    #[error("{0}")]
    Usage(String),
    /// What the admin API says, or why it says nothing.
    #[error(transparent)]
    Api(#[from] admin_api::Error),
    /// The same, of one of two nodes.
    #[error("{0}")]
    NodeUnknown(admin_api::Error),
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
            Self::Api(error) => of_api(error),
            Self::NodeUnknown(_) => exit::UNKNOWN,
            Self::Output(_) => exit::IO_ERROR,
        }
    }
}

fn of_api(error: &Error) -> u8 {
    match error {
        Error::BadRequest(_) => exit::USAGE,
        Error::NotFound(_) => exit::NOT_THERE,
        Error::AnotherHolder(_) => exit::ANOTHER_HOLDER,
        Error::Unreachable { .. }
        | Error::Silent { .. }
        | Error::BrokenOff { .. }
        | Error::Unavailable { .. } => exit::UNAVAILABLE,
        Error::NotUnderstood { .. } => exit::PROTOCOL,
        Error::Unknown(error) => of_api(error),
    }
}
