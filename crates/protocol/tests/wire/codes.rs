//! Error codes: their classes, and how they are shown.

use protocol::{Class, ErrorCode};

#[test]
fn the_class_depends_on_the_range_and_on_nothing_else() {
    for byte in 0..=u8::MAX {
        let expected = if byte < 0x10 { Class::ServerCondition } else { Class::ClientError };
        assert_eq!(ErrorCode(byte).class(), expected);
    }
}

#[test]
fn a_code_is_shown_with_two_hexadecimal_digits() {
    assert_eq!(ErrorCode::SHUTTING_DOWN.to_string(), "0x01");
    assert_eq!(ErrorCode::NOT_AUTHORIZED.to_string(), "0x18");
}
