//! Waiting for a condition, with a deadline.

use std::thread;
use std::time::{Duration, Instant};

/// How long any single condition may take before a test fails. Generous: a busy machine must not fail a test.
pub const PATIENCE: Duration = Duration::from_secs(10);

/// Waits until `condition` gives a value.
///
/// # Panics
///
/// It gives none within [`PATIENCE`].
pub fn wait_for<T>(what: &str, mut condition: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + PATIENCE;
    loop {
        if let Some(value) = condition() {
            return value;
        }
        assert!(Instant::now() < deadline, "waited in vain for {what}");
        thread::sleep(Duration::from_millis(1));
    }
}
