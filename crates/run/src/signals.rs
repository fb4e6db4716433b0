//! The signals that `monolock run` takes.

use std::future::poll_fn;
use std::io;
use std::task::Poll;
use std::time::Duration;

use client::boottime_ns;
use inherited::Ignored;
use rustix::process::{Pid, Signal, getppid};
use tokio::net::UnixStream;
use tokio::signal::unix::{self, SignalKind, signal};

use super::members;
use super::relay::Relay;
use super::to_front::{RESTORE, STOP, ToFront};
use inherited::ParentsMask;

/// What is forwarded to the command, or ends the wait: whatever people and supervisors send to make a program
/// stop or do something.
pub(super) const FORWARDED: [Signal; 7] =
    [Signal::HUP, Signal::INT, Signal::QUIT, Signal::TERM, Signal::USR1, Signal::USR2, Signal::ALARM];

/// What a terminal stops a job by.
const STOPS: [Signal; 3] = [Signal::TSTP, Signal::TTIN, Signal::TTOU];

/// How much later than the command the front may stop by itself: Ctrl-Z stops both.
const STOP_NS: u64 = 100_000_000;

/// How long signals that came already are asked for: the least that tokio waits, whose clock counts
/// milliseconds.
const MISSED_MAX: Duration = Duration::from_millis(1);

/// What the parent meant for the command: its mask of blocked signals, and the signals that it ignores.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Inherited {
    pub mask: ParentsMask,
    pub ignored: Ignored,
}

impl Inherited {
    /// Keeps it for the command, and has the signals that we rely on come all the same. Before the first
    /// thread.
    pub(crate) fn put_aside() -> io::Result<Self> {
        inherited::keep_children();
        let relied_on: Vec<Signal> = FORWARDED.into_iter().chain(STOPS).chain([Signal::CHILD]).collect();
        Ok(Self { mask: inherited::unblock(&relied_on)?, ignored: Ignored::at_start() })
    }
}

/// Signals caught from here on.
#[derive(Debug)]
pub(crate) struct Signals {
    own: Vec<(Signal, unix::Signal)>,
    /// Caught and dropped: who is stopped sends no heartbeats.
    _stops: Vec<unix::Signal>,
    front: Option<Front>,
}

/// The front, as the keeper knows it.
#[derive(Debug)]
struct Front {
    line: UnixStream,
    process: Pid,
    shares_group: bool,
    /// Once the command runs.
    relay: Option<Relay>,
    /// A stopped command, and when the front is to stop too.
    stop: Option<(Pid, u64)>,
}

/// What woke us up.
enum Heard {
    Own(Signal),
    /// A signal that the front got; none if the front is gone.
    Told(Option<Signal>),
    Due,
}

impl Signals {
    /// Begins to catch them, on the current tokio runtime.
    ///
    /// What was ignored when we were started (nohup, a shell's background job) stays ignored, for the command
    /// too.
    pub(crate) fn new(inherited: &Inherited, front: Option<ToFront>) -> io::Result<Self> {
        let caught = |number: Signal| signal(SignalKind::from_raw(number.as_raw()));
        let is_ignored = |number: &Signal| inherited.ignored.contains(number.as_raw());
        let own = FORWARDED.into_iter().filter(|number| !is_ignored(number));
        let own = own.map(|number| Ok((number, caught(number)?))).collect::<io::Result<_>>()?;
        let stops = STOPS.into_iter().map(caught).collect::<io::Result<_>>()?;
        let front = front.map(Front::new).transpose()?;
        Ok(Self { own, _stops: stops, front })
    }

    /// From here on signals are the command's, which may have got them already, as it is in the job's group
    /// now. What came before may have missed it, and is to be passed on: it does nothing yet that a second
    /// one could disturb.
    pub(crate) async fn command_exists(&mut self) -> Vec<Signal> {
        let Some(front) = &mut self.front else { return Vec::new() };
        front.relay = Some(Relay::default());
        let mut missed = Vec::new();
        // Tokio tells of signals when it waits.
        while let Ok(signal) = tokio::time::timeout(MISSED_MAX, next_of(&mut self.own)).await {
            missed.push(signal);
        }
        missed
    }

    /// The next signal to act on. SIGKILL if the front was killed, SIGCONT if the job goes on.
    pub(crate) async fn next(&mut self) -> Signal {
        loop {
            let (own, front) = (&mut self.own, &mut self.front);
            let Some(front) = front else { return next_of(own).await };
            let heard = tokio::select! {
                biased;
                signal = next_of(own) => Heard::Own(signal),
                told = front.told() => Heard::Told(told),
                () = front.is_due() => Heard::Due,
            };
            let now_ns = boottime_ns();
            if let Some((command, _)) = front.stop.take_if(|(_, at_ns)| now_ns >= *at_ns) {
                front.stop_with(command);
            }
            match (heard, &mut front.relay) {
                (Heard::Told(None), _) => {
                    // It would be heard again at once, each time.
                    self.front = None;
                    return Signal::KILL;
                }
                (Heard::Told(Some(Signal::CONT)), Some(_)) => return Signal::CONT,
                (Heard::Told(Some(Signal::CONT)), None) => {}
                (Heard::Own(signal) | Heard::Told(Some(signal)), None) => return signal,
                (Heard::Own(signal), Some(relay)) => relay.witness(now_ns, signal),
                (Heard::Told(Some(signal)), Some(relay)) if front.shares_group => relay.told(now_ns, signal),
                (Heard::Told(Some(signal)), Some(_)) => return signal,
                (Heard::Due, relay) => {
                    if let Some(signal) = relay.as_mut().and_then(|relay| relay.due(now_ns)) {
                        return signal;
                    }
                }
            }
        }
    }

    /// The command was stopped: so is the job, and the shell has its terminal.
    pub(crate) fn command_stopped(&mut self, command: Pid) {
        if let Some(front) = self.front.as_mut().filter(|front| front.shares_group) {
            front.stop = Some((command, boottime_ns() + STOP_NS));
        }
    }

    /// Whether the command belongs into the process group of this process, and does not have its own.
    pub(crate) fn command_shares_group(&self) -> bool {
        self.front.as_ref().is_some_and(|front| front.shares_group)
    }

    /// Whether the user has stopped the job.
    pub(crate) fn is_job_stopped(&self) -> bool {
        self.front.as_ref().is_some_and(|front| members::is_stopped(front.process))
    }

    /// Waits until a stopped job goes on; a signal that ends it is the error.
    pub(crate) async fn job_goes_on(&mut self) -> Result<(), Signal> {
        while self.is_job_stopped() {
            let Some(front) = &self.front else { break };
            tokio::select! {
                signal = next_of(&mut self.own) => return Err(signal),
                told = front.told() => match told {
                    Some(Signal::CONT) => {}
                    Some(signal) => return Err(signal),
                    None => return Err(Signal::KILL),
                },
            }
        }
        Ok(())
    }

    /// Has the terminal get its modes back.
    pub(crate) fn restore_terminal(&self) {
        if let Some(front) = &self.front {
            let _ = front.line.try_write(&[RESTORE]);
        }
    }
}

impl Front {
    fn new(ToFront { line, shares_group, .. }: ToFront) -> io::Result<Self> {
        let line = UnixStream::from_std(line)?;
        let process = getppid().ok_or(io::ErrorKind::NotFound)?;
        Ok(Self { line, process, shares_group, relay: None, stop: None })
    }

    /// May be dropped and called again at any time.
    async fn told(&self) -> Option<Signal> {
        let mut byte = [0];
        loop {
            if self.line.readable().await.is_err() {
                return None;
            }
            match self.line.try_read(&mut byte) {
                Ok(1..) => return Signal::from_named_raw(i32::from(byte[0])),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Ok(0) | Err(_) => return None,
            }
        }
    }

    /// Nothing to do where all stopped at once, or goes on already.
    fn stop_with(&self, command: Pid) {
        if members::is_stopped(command) && !members::is_stopped(self.process) {
            let _ = self.line.try_write(&[STOP]);
        }
    }

    async fn is_due(&self) {
        let relay_ns = self.relay.as_ref().and_then(Relay::wake_ns);
        match relay_ns.into_iter().chain(self.stop.map(|(_, at_ns)| at_ns)).min() {
            Some(at_ns) => {
                tokio::time::sleep(Duration::from_nanos(at_ns.saturating_sub(boottime_ns()))).await
            }
            None => std::future::pending().await,
        }
    }
}

async fn next_of(signals: &mut [(Signal, unix::Signal)]) -> Signal {
    poll_fn(|context| {
        for (number, stream) in signals.iter_mut() {
            if stream.poll_recv(context).is_ready() {
                return Poll::Ready(*number);
            }
        }
        Poll::Pending
    })
    .await
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
