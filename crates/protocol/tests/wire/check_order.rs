//! The order in which an ACQUIRE is checked, restated: an ACQUIRE with several faults is answered for the
//! first.

use proptest::prelude::*;
use protocol::{Acquire, ErrorCode, Lease, LockName, decode_acquire};

use crate::values;

/// An ACQUIRE's faults, one a check.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fault {
    Type,
    Version,
    Lease,
    EmptyName,
    LongName,
    NotUtf8,
}

/// The protocol's checks in its order: the fault, its answer, and how many bytes must be there to see it.
/// The last one stands for the whole frame: a name is looked at when all of it is there.
const CHECKS: [(Fault, u8, Option<usize>); 6] = [
    (Fault::Type, 0x11, Some(1)),
    (Fault::Version, 0x10, Some(1 + 1)),
    (Fault::Lease, 0x17, Some(1 + 1 + 4)),
    (Fault::EmptyName, 0x14, Some(1 + 1 + 4 + 2)),
    (Fault::LongName, 0x15, Some(1 + 1 + 4 + 2)),
    (Fault::NotUtf8, 0x16, None),
];

/// The types of all other frames: as a first frame they are no better than an unknown type.
const OTHER_TYPES: [u8; 4] = [0x02, 0x11, 0x12, 0x13];

/// Bytes that are UTF-8 in no place between two characters: a lone continuation, an overlong form, a
/// surrogate, a character cut short, one beyond the last, and a byte that UTF-8 never has.
const NOT_UTF8: [&[u8]; 6] =
    [b"\x80", b"\xc0\x80", b"\xed\xa0\x80", b"\xe2\x82", b"\xf4\x90\x80\x80", b"\xff"];

/// The longest of [`NOT_UTF8`].
const NOT_UTF8_BYTES_MAX: usize = 4;

/// For each field, a good and a bad value.
#[derive(Debug, Clone)]
struct Fields {
    bad_type: u8,
    bad_version: u8,
    lease: Lease,
    long_len: u16,
    name: LockName,
    not_utf8: Vec<u8>,
}

fn fields() -> impl Strategy<Value = Fields> {
    let bad_type = prop_oneof![prop::sample::select(OTHER_TYPES.to_vec()), Just(0), 2..=u8::MAX];
    let bad_version = prop_oneof![Just(0), Just(2), 2..=u8::MAX];
    let long_len = prop_oneof![Just(256), Just(u16::MAX), 256..=u16::MAX];
    let not_utf8 = (values::name(), any::<prop::sample::Index>(), prop::sample::select(&NOT_UTF8[..]));
    let not_utf8 = not_utf8.prop_map(|(name, at, fault)| {
        let text = &name.as_str()[..name.as_str().floor_char_boundary(255 - NOT_UTF8_BYTES_MAX)];
        let at = text.floor_char_boundary(at.index(text.len() + 1));
        [&text.as_bytes()[..at], fault, &text.as_bytes()[at..]].concat()
    });
    (bad_type, bad_version, values::lease(), long_len, values::name(), not_utf8).prop_map(
        |(bad_type, bad_version, lease, long_len, name, not_utf8)| Fields {
            bad_type,
            bad_version,
            lease,
            long_len,
            name,
            not_utf8,
        },
    )
}

/// Every set of faults that one ACQUIRE can have; a name is not empty and too long at once.
fn every_set_of_faults() -> impl Iterator<Item = Vec<Fault>> {
    (0..1_u32 << CHECKS.len())
        .map(|set| {
            let faults = CHECKS.iter().enumerate().filter(|(bit, _)| set & (1 << bit) != 0);
            faults.map(|(_, (fault, ..))| *fault).collect::<Vec<_>>()
        })
        .filter(|faults| !(faults.contains(&Fault::EmptyName) && faults.contains(&Fault::LongName)))
}

/// The frame with these faults, and how long it would be if its name length is obeyed.
fn frame(fields: &Fields, faults: &[Fault]) -> (Vec<u8>, usize) {
    let has = |fault| faults.contains(&fault);
    let name = if has(Fault::NotUtf8) { &fields.not_utf8 } else { fields.name.as_bytes() };
    let name_len = match (has(Fault::EmptyName), has(Fault::LongName)) {
        (true, _) => 0,
        (_, true) => fields.long_len,
        _ => u16::try_from(name.len()).expect("at most 255 bytes"),
    };
    let mut bytes = vec![
        if has(Fault::Type) { fields.bad_type } else { 1 },
        if has(Fault::Version) { fields.bad_version } else { 1 },
    ];
    bytes.extend(if has(Fault::Lease) { [0; 4] } else { fields.lease.as_ms().to_be_bytes() });
    bytes.extend(name_len.to_be_bytes());
    let len = bytes.len() + usize::from(name_len);
    bytes.extend(name);
    (bytes, len)
}

proptest! {
    #![proptest_config(values::config_of_slow_cases())]

    #[test]
    fn an_acquire_with_any_faults_is_answered_for_the_first_as_soon_as_its_bytes_are_there(fields in fields()) {
        let claim = Acquire { name: fields.name.clone(), lease: fields.lease };
        for faults in every_set_of_faults() {
            let (bytes, len) = frame(&fields, &faults);
            let first = CHECKS.iter().find(|(fault, ..)| faults.contains(fault));
            for end in 0..=bytes.len() {
                let expected = match first {
                    Some((_, code, seen_at)) if end >= seen_at.unwrap_or(len) => Err(ErrorCode(*code)),
                    None if end >= len => Ok(Some((claim.clone(), &bytes[len..end]))),
                    _ => Ok(None),
                };
                prop_assert_eq!(decode_acquire(&bytes[..end]), expected, "{:?} up to {}", faults, end);
            }
        }
    }
}
