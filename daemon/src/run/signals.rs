//! The signals that `monolock run` takes.

use std::future::poll_fn;
use std::io;
use std::task::Poll;

use dispositions::Ignored;
use rustix::process::Signal;
use tokio::signal::unix::{self, SignalKind, signal};

use crate::signals::{self, ParentsMask};

/// What is forwarded to the command, or ends the wait: whatever people and supervisors send to make a program stop or
/// do something.
const FORWARDED: [Signal; 7] =
    [Signal::HUP, Signal::INT, Signal::QUIT, Signal::TERM, Signal::USR1, Signal::USR2, Signal::ALARM];

/// What the parent meant for the command: its mask of blocked signals, and the signals that it ignores.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Inherited {
    pub(crate) mask: ParentsMask,
    pub(crate) ignored: Ignored,
}

impl Inherited {
    /// Keeps it for the command, and has the signals that we rely on come all the same. Before the first thread.
    pub(crate) fn put_aside() -> io::Result<Self> {
        dispositions::keep_children();
        let relied_on: Vec<Signal> = FORWARDED.into_iter().chain([Signal::TSTP, Signal::CHILD]).collect();
        Ok(Self { mask: signals::unblock(&relied_on)?, ignored: Ignored::at_start() })
    }
}

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
    pub(crate) fn new(ignored: Ignored) -> io::Result<Self> {
        let mut forwarded = Vec::with_capacity(FORWARDED.len());
        for number in FORWARDED.into_iter().filter(|number| !ignored.contains(number.as_raw())) {
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
