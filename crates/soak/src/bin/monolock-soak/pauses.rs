//! The pauses between attempts of a client.

use std::time::Duration;

use client::{Error, Loss};
use protocol::ErrorCode;

/// The longest pauses before the next attempt, as the protocol wants them.
pub(crate) struct Pauses(Duration);

impl Pauses {
    const FIRST: Duration = Duration::from_millis(100);
    const LAST: Duration = Duration::from_secs(5);

    pub(crate) fn new() -> Self {
        Self(Self::FIRST)
    }

    pub(crate) fn after(&mut self, error: &Error) -> Duration {
        if matches!(error, Error::Lost(Loss::Server { code: ErrorCode::SHUTTING_DOWN, .. })) {
            return Self::FIRST;
        }
        let pause = self.0;
        self.0 = (2 * pause).min(Self::LAST);
        pause
    }
}
