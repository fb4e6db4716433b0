//! The start of the command, which may hang: exec reads a file, and a file may be on a network that is gone.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread;
use std::time::Duration;

use client::boottime_ns;
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use rustix::thread::gettid;
use tokio::sync::oneshot;

use super::group::Group;

/// How often a signal is tried on a child that was not there the last time: forking takes a millisecond or so.
const RETRY: Duration = Duration::from_millis(5);

/// What became of it; `None` when it was too late to start.
pub(crate) type Launched = io::Result<Option<Group>>;

/// A start under way, on a thread of its own: heartbeats go on.
#[derive(Debug)]
pub(crate) struct Launch {
    done: oneshot::Receiver<Launched>,
    shared: Arc<Shared>,
    /// What the child has not got yet.
    unsent: Vec<Signal>,
}

#[derive(Debug, Default)]
struct Shared {
    called_off: AtomicBool,
    /// Who starts the command and has no other child.
    thread: OnceLock<Pid>,
}

impl Launch {
    /// Begins to start a command, but not at `until_ns` (CLOCK_BOOTTIME) or later.
    pub(crate) fn begin(
        spawn: impl FnOnce() -> io::Result<Group> + Send + 'static,
        until_ns: u64,
    ) -> io::Result<Self> {
        let (sender, done) = oneshot::channel();
        let shared = Arc::new(Shared::default());
        let theirs = Arc::clone(&shared);
        thread::Builder::new().name("launch".into()).spawn(move || {
            theirs.thread.set(gettid()).expect("set once");
            let is_late = theirs.called_off.load(Ordering::SeqCst) || boottime_ns() >= until_ns;
            // Where nobody waits any more, a group is killed by being dropped.
            let _ = sender.send(if is_late { Ok(None) } else { spawn().map(Some) });
        })?;
        Ok(Self { done, shared, unsent: Vec::new() })
    }

    /// Waits for the outcome; it may be dropped and called again.
    pub(crate) async fn outcome(&mut self) -> Launched {
        loop {
            tokio::select! {
                biased;
                launched = &mut self.done => return launched.expect("the thread sends before it ends"),
                () = tokio::time::sleep(RETRY), if !self.unsent.is_empty() => self.send(),
            }
        }
    }

    /// Keeps the command from starting any more. A child that is there already gets the signal.
    pub(crate) fn call_off(&mut self, signal: Signal) {
        self.shared.called_off.store(true, Ordering::SeqCst);
        self.signal(signal);
    }

    /// Sends a signal to the child as soon as there is one.
    pub(crate) fn signal(&mut self, signal: Signal) {
        if !self.unsent.contains(&signal) {
            self.unsent.push(signal);
        }
        self.send();
    }

    /// What came too late for the child alone: it belongs to the group now.
    pub(crate) fn into_unsent(self) -> Vec<Signal> {
        self.unsent
    }

    fn send(&mut self) {
        let Some(child) = self.child() else { return };
        for signal in self.unsent.drain(..) {
            // Who has ended since needs none.
            let _ = pidfd_send_signal(&child, signal);
        }
    }

    /// The child, from its fork on; its number is not told before its exec. `None` also where the kernel was built
    /// without lists of children: then the signals wait for the exec.
    fn child(&self) -> Option<OwnedFd> {
        let thread = self.shared.thread.get()?.as_raw_pid();
        let first = || {
            let children = std::fs::read_to_string(format!("/proc/self/task/{thread}/children")).ok()?;
            Pid::from_raw(children.split_ascii_whitespace().next()?.parse().ok()?)
        };
        let child = first()?;
        let descriptor = pidfd_open(child, PidfdFlags::empty()).ok()?;
        // Still ours after it was opened: the number was not somebody else's meanwhile.
        (first() == Some(child)).then_some(descriptor)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    use std::os::unix::process::ExitStatusExt;
    use std::process::{Command, Stdio};
    use std::sync::mpsc;

    use protocol::Token;

    fn spawn() -> io::Result<Group> {
        Group::spawn(&["true".into()], "lock", Token(1))
    }

    #[tokio::test]
    async fn a_command_starts_before_its_time_is_over_and_not_at_its_end() {
        assert!(Launch::begin(spawn, u64::MAX).unwrap().outcome().await.unwrap().is_some());
        let end_ns = boottime_ns();
        assert!(Launch::begin(spawn, end_ns).unwrap().outcome().await.unwrap().is_none());
    }

    #[tokio::test]
    async fn a_signal_that_came_before_the_fork_reaches_the_child() {
        let (go, wait) = mpsc::channel::<()>();
        let (here, is_here) = mpsc::channel();
        // A child of the launching thread that does not end by itself, and an exec that never comes to an end.
        let hanging = move || {
            here.send(()).unwrap();
            let _ = wait.recv();
            let mut child = Command::new("cat").stdin(Stdio::piped()).spawn()?;
            let stdin = child.stdin.take();
            let signal = child.wait()?.signal();
            drop(stdin);
            assert_eq!(signal, Some(Signal::TERM.as_raw()));
            spawn()
        };
        let mut launch = Launch::begin(hanging, u64::MAX).unwrap();
        is_here.recv().unwrap();
        launch.signal(Signal::TERM);
        drop(go);
        assert!(launch.outcome().await.unwrap().is_some());
        assert_eq!(launch.into_unsent(), []);
    }
}
