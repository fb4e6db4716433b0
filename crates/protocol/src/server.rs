//! What a server sends: WAITING, ACQUIRED, ERROR.

use std::ops::Deref;

use crate::{ErrorCode, Token, kind};

/// The WAITING frame.
pub const WAITING: [u8; 1] = [kind::WAITING];

/// The length of an ACQUIRED frame.
pub const ACQUIRED_BYTES: usize = 9;

/// The longest ERROR frame, which is also the longest frame of a server.
pub const ERROR_BYTES_MAX: usize = ERROR_HEADER_BYTES + 255;

/// Bytes before the reason: type, code, reason length.
const ERROR_HEADER_BYTES: usize = 3;

/// The ACQUIRED frame for a grant.
pub fn acquired(token: Token) -> [u8; ACQUIRED_BYTES] {
    let mut bytes = [0; ACQUIRED_BYTES];
    bytes[0] = kind::ACQUIRED;
    bytes[1..].copy_from_slice(&token.0.to_be_bytes());
    bytes
}

/// An encoded ERROR; dereferences to its bytes.
#[derive(Debug, Clone)]
pub struct ErrorFrame {
    bytes: [u8; ERROR_BYTES_MAX],
    len: usize,
}

impl ErrorFrame {
    /// An ERROR with its code's meaning as reason.
    pub fn new(code: ErrorCode) -> Self {
        Self::with_reason(code, code.meaning())
    }

    /// An ERROR with a reason of its own, cut to the longest whole characters within 255 bytes.
    pub fn with_reason(code: ErrorCode, reason: &str) -> Self {
        let reason = &reason[..reason.floor_char_boundary(255)];
        let len = ERROR_HEADER_BYTES + reason.len();
        let mut bytes = [0; ERROR_BYTES_MAX];
        bytes[0] = kind::ERROR;
        bytes[1] = code.0;
        bytes[2] = u8::try_from(reason.len()).expect("cut to 255 bytes above");
        bytes[ERROR_HEADER_BYTES..len].copy_from_slice(reason.as_bytes());
        Self { bytes, len }
    }
}

impl Deref for ErrorFrame {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.bytes[..self.len]
    }
}

/// A frame received from a server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ServerFrame {
    /// The claim is queued.
    Waiting,
    /// The claim holds its lock.
    Acquired(Token),
    /// The server closes the connection.
    Error {
        /// What happened.
        code: ErrorCode,
        /// The server's words for it; invalid UTF-8 is replaced. For people, never for decisions.
        reason: String,
    },
}

/// A frame type that no server of this protocol sends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the server sent a frame of unknown type {:#04x}{}", .0, hint(*.0))]
pub struct UnknownFrame(pub u8);

/// What else may listen on a port that was thought to be a lock server's.
fn hint(kind: u8) -> &'static str {
    match kind {
        // An alert, which answers bytes that are no TLS: RFC 8446, 5.1.
        0x15 => ": it speaks TLS",
        b'H' => ": it seems to speak HTTP",
        _ => "",
    }
}

/// Decodes the first frame of `received`, with its length in bytes; `None` while more bytes are needed.
///
/// # Errors
///
/// The first byte is no frame type of a server; nothing after it can be understood.
pub fn decode_server_frame(received: &[u8]) -> Result<Option<(ServerFrame, usize)>, UnknownFrame> {
    let Some(&first) = received.first() else { return Ok(None) };
    Ok(match first {
        kind::WAITING => Some((ServerFrame::Waiting, 1)),
        kind::ACQUIRED => received.get(1..ACQUIRED_BYTES).map(|token| {
            let token = u64::from_be_bytes(token.try_into().expect("the range has eight bytes"));
            (ServerFrame::Acquired(Token(token)), ACQUIRED_BYTES)
        }),
        kind::ERROR => decode_error(received),
        other => return Err(UnknownFrame(other)),
    })
}

fn decode_error(received: &[u8]) -> Option<(ServerFrame, usize)> {
    let (&code, &reason_len) = (received.get(1)?, received.get(2)?);
    let len = ERROR_HEADER_BYTES + usize::from(reason_len);
    let reason = received.get(ERROR_HEADER_BYTES..len)?;
    let reason = String::from_utf8_lossy(reason).into_owned();
    Some((ServerFrame::Error { code: ErrorCode(code), reason }, len))
}
