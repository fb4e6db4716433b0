//! What a client may send after its ACQUIRE: heartbeats, one byte each.

use crate::{ErrorCode, kind};

/// The HEARTBEAT frame.
pub const HEARTBEAT: [u8; 1] = [kind::HEARTBEAT];

/// The meaning of bytes received after the ACQUIRE.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SessionInput {
    /// Heartbeats, all before the violation.
    pub heartbeats: usize,
    /// The first byte that is not a heartbeat; what follows it has no meaning.
    pub violation: Option<ErrorCode>,
}

/// Decodes bytes received after the ACQUIRE. A HEARTBEAT is one byte and everything else is an error at its
/// first byte, so there is no state between calls.
pub fn decode_session(received: &[u8]) -> SessionInput {
    match received.iter().position(|&byte| byte != kind::HEARTBEAT) {
        None => SessionInput { heartbeats: received.len(), violation: None },
        Some(at) => {
            let duplicate = received[at] == kind::ACQUIRE;
            let code = if duplicate { ErrorCode::DUPLICATE_ACQUIRE } else { ErrorCode::UNKNOWN_TYPE };
            SessionInput { heartbeats: at, violation: Some(code) }
        }
    }
}
