//! The signals that `monolock run` takes.

use std::future::poll_fn;
use std::io;
use std::task::Poll;

use rustix::process::Signal;
use tokio::signal::unix::{self, SignalKind, signal};

/// What is forwarded to the command, or ends the wait: whatever people and supervisors send to make a program stop or
/// do something.
const FORWARDED: [Signal; 7] =
    [Signal::HUP, Signal::INT, Signal::QUIT, Signal::TERM, Signal::USR1, Signal::USR2, Signal::ALARM];

/// Signals caught from here on.
#[derive(Debug)]
pub(crate) struct Signals {
    forwarded: Vec<(Signal, unix::Signal)>,
    /// Caught and dropped: who is stopped sends no heartbeats.
    _stop: unix::Signal,
}

impl Signals {
    /// Begins to catch them, on the current tokio runtime.
    ///
    /// What was ignored when we were started (nohup, a shell's background job) stays ignored, for the command too.
    pub(crate) fn new() -> io::Result<Self> {
        let ignored = ignored_mask(&std::fs::read_to_string("/proc/self/status").unwrap_or_default());
        let mut forwarded = Vec::with_capacity(FORWARDED.len());
        for number in FORWARDED.into_iter().filter(|&number| !is_in(ignored, number)) {
            forwarded.push((number, signal(SignalKind::from_raw(number.as_raw()))?));
        }
        let stop = signal(SignalKind::from_raw(Signal::TSTP.as_raw()))?;
        Ok(Self { forwarded, _stop: stop })
    }

    /// The next signal to forward.
    pub(crate) async fn next(&mut self) -> Signal {
        poll_fn(|context| {
            for (number, stream) in &mut self.forwarded {
                if stream.poll_recv(context).is_ready() {
                    return Poll::Ready(*number);
                }
            }
            Poll::Pending
        })
        .await
    }
}

/// Tells when a child may have ended.
#[derive(Debug)]
pub(crate) struct Children(unix::Signal);

impl Children {
    /// Begins to watch, on the current tokio runtime.
    pub(crate) fn new() -> io::Result<Self> {
        signal(SignalKind::child()).map(Self)
    }

    /// Some child may have ended since the last call.
    pub(crate) async fn changed(&mut self) {
        self.0.recv().await;
    }
}

/// The mask of ignored signals in a `/proc/PID/status`; zero when it is not there.
fn ignored_mask(status: &str) -> u64 {
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0)
}

fn is_in(mask: u64, signal: Signal) -> bool {
    mask & (1 << (signal.as_raw() - 1)) != 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ignored_signals_are_read_from_the_status_file() {
        let mask =
            ignored_mask("Name:\tx\nSigBlk:\tffffffffffffffff\nSigIgn:\t0000000000001001\nSigCgt:\t0\n");
        assert!(is_in(mask, Signal::HUP));
        assert!(is_in(mask, Signal::PIPE));
        assert!(!is_in(mask, Signal::INT));
        assert_eq!(ignored_mask(""), 0);
    }
}
