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

/// Decodes bytes received after the ACQUIRE. A HEARTBEAT is one byte and everything else is an error at its first
/// byte, so there is no state between calls.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn heartbeats_before_a_violation_count_and_what_follows_does_not() {
        let input = |heartbeats, violation| SessionInput { heartbeats, violation };
        assert_eq!(decode_session(&[]), input(0, None));
        assert_eq!(decode_session(&[2, 2, 2]), input(3, None));
        assert_eq!(decode_session(&[2, 1, 2]), input(1, Some(ErrorCode::DUPLICATE_ACQUIRE)));
        assert_eq!(decode_session(&[0x11, 1]), input(0, Some(ErrorCode::UNKNOWN_TYPE)));
    }
}
