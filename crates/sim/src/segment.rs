//! What passes over a connection, and in which direction.

use protocol::decode_server_frame;

/// Names a connection, and the claim on it: used once in a run.
pub(crate) type ConnId = usize;

/// An end of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Side {
    Client,
    Server,
}

impl Side {
    pub(crate) const BOTH: [Self; 2] = [Self::Client, Self::Server];

    pub(crate) fn other(self) -> Self {
        match self {
            Self::Client => Self::Server,
            Self::Server => Self::Client,
        }
    }
}

/// What a kernel gets to see of a connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Segment {
    Bytes(Vec<u8>),
    Fin,
    Reset,
    /// The local kernel's own conclusion: no acknowledgement came.
    TimedOut,
}

/// For the trace: the first frame, which with few exceptions is the only one.
impl std::fmt::Display for Segment {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Bytes(bytes) => match decode_server_frame(bytes) {
                Ok(Some((frame, _))) => write!(f, "{frame:?}"),
                _ => write!(f, "a part of a frame"),
            },
            Self::Fin | Self::Reset | Self::TimedOut => std::fmt::Debug::fmt(self, f),
        }
    }
}
