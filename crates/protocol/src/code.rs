//! Error codes and the two classes by which clients act on them.

use std::fmt;

/// The code of an ERROR frame.
///
/// Any byte is a code: a peer of a later version may send one that has no name here, and its
/// [class](ErrorCode::class) still says what to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ErrorCode(pub u8);

/// Whose matter an error is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Class {
    /// The server cannot serve this claim now (codes below `0x10`): connect again.
    ServerCondition,
    /// The client did something wrong (codes from `0x10` on): report it and stop.
    ClientError,
}

impl ErrorCode {
    /// The server is shutting down or was demoted.
    pub const SHUTTING_DOWN: Self = Self(0x01);
    /// An administrator force-released the lock or kicked the waiter.
    pub const CLOSED_BY_ADMINISTRATOR: Self = Self(0x02);
    /// This server is a standby.
    pub const STANDBY: Self = Self(0x03);
    /// The ACQUIRE names another protocol version.
    pub const UNSUPPORTED_VERSION: Self = Self(0x10);
    /// The first frame was not an ACQUIRE.
    pub const NOT_ACQUIRE: Self = Self(0x11);
    /// A second ACQUIRE came on one connection.
    pub const DUPLICATE_ACQUIRE: Self = Self(0x12);
    /// A frame of an unknown type came.
    pub const UNKNOWN_TYPE: Self = Self(0x13);
    /// The lock name has no bytes.
    pub const EMPTY_NAME: Self = Self(0x14);
    /// The lock name has more than 255 bytes.
    pub const NAME_TOO_LONG: Self = Self(0x15);
    /// The lock name is not valid UTF-8.
    pub const NAME_NOT_UTF8: Self = Self(0x16);
    /// The lease is zero.
    pub const LEASE_NOT_POSITIVE: Self = Self(0x17);
    /// The access-control list does not allow this lock to this client.
    pub const NOT_AUTHORIZED: Self = Self(0x18);

    /// The first code of [`Class::ClientError`].
    const CLIENT_ERROR_MIN: u8 = 0x10;

    /// Whose matter this is: decided by the code's range alone, also for codes unknown here.
    pub fn class(self) -> Class {
        if self.0 < Self::CLIENT_ERROR_MIN { Class::ServerCondition } else { Class::ClientError }
    }

    /// What the code means, for the reason of an ERROR frame and for messages.
    pub fn meaning(self) -> &'static str {
        match self {
            Self::SHUTTING_DOWN => "server shutting down",
            Self::CLOSED_BY_ADMINISTRATOR => "closed by administrator",
            Self::STANDBY => "standby: not the active server",
            Self::UNSUPPORTED_VERSION => "unsupported protocol version",
            Self::NOT_ACQUIRE => "first message must be ACQUIRE",
            Self::DUPLICATE_ACQUIRE => "duplicate ACQUIRE",
            Self::UNKNOWN_TYPE => "unknown message type",
            Self::EMPTY_NAME => "empty lock name",
            Self::NAME_TOO_LONG => "lock name longer than 255 bytes",
            Self::NAME_NOT_UTF8 => "lock name is not valid UTF-8",
            Self::LEASE_NOT_POSITIVE => "lease must be positive",
            Self::NOT_AUTHORIZED => "not authorized for the lock",
            _ => "unknown error",
        }
    }
}

/// As in logs and metric labels: `0x13`.
impl fmt::Display for ErrorCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#04x}", self.0)
    }
}
