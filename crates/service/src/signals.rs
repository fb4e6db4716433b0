//! The signals that end a process.

use std::time::Duration;

use tokio::signal::unix::{Signal, SignalKind, signal};

/// How long after the first signal another one counts as the second. Whoever signals a process and then its
/// group (timeout(1), a container's init) takes microseconds; who loses patience takes longer, and asks
/// again.
const SECOND_SIGNAL_AFTER: Duration = Duration::from_millis(250);

/// The signals that end a process: SIGTERM and SIGINT.
#[derive(Debug)]
pub struct Signals {
    terminate: Signal,
    interrupt: Signal,
}

impl Signals {
    /// Handles them from now on, in the context of the current runtime.
    ///
    /// # Errors
    ///
    /// The system has no descriptors left.
    pub fn new() -> std::io::Result<Self> {
        Ok(Self { terminate: signal(SignalKind::terminate())?, interrupt: signal(SignalKind::interrupt())? })
    }

    /// The next signal that asks the process to end.
    pub async fn next_to_end(&mut self) -> &'static str {
        tokio::select! {
            _ = self.terminate.recv() => "SIGTERM",
            _ = self.interrupt.recv() => "SIGINT",
        }
    }

    /// The next one after the first and all that came along with it.
    pub async fn second_to_end(&mut self) -> &'static str {
        tokio::time::sleep(SECOND_SIGNAL_AFTER).await;
        // A slow machine may show only now what came together.
        loop {
            tokio::select! {
                biased;
                _ = self.next_to_end() => {}
                () = std::future::ready(()) => break,
            }
        }
        self.next_to_end().await
    }
}
