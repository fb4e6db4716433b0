//! What a name may be, and when two are the same.

use protocol::{ErrorCode, LockName};

#[test]
fn a_name_has_1_to_255_bytes_of_utf8() {
    assert_eq!(LockName::new(""), Err(ErrorCode::EMPTY_NAME));
    assert_eq!(LockName::new(&"é".repeat(128)), Err(ErrorCode::NAME_TOO_LONG));
    assert!(LockName::new(&"x".repeat(255)).is_ok());
    assert_eq!(LockName::from_bytes(b"a\xc3"), Err(ErrorCode::NAME_NOT_UTF8));
}

#[test]
fn names_are_compared_byte_by_byte() {
    let name = |text| LockName::new(text).unwrap();
    assert_ne!(name("a"), name("A"));
    assert_ne!(name("a"), name("a "));
    assert_ne!(name("\u{e9}"), name("e\u{301}"));
}
