//! The frames of a server: their bytes, and what else may come.

use protocol::{
    ErrorCode, ErrorFrame, ServerFrame, Token, UnknownFrame, WAITING, acquired, decode_server_frame,
};

#[test]
fn frames_have_the_bytes_of_the_protocol() {
    assert_eq!(WAITING, [0x11]);
    assert_eq!(acquired(Token(0x0102_0304_0506_0708)), [0x12, 1, 2, 3, 4, 5, 6, 7, 8]);
    assert_eq!(*ErrorFrame::with_reason(ErrorCode(0x18), "no"), [0x13, 0x18, 2, b'n', b'o']);
}

#[test]
fn a_long_reason_is_cut_between_characters() {
    let frame = ErrorFrame::with_reason(ErrorCode::STANDBY, &"é".repeat(200));
    assert_eq!(frame[2], 254);
    assert_eq!(std::str::from_utf8(&frame[3..]).unwrap(), "é".repeat(127));
}

#[test]
fn an_unknown_type_is_an_error_at_once() {
    assert_eq!(decode_server_frame(&[0x02, 0x11]), Err(UnknownFrame(2)));
    let said = |first: u8| decode_server_frame(&[first]).unwrap_err().to_string();
    assert_eq!(said(0x15), "the server sent a frame of unknown type 0x15: it speaks TLS");
    assert_eq!(said(0x16), "the server sent a frame of unknown type 0x16");
}

#[test]
fn a_reason_that_is_not_utf8_does_not_hide_the_code() {
    let (frame, len) = decode_server_frame(&[0x13, 1, 2, 0xff, b'x', 0x11]).unwrap().unwrap();
    assert_eq!(frame, ServerFrame::Error { code: ErrorCode(1), reason: "\u{fffd}x".into() });
    assert_eq!(len, 5);
}
