//! The first frame of a client: its bytes, and what is wrong with others.

use protocol::{Acquire, ErrorCode, Lease, LockName, decode_acquire};

fn frame(version: u8, lease_ms: u32, name_len: u16, name: &[u8]) -> Vec<u8> {
    let mut bytes = vec![1, version];
    bytes.extend(lease_ms.to_be_bytes());
    bytes.extend(name_len.to_be_bytes());
    bytes.extend(name);
    bytes
}

#[test]
fn an_acquire_has_the_bytes_of_the_protocol() {
    let acquire = Acquire { name: LockName::new("ab").unwrap(), lease: Lease::from_ms(0x0102_0304).unwrap() };
    assert_eq!(*acquire.encode(), [1, 1, 1, 2, 3, 4, 0, 2, b'a', b'b']);
}

#[test]
fn bytes_after_the_acquire_are_handed_back() {
    let mut bytes = frame(1, 1000, 1, b"x");
    bytes.extend([2, 2, 9]);
    let (acquire, rest) = decode_acquire(&bytes).unwrap().unwrap();
    assert_eq!(acquire.name.as_str(), "x");
    assert_eq!(acquire.lease.as_ms(), 1000);
    assert_eq!(rest, [2, 2, 9]);
}

#[test]
fn each_check_answers_at_its_first_decisive_byte_and_in_order() {
    let no_utf8 = b"\xff";
    let everything_wrong = frame(9, 0, 0, no_utf8);
    // (bytes, code, length of the shortest prefix that decides)
    let cases: [(Vec<u8>, ErrorCode, usize); 8] = [
        (vec![0x02], ErrorCode::NOT_ACQUIRE, 1),
        (vec![0xee, 9], ErrorCode::NOT_ACQUIRE, 1),
        (everything_wrong, ErrorCode::UNSUPPORTED_VERSION, 2),
        (frame(1, 0, 0, b""), ErrorCode::LEASE_NOT_POSITIVE, 6),
        (frame(1, 0, 300, b""), ErrorCode::LEASE_NOT_POSITIVE, 6),
        (frame(1, 1, 0, b""), ErrorCode::EMPTY_NAME, 8),
        (frame(1, 1, 256, no_utf8), ErrorCode::NAME_TOO_LONG, 8),
        (frame(1, 1, 1, no_utf8), ErrorCode::NAME_NOT_UTF8, 9),
    ];
    for (bytes, code, decisive) in cases {
        for end in 0..=bytes.len() {
            let expected = if end < decisive { Ok(None) } else { Err(code) };
            assert_eq!(decode_acquire(&bytes[..end]), expected, "{bytes:02x?} up to {end}");
        }
    }
}

#[test]
fn names_of_one_and_of_255_bytes_with_any_character_are_taken() {
    for name in ["a".to_owned(), "é".repeat(127) + "x", "nul\0line\n/ ".to_owned()] {
        let bytes = frame(1, u32::MAX, u16::try_from(name.len()).unwrap(), name.as_bytes());
        let (acquire, rest) = decode_acquire(&bytes).unwrap().unwrap();
        assert_eq!((acquire.name.as_str(), acquire.lease.as_ms(), rest.len()), (&*name, u32::MAX, 0));
    }
}
