//! What a lease may be.

use std::time::Duration;

use protocol::Lease;

#[test]
fn a_lease_is_positive_and_fits_in_32_bits_of_milliseconds() {
    assert_eq!(Lease::from_ms(0), None);
    assert_eq!(Lease::from_duration(Duration::from_micros(999)), None);
    assert_eq!(Lease::from_duration(Duration::from_millis(u64::from(u32::MAX) + 1)), None);
    let longest = Lease::from_duration(Duration::from_millis(u64::from(u32::MAX))).unwrap();
    assert_eq!(longest.as_ns(), 4_294_967_295_000_000);
}
