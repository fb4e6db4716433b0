//! Which requests are not sent at all.

use std::time::Duration;

use monolock_client::{Error, request};

#[test]
fn a_request_with_a_bad_name_or_lease_is_refused_here() {
    let second = Duration::from_secs(1);
    assert!(matches!(request("", second), Err(Error::InvalidName(_))));
    assert!(matches!(request(&"x".repeat(256), second), Err(Error::InvalidName(_))));
    assert!(matches!(request("x", Duration::ZERO), Err(Error::InvalidLease)));
    assert_eq!(request("x", second).unwrap().lease.as_ms(), 1000);
}
