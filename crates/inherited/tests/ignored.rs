//! Signals that are ignored, as a set.

use inherited::Ignored;

#[test]
fn a_signal_is_one_of_a_set_by_its_bit_and_others_are_in_none() {
    let set = Ignored::from_bits(0x1001);
    assert!(set.contains(1) && set.contains(13));
    assert!(!set.contains(2) && !set.contains(0) && !set.contains(65) && !set.contains(-1));
    assert_eq!(set.bits(), 0x1001);
}
