//! How far the process is in its life.

use std::sync::atomic::{AtomicU8, Ordering};

/// Where the process stands in its life. Never goes back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Phase {
    Starting,
    Serving,
    ShuttingDown,
}

/// The phase, for one writer and many readers.
#[derive(Debug, Default)]
pub(super) struct Lifecycle(AtomicU8);

impl Lifecycle {
    pub(super) fn advance(&self, phase: Phase) {
        self.0.fetch_max(phase as u8, Ordering::Relaxed);
    }

    pub(super) fn phase(&self) -> Phase {
        match self.0.load(Ordering::Relaxed) {
            0 => Phase::Starting,
            1 => Phase::Serving,
            _ => Phase::ShuttingDown,
        }
    }
}
