//! What one side encodes, the other side decodes.

use proptest::prelude::*;
use protocol::{
    ACQUIRE_BYTES_MAX, ERROR_BYTES_MAX, ErrorCode, ErrorFrame, HEARTBEAT, ServerFrame, SessionInput,
    decode_acquire, decode_server_frame, decode_session,
};

use crate::invariants::encode_server_frame;
use crate::values;

proptest! {
    #![proptest_config(values::config())]

    #[test]
    fn an_acquire_is_decoded_as_it_was_meant(
        acquire in values::acquire(),
        rest in prop::collection::vec(any::<u8>(), 0..8),
    ) {
        let frame = acquire.encode();
        prop_assert!(frame.len() <= ACQUIRE_BYTES_MAX);
        let received = [&*frame, &rest].concat();
        prop_assert_eq!(decode_acquire(&received), Ok(Some((acquire, &*rest))));
    }

    #[test]
    fn a_server_frame_is_decoded_as_it_was_meant(
        frame in values::server_frame(),
        rest in prop::collection::vec(any::<u8>(), 0..8),
    ) {
        let bytes = encode_server_frame(&frame);
        prop_assert!(bytes.len() <= ERROR_BYTES_MAX);
        let received = [&*bytes, &rest].concat();
        prop_assert_eq!(decode_server_frame(&received), Ok(Some((frame, bytes.len()))));
    }

    #[test]
    fn a_reason_loses_only_the_characters_that_do_not_fit(
        code in any::<u8>(),
        characters in prop::collection::vec(any::<char>(), 0..400),
    ) {
        let whole = String::from_iter(characters);
        let frame = ErrorFrame::with_reason(ErrorCode(code), &whole);
        let Ok(Some((ServerFrame::Error { code: sent, reason }, len))) = decode_server_frame(&frame) else {
            return Err(TestCaseError::fail("an ERROR is no ERROR"));
        };
        prop_assert_eq!((sent, len), (ErrorCode(code), frame.len()));
        let lost = whole.strip_prefix(&*reason).expect("the reason's beginning");
        let next_len = lost.chars().next().map_or(usize::MAX, char::len_utf8);
        prop_assert!(reason.len() <= 255 && reason.len().saturating_add(next_len) > 255);
    }
}

#[test]
fn every_code_travels_with_its_meaning() {
    for code in (0..=u8::MAX).map(ErrorCode) {
        let frame = ErrorFrame::new(code);
        let expected = ServerFrame::Error { code, reason: code.meaning().to_owned() };
        assert_eq!(decode_server_frame(&frame), Ok(Some((expected, frame.len()))));
    }
}

#[test]
fn a_heartbeat_is_one_heartbeat() {
    assert_eq!(decode_session(&HEARTBEAT), SessionInput { heartbeats: 1, violation: None });
}
