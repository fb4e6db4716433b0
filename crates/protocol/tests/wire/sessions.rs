//! What a client sends after its ACQUIRE.

use protocol::{ErrorCode, SessionInput, decode_session};

#[test]
fn heartbeats_before_a_violation_count_and_what_follows_does_not() {
    let input = |heartbeats, violation| SessionInput { heartbeats, violation };
    assert_eq!(decode_session(&[]), input(0, None));
    assert_eq!(decode_session(&[2, 2, 2]), input(3, None));
    assert_eq!(decode_session(&[2, 1, 2]), input(1, Some(ErrorCode::DUPLICATE_ACQUIRE)));
    assert_eq!(decode_session(&[0x11, 1]), input(0, Some(ErrorCode::UNKNOWN_TYPE)));
}
