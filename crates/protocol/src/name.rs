//! Lock names.

use std::borrow::Borrow;
use std::fmt;

use crate::ErrorCode;

/// The longest lock name, in bytes. Part of the protocol, not a setting.
pub const NAME_BYTES_MAX: usize = 255;

/// The name of a lock: 1 to 255 bytes of UTF-8, compared byte by byte, never trimmed or normalised.
///
/// Any character is legal in it, NUL and newline included; [`Debug`] escapes them.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LockName(Box<str>);

impl LockName {
    /// A name from a string.
    ///
    /// # Errors
    ///
    /// [`ErrorCode::EMPTY_NAME`] or [`ErrorCode::NAME_TOO_LONG`].
    pub fn new(name: &str) -> Result<Self, ErrorCode> {
        Self::check_len(name.len())?;
        Ok(Self(name.into()))
    }

    /// A name from the bytes of an ACQUIRE.
    ///
    /// # Errors
    ///
    /// As [`LockName::new`], and [`ErrorCode::NAME_NOT_UTF8`].
    pub fn from_bytes(name: &[u8]) -> Result<Self, ErrorCode> {
        Self::check_len(name.len())?;
        let name = std::str::from_utf8(name).map_err(|_| ErrorCode::NAME_NOT_UTF8)?;
        Ok(Self(name.into()))
    }

    pub(crate) fn check_len(len: usize) -> Result<(), ErrorCode> {
        match len {
            0 => Err(ErrorCode::EMPTY_NAME),
            1..=NAME_BYTES_MAX => Ok(()),
            _ => Err(ErrorCode::NAME_TOO_LONG),
        }
    }

    /// The name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The name as it stands on the wire.
    pub fn as_bytes(&self) -> &[u8] {
        self.0.as_bytes()
    }
}

impl Borrow<str> for LockName {
    fn borrow(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for LockName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.0, f)
    }
}
