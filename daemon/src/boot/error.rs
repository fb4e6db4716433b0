//! Why a server does not start, and whose matter that is.

use cli::exit;

use crate::capacity::TooFewDescriptors;
use crate::reload::LoadError;
use crate::token_file::TokenFileError;
use crate::{admin, ha, listener, shard};

/// Why the server did not start.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ServeError {
    #[error(transparent)]
    Ring(#[from] reactor::Unavailable),
    #[error(transparent)]
    Files(#[from] LoadError),
    #[error(transparent)]
    TokenFile(#[from] TokenFileError),
    #[error(transparent)]
    Node(#[from] ha::StartError),
    #[error("-audit-log {0}")]
    Audit(#[from] audit::StartError),
    #[error("{0}")]
    Capacity(TooFewDescriptors),
    #[error(transparent)]
    Listen(#[from] listener::BindError),
    #[error(transparent)]
    Admin(#[from] admin::StartError),
    #[error("cannot start {what}: {error}")]
    System { what: &'static str, error: std::io::Error },
}

impl ServeError {
    /// The exit status that tells a supervisor whose matter this is.
    pub(crate) fn exit_status(&self) -> u8 {
        match self {
            // Neither missing nor forbidden: descriptors, for one.
            Self::Ring(reactor::Unavailable::Other { .. }) => exit::OS_ERROR,
            Self::Ring(_) => exit::UNAVAILABLE,
            Self::Files(_) | Self::Audit(audit::StartError::Open(_)) => exit::CONFIG,
            Self::TokenFile(error) if error.is_system() => exit::OS_ERROR,
            Self::TokenFile(_) => exit::CONFIG,
            Self::Node(error) if error.is_system() => exit::OS_ERROR,
            Self::Node(_) => exit::CONFIG,
            Self::Audit(audit::StartError::Thread { .. })
            | Self::Capacity(_)
            | Self::Listen(_)
            | Self::Admin(_)
            | Self::System { .. } => exit::OS_ERROR,
        }
    }
}

impl From<shard::StartError> for ServeError {
    fn from(error: shard::StartError) -> Self {
        match error {
            shard::StartError::Ring(unavailable) => Self::Ring(unavailable),
            shard::StartError::Thread(error) => Self::System { what: "a shard's thread", error },
        }
    }
}
