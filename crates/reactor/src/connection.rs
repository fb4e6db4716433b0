//! One connection's state, and the decision what to ask of the kernel next.

use std::os::fd::OwnedFd;

use rustix::io::Errno;

use crate::output::Output;

/// Output above which a connection is not read any more. 450 answers of 9 bytes: nobody that reads its
/// answers is so far behind, and a stuck client costs a shard no more than this and what was under way.
pub const OUTPUT_PAUSE_BYTES: usize = 4096;

/// Input that is thrown away after [`close_after`](crate::Reactor::close_after) before the connection is cut.
/// Clients send single bytes; 256 KB is a receive window and more that filled up before.
pub const DRAIN_BYTES_MAX: u32 = 256 * 1024;

/// How far a connection's life has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stage {
    /// The owner gets its events.
    Open,
    /// The owner was told of the end, or is about to be; it has not let go yet.
    Ended,
    /// Let go: output goes out, then FIN, input is thrown away until the peer closes.
    Draining,
    /// Let go and shut down; waits for the kernel to finish its operations.
    Closing,
}

/// The multishot receive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Receive {
    Idle,
    Armed,
    /// A cancellation is under way; completions still come, the last one without MORE.
    Cancelling,
}

/// The one send.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Flight {
    Landed,
    /// Has a completion only if it fails; has succeeded once the completions after that turn's enter are
    /// drained.
    Quiet {
        turn: u64,
    },
    /// Waits for room in the socket and has a completion.
    Tracked,
}

/// How to send the next piece of output.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Send {
    Quiet,
    Tracked,
}

/// What to ask of the kernel; decided by [`Link::plan`], done by the reactor.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Plan {
    pub(crate) send: Option<Send>,
    pub(crate) cancel_send: bool,
    pub(crate) arm_receive: bool,
    pub(crate) cancel_receive: bool,
    pub(crate) shut_write: bool,
    /// See [`Link::is_at_rest`].
    pub(crate) release: bool,
    /// Nothing in the kernel will call again for this connection: plan it in the next turn too.
    pub(crate) again: bool,
}

pub(crate) struct Link<T> {
    pub(crate) fd: OwnedFd,
    pub(crate) data: Option<T>,
    pub(crate) output: Output,
    pub(crate) stage: Stage,
    pub(crate) receive: Receive,
    pub(crate) flight: Flight,
    /// The plain descriptor is in the direct table too, at the record's index.
    pub(crate) direct: bool,
    /// On the list for the next turn's plans.
    pub(crate) listed: bool,
    /// An entry in the timer heap exists.
    pub(crate) has_stall_timer: bool,
    /// A send found the socket full; tracked sends until the output is empty.
    blocked: bool,
    /// Output is beyond the limit; no receive until it is empty.
    paused: bool,
    /// A send failed: the rest of the output has nowhere to go.
    mute: bool,
    /// The receive came to its end: EOF or an error.
    peer_done: bool,
    fin_sent: bool,
    /// The socket's error, if a send took it: a socket tells its error once.
    error: Option<Errno>,
    drained_bytes: u32,
    /// When output last moved, or began to wait.
    pub(crate) progress_ns: u64,
}

impl<T> Link<T> {
    pub(crate) fn new(fd: OwnedFd, direct: bool, data: T) -> Self {
        Self {
            fd,
            data: Some(data),
            output: Output::new(),
            stage: Stage::Open,
            receive: Receive::Idle,
            flight: Flight::Landed,
            direct,
            listed: false,
            has_stall_timer: false,
            blocked: false,
            paused: false,
            mute: false,
            peer_done: false,
            fin_sent: false,
            error: None,
            drained_bytes: 0,
            progress_ns: 0,
        }
    }

    /// Events go to the owner.
    pub(crate) fn is_open(&self) -> bool {
        self.stage == Stage::Open
    }

    /// The owner has not let go.
    pub(crate) fn is_owned(&self) -> bool {
        matches!(self.stage, Stage::Open | Stage::Ended)
    }

    pub(crate) fn is_reading(&self) -> bool {
        self.is_open() && self.receive == Receive::Armed && !self.paused
    }

    /// Closing, and nothing is in flight: descriptor and record can go.
    pub(crate) fn is_at_rest(&self) -> bool {
        self.stage == Stage::Closing && self.receive == Receive::Idle && self.flight == Flight::Landed
    }

    /// Output waits for the peer to read.
    pub(crate) fn is_waiting_to_send(&self) -> bool {
        self.blocked || self.flight == Flight::Tracked
    }

    /// Nothing can be sent any more.
    pub(crate) fn is_mute(&self) -> bool {
        self.mute
    }

    pub(crate) fn push_output(&mut self, bytes: &[u8]) {
        if self.mute {
            return;
        }
        self.output.push(bytes);
        self.paused |= self.output.len() > OUTPUT_PAUSE_BYTES;
    }

    /// The owner lets go; `last` ends the output.
    pub(crate) fn start_draining(&mut self, last: &[u8]) -> Option<T> {
        self.push_output(last);
        self.stage = Stage::Draining;
        self.data.take()
    }

    /// No output and no input from now on. The caller has the socket shut down.
    pub(crate) fn start_closing(&mut self) -> Option<T> {
        self.output.discard();
        self.mute = true;
        self.stage = Stage::Closing;
        self.data.take()
    }

    /// Counts input that is thrown away; false once it is too much.
    pub(crate) fn drain(&mut self, bytes: u32) -> bool {
        self.drained_bytes = self.drained_bytes.saturating_add(bytes);
        self.drained_bytes <= DRAIN_BYTES_MAX
    }

    /// The flight is over, `gone` bytes of it are sent.
    pub(crate) fn land(&mut self, gone: usize) {
        self.output.landed(gone);
        self.flight = Flight::Landed;
        if self.stage == Stage::Closing {
            self.output.discard();
        }
        if self.output.is_empty() {
            self.blocked = false;
        }
    }

    /// The quiet send found the socket full.
    pub(crate) fn block(&mut self, now_ns: u64) {
        self.blocked = !self.output.is_empty();
        self.progress_ns = now_ns;
    }

    /// A send failed for good. The receive tells the owner, after the bytes that came before.
    pub(crate) fn fail_send(&mut self, errno: Errno) {
        self.land(0);
        self.output.discard();
        self.blocked = false;
        self.mute = true;
        // EPIPE only says that the socket's error was taken by somebody else.
        if errno != Errno::PIPE {
            self.error.get_or_insert(errno);
        }
    }

    /// The receive is at its end, with the error it saw; returns the cause, the first error seen.
    pub(crate) fn finish_receive(&mut self, errno: Option<Errno>) -> Option<Errno> {
        self.peer_done = true;
        self.mute |= errno.is_some();
        if self.mute {
            self.output.discard();
        }
        self.error.or(errno)
    }

    /// Decides what the kernel is asked next. `drained_turn` is the last turn whose completions are all
    /// drained.
    pub(crate) fn plan(&mut self, drained_turn: u64) -> Plan {
        if let Flight::Quiet { turn } = self.flight
            && turn <= drained_turn
        {
            self.land(self.output.flight_len());
        }
        self.paused &= !self.output.is_empty();
        match self.stage {
            Stage::Open => self.plan_io(!self.paused),
            Stage::Ended => Plan::default(),
            Stage::Draining => self.plan_draining(),
            Stage::Closing => self.plan_closing(),
        }
    }

    fn plan_io(&self, read: bool) -> Plan {
        let tracked =
            self.blocked || self.paused || self.stage == Stage::Draining || !self.output.is_one_piece();
        let can_send = self.flight == Flight::Landed && !self.output.is_empty();
        let undecided = matches!(self.flight, Flight::Quiet { .. });
        Plan {
            send: can_send.then_some(if tracked { Send::Tracked } else { Send::Quiet }),
            arm_receive: read && self.receive == Receive::Idle,
            cancel_receive: !read && self.receive == Receive::Armed,
            again: undecided
                && (self.stage == Stage::Draining || self.output.len() > self.output.flight_len()),
            ..Plan::default()
        }
    }

    fn plan_draining(&mut self) -> Plan {
        let sent = self.flight == Flight::Landed && self.output.is_empty();
        if sent && self.peer_done {
            self.stage = Stage::Closing;
            return self.plan_closing();
        }
        let shut_write = sent && !self.fin_sent;
        self.fin_sent |= shut_write;
        Plan { shut_write, ..self.plan_io(!self.peer_done) }
    }

    fn plan_closing(&self) -> Plan {
        Plan {
            cancel_receive: self.receive == Receive::Armed,
            cancel_send: self.flight == Flight::Tracked,
            release: self.is_at_rest(),
            again: matches!(self.flight, Flight::Quiet { .. }),
            ..Plan::default()
        }
    }
}
