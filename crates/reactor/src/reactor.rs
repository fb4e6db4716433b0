//! The reactor: turns plans into submissions and completions into events.

mod completions;
mod deadlines;

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use io_uring::{opcode, squeue, types};
use rustix::io::Errno;
use rustix::net::Shutdown;
use rustix::time::{ClockId, clock_gettime};

use crate::buffers::{self, Buffers};
use crate::connection::{Flight, Link, Plan, Receive, Send, Stage};
use crate::pacing::{GATHER_EVENTS, Pacing};
use crate::ring::{Completion, Ring, SUBMISSIONS};
use crate::slab::{Key, Slab};
use crate::timers::{Drains, Stalls};
use crate::unavailable::Unavailable;
use crate::waker::Waker;

/// The longest that a connection drains after [`Reactor::close_after`]: the protocol's shutdown window.
pub const DRAIN_MAX: Duration = Duration::from_secs(1);

/// Descriptors that one submission is followed by shutting down or closing: some 5 µs each, so that thousands
/// of connections that end at once keep no answer waiting for half a millisecond.
const CHORES_A_TURN_MAX: usize = 64;

/// Submissions that one plan can need: a send or its cancellation, and the receive's arming or cancellation.
const SUBMISSIONS_PER_PLAN: usize = 2;

/// Operation tags in the ring's user data.
mod tag {
    pub(super) const RECEIVE: u8 = 0;
    pub(super) const SEND: u8 = 1;
    pub(super) const CANCEL_RECEIVE: u8 = 2;
    pub(super) const CANCEL_SEND: u8 = 3;
    pub(super) const WAKE: u8 = 4;
}

/// User data of the poll of the waker's eventfd: only its tag matters.
const WAKE_USER_DATA: u64 = (tag::WAKE as u64) << 60;

/// Sizes and limits of one reactor.
#[derive(Debug, Clone)]
pub struct Config {
    /// Slots of the direct descriptor table, cut to RLIMIT_NOFILE and to 65536. More sockets work too, with
    /// plain descriptors.
    pub sockets_max: u32,
    /// How long output may wait for the peer without any progress.
    pub io_timeout: Duration,
    /// Connections that may drain at once; one more cuts the oldest off, output that is not sent yet
    /// included.
    pub draining_max: usize,
    /// Receive buffers of 64 B, a power of two up to 32768.
    pub buffers: u16,
    /// Completion queue entries. More than that at once overflow into kernel memory, which is slower but
    /// loses nothing.
    pub completions: u32,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            sockets_max: 16_384,
            io_timeout: Duration::from_secs(5),
            // A thousand refused clients a second are served.
            draining_max: 1024,
            // 64 KB a shard. One enter delivers some 20 completions, so a thousand are for the storms.
            buffers: 1024,
            // Every buffer filled and a failed send for every submission, twice.
            completions: 4096,
        }
    }
}

/// How a connection ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ended {
    /// The peer closed its side.
    Eof,
    /// The peer's RST.
    Reset,
    /// The local kernel gave up by itself: ETIMEDOUT, EHOSTUNREACH, ENETDOWN, … The peer may not know.
    Silent(Errno),
    /// Output made no progress for the I/O timeout.
    SendTimeout,
}

/// What happened since the last call of [`Reactor::next_event`].
#[derive(Debug)]
pub enum Event<'a, T> {
    /// [`Waker::wake`] was called.
    Woken,
    /// Bytes of a connection, never empty.
    Received {
        /// The connection.
        key: Key,
        /// Its owner's state.
        data: &'a mut T,
        /// The bytes, at most [`BUFFER_BYTES`](crate::BUFFER_BYTES).
        bytes: &'a [u8],
    },
    /// No further event comes for this connection; the owner has yet to [`close`](Reactor::close) it.
    Ended {
        /// The connection.
        key: Key,
        /// Why.
        how: Ended,
    },
}

/// What a completion comes to; holds no borrow.
enum Outcome {
    Nothing,
    Received { key: Key, buffer: u16, len: usize },
    Ended { key: Key, how: Ended },
}

/// One io_uring and the connections on it. Stays on the thread that made it.
pub struct Reactor<T> {
    // Dropped in this order: the ring before the memory that its operations name.
    ring: Ring,
    buffers: Buffers,
    connections: Slab<Link<T>>,
    direct_slots: u32,
    io_timeout_ns: u64,
    draining_max: usize,
    min_wait: bool,
    /// Connections whose receives ended for want of buffers, in that order. They are planned for first: those
    /// that were served are listed too, for their answers, and would take all buffers again.
    starved: Vec<Key>,
    /// Connections to plan for before the next enter.
    listed: Vec<Key>,
    /// Lists that are planned for, kept for their memory.
    planning: Vec<Key>,
    /// Connections to shut down or to release after the next enter: whoever waits for an answer comes first.
    chores: VecDeque<Key>,
    /// Number of the turn whose submissions are being gathered.
    turn: u64,
    submitted_turn: u64,
    drained_turn: u64,
    stalls: Stalls,
    drains: Drains,
    timed_out: Vec<Key>,
    waker: Waker,
    woken: bool,
    wake_armed: bool,
    /// The buffer that the last event shows to the owner.
    lent: Option<u16>,
    pacing: Pacing,
    received: u64,
    now_ns: u64,
    open: usize,
    draining: usize,
    closing: usize,
}

impl<T> Reactor<T> {
    /// A reactor for the calling thread.
    ///
    /// # Errors
    ///
    /// The system offers no usable io_uring; the error says what is missing and the remedy.
    pub fn new(config: Config) -> Result<Self, Unavailable> {
        let ring = Ring::open(SUBMISSIONS.min(config.completions), config.completions)?;
        let buffers = Buffers::new(&ring, config.buffers)?;
        // The kernel refuses a table beyond RLIMIT_NOFILE.
        let nofile =
            rustix::process::getrlimit(rustix::process::Resource::Nofile).current.unwrap_or(u64::MAX);
        let direct_slots = ring.capabilities().direct_slots(config.sockets_max, nofile);
        // Without the table every socket is served through its plain descriptor.
        let has_table = direct_slots > 0 && ring.register_direct_table(direct_slots).is_ok();
        let direct_slots = if has_table { direct_slots } else { 0 };
        Ok(Self {
            min_wait: ring.capabilities().min_wait,
            ring,
            buffers,
            connections: Slab::new(),
            direct_slots,
            io_timeout_ns: config.io_timeout.as_nanos() as u64,
            draining_max: config.draining_max,
            starved: Vec::new(),
            listed: Vec::new(),
            planning: Vec::new(),
            chores: VecDeque::new(),
            turn: 1,
            submitted_turn: 0,
            drained_turn: 0,
            stalls: Stalls::default(),
            drains: Drains::default(),
            timed_out: Vec::new(),
            waker: Waker::new()?,
            woken: false,
            wake_armed: false,
            lent: None,
            pacing: Pacing::new(),
            received: 0,
            now_ns: monotonic_ns(),
            open: 0,
            draining: 0,
            closing: 0,
        })
    }

    /// Wakes this reactor from any thread. While it gathers completions a wake may take some hundred µs.
    pub fn waker(&self) -> Waker {
        self.waker.clone()
    }

    /// Takes a connected TCP socket; its receive is armed by the next [`wait`](Self::wait). The socket is put
    /// into blocking mode: in the other, a receive would fail instead of waiting.
    ///
    /// # Errors
    ///
    /// The descriptor is no socket, or there are 2²⁸ connections. Descriptor and data are dropped.
    pub fn insert(&mut self, fd: OwnedFd, data: T) -> io::Result<Key> {
        rustix::io::ioctl_fionbio(&fd, false)?;
        let key = self.connections.next_key().ok_or_else(|| io::Error::from(Errno::NFILE))?;
        let direct =
            key.index() < self.direct_slots && self.ring.set_direct(key.index(), fd.as_raw_fd()).is_ok();
        self.connections.insert(key, Link::new(fd, direct, data));
        self.open += 1;
        self.list(key);
        Ok(key)
    }

    /// The owner's state of a connection.
    pub fn get(&self, key: Key) -> Option<&T> {
        self.connections.get(key)?.data.as_ref()
    }

    /// The owner's state of a connection.
    pub fn get_mut(&mut self, key: Key) -> Option<&mut T> {
        self.connections.get_mut(key)?.data.as_mut()
    }

    /// Appends to a connection's output, which goes out with the next [`wait`](Self::wait). Nothing for a
    /// stale key or an ended connection.
    pub fn send(&mut self, key: Key, bytes: &[u8]) {
        self.send_repeated(key, bytes, 1);
    }

    /// Appends the same bytes so many times, as [`send`](Self::send) does.
    pub fn send_repeated(&mut self, key: Key, bytes: &[u8], times: usize) {
        if let Some(connection) = self.connections.get_mut(key).filter(|connection| connection.is_open()) {
            (0..times).for_each(|_| connection.push_output(bytes));
            self.list(key);
        }
    }

    /// Ends a connection: output that is not sent yet is dropped, no event comes any more. FIN goes out after
    /// the next [`submit`](Self::submit) or [`wait`](Self::wait) has sent what there is for others, or after
    /// one of the next where many are closed at once; the descriptor is closed when the kernel has finished
    /// its operations on it. `None` for a stale key.
    pub fn close(&mut self, key: Key) -> Option<T> {
        self.connections.get(key).filter(|connection| connection.is_owned())?;
        self.open -= 1;
        self.start_closing(key)
    }

    /// Ends a connection after its output and `last` are sent: then FIN goes out, input is thrown away until
    /// the peer closes too, and the descriptor is closed. Input that nobody reads would turn the close into
    /// an RST, which can destroy what is on its way to the peer. Bounded by [`DRAIN_MAX`],
    /// [`DRAIN_BYTES_MAX`](crate::DRAIN_BYTES_MAX) and [`Config::draining_max`]. No event comes any more.
    /// `None` for a stale key.
    pub fn close_after(&mut self, key: Key, last: &[u8]) -> Option<T> {
        let connection = self.connections.get_mut(key).filter(|connection| connection.is_owned())?;
        let data = connection.start_draining(last);
        self.list(key);
        self.open -= 1;
        self.draining += 1;
        self.drains.push(monotonic_ns() + DRAIN_MAX.as_nanos() as u64, key);
        while self.draining > self.draining_max {
            let oldest = self.drains.pop().expect("each draining connection has an entry");
            self.cut_drain(oldest);
        }
        data
    }

    /// Whether this connection's peer has sent something that no event has shown. To be asked when
    /// [`next_event`](Self::next_event) has returned `None` and before the next [`wait`](Self::wait) or
    /// [`submit`](Self::submit): data moves from sockets to completions only in these, so the connection's
    /// own socket tells all, and what waits for others counts for nothing.
    ///
    /// # Panics
    ///
    /// There are completions to drain, one of which might be this connection's.
    pub fn has_unread(&self, key: Key) -> bool {
        assert!(!self.has_undrained(), "asked before the completions were drained");
        self.connections
            .get(key)
            .filter(|connection| connection.is_open())
            .is_some_and(|connection| rustix::io::ioctl_fionread(&connection.fd).is_ok_and(|bytes| bytes > 0))
    }

    /// Whether the connection's receive is armed; false while back-pressure pauses it and until the next
    /// [`wait`](Self::wait) after it was inserted or its receive ended for want of buffers.
    pub fn is_reading(&self, key: Key) -> bool {
        self.connections.get(key).is_some_and(Link::is_reading)
    }

    /// The socket of a connection that has an owner.
    pub fn socket(&self, key: Key) -> Option<BorrowedFd<'_>> {
        let connection = self.connections.get(key).filter(|connection| connection.is_open())?;
        Some(connection.fd.as_fd())
    }

    /// Connections that have an owner.
    pub fn open(&self) -> usize {
        self.open
    }

    /// Connections that the owner has closed and that still drain or wait for the kernel.
    pub fn closing(&self) -> usize {
        self.draining + self.closing
    }

    /// Submits what there is to send, arm and cancel, and waits for completions: one enter. Returns at
    /// `timeout`, at the reactor's own deadlines, on a signal, on a wake, and at once while there is
    /// something to drain.
    ///
    /// # Errors
    ///
    /// The ring is broken (its kernel lost completions for want of memory); nothing but dropping the reactor
    /// helps.
    pub fn wait(&mut self, timeout: Option<Duration>) -> io::Result<()> {
        self.plan_turn();
        self.woken |= self.waker.collect();
        let at_once = !self.listed.is_empty()
            || !self.chores.is_empty()
            || self.woken
            || !self.timed_out.is_empty()
            || self.has_undrained();
        if at_once {
            if !self.ring.all_submitted() || self.ring.has_task_work() {
                self.ring.enter(0, None, 0)?;
            }
        } else {
            self.sleep(timeout)?;
        }
        self.end_turn_if_submitted();
        self.do_chores();
        self.woken |= self.waker.collect();
        self.now_ns = monotonic_ns();
        self.pacing.turn(self.now_ns, std::mem::take(&mut self.received));
        Ok(())
    }

    /// Submits what there is to send, arm and cancel, without waiting: answers are with the kernel when it
    /// returns. For owners that have other work to do before the next [`wait`](Self::wait), which submits
    /// too.
    ///
    /// # Errors
    ///
    /// As [`wait`](Self::wait).
    pub fn submit(&mut self) -> io::Result<()> {
        self.plan_turn();
        if !self.ring.all_submitted() {
            self.ring.enter(0, None, 0)?;
        }
        self.end_turn_if_submitted();
        self.do_chores();
        Ok(())
    }

    /// Turns everything that happened since the last submission into submissions.
    fn plan_turn(&mut self) {
        self.take_back_buffer();
        self.buffers.publish();
        if self.ring.is_drained() && !self.ring.overflown() {
            self.drained_turn = self.submitted_turn;
            self.fire_timers();
        }
        self.arm_wake();
        self.plan_all();
    }

    fn end_turn_if_submitted(&mut self) {
        if self.ring.all_submitted() {
            self.submitted_turn = self.turn;
            self.turn += 1;
        }
    }

    fn sleep(&mut self, timeout: Option<Duration>) -> io::Result<()> {
        let limit = self.sleep_limit(timeout);
        if limit == Some(Duration::ZERO) || !self.waker.prepare_sleep() {
            return self.ring.enter(0, None, 0);
        }
        let gather_us = if self.min_wait { self.pacing.min_wait_us() } else { 0 };
        let fits = limit.is_none_or(|limit| limit >= Duration::from_micros(gather_us.into()));
        if gather_us > 0 && fits {
            self.ring.enter(GATHER_EVENTS, limit, gather_us)
        } else {
            self.ring.enter(1, limit, 0)
        }
    }

    /// The next thing that the last [`wait`](Self::wait) brought, what overflowed the completion queue
    /// included. `None` comes after a bounded number of events, whatever peers send meanwhile: buffers that
    /// events have shown are given back by the next [`wait`](Self::wait) or [`submit`](Self::submit).
    pub fn next_event(&mut self) -> Option<Event<'_, T>> {
        self.take_back_buffer();
        if std::mem::take(&mut self.woken) {
            return Some(Event::Woken);
        }
        while let Some(key) = self.timed_out.pop() {
            // The owner may have closed it meanwhile.
            if self.connections.get(key).is_some_and(Link::is_owned) {
                return Some(Event::Ended { key, how: Ended::SendTimeout });
            }
        }
        loop {
            let completion = self.next_completion()?;
            match self.complete(completion) {
                Outcome::Nothing => {}
                Outcome::Ended { key, how } => return Some(Event::Ended { key, how }),
                Outcome::Received { key, buffer, len } => {
                    self.lent = Some(buffer);
                    self.received += 1;
                    let connection = self.connections.get_mut(key).expect("just looked up");
                    let data = connection.data.as_mut().expect("an open connection has its data");
                    return Some(Event::Received { key, data, bytes: self.buffers.bytes(buffer, len) });
                }
            }
        }
    }

    /// The next completion. Those that did not fit into the queue are fetched once it is empty. The enter
    /// that does this also runs work that waits, which ends soon: without new buffers and submissions each
    /// receive has one more completion at most.
    fn next_completion(&mut self) -> Option<Completion> {
        loop {
            if let Some(completion) = self.ring.pop() {
                return Some(completion);
            }
            // A broken ring is reported by the turn's next enter.
            if !self.ring.overflown() || self.ring.enter(0, None, 0).is_err() {
                return None;
            }
        }
    }

    /// Whether completions are there to drain. The TASKRUN flag does not count: the kernel may set it just
    /// after the work was done, and then it stands until the next work, so nothing may wait for it to go.
    /// Bytes of a receive whose task work has not run yet are still in the socket.
    fn has_undrained(&self) -> bool {
        !self.ring.is_drained() || self.ring.overflown()
    }

    fn take_back_buffer(&mut self) {
        if let Some(buffer) = self.lent.take() {
            self.buffers.put(buffer);
        }
    }

    /// Puts a connection on the list of the next turn's plans.
    fn list(&mut self, key: Key) {
        if let Some(connection) = self.connections.get_mut(key)
            && !std::mem::replace(&mut connection.listed, true)
        {
            self.listed.push(key);
        }
    }

    fn arm_wake(&mut self) {
        if !self.wake_armed && self.ring.make_room(1) {
            let poll = opcode::PollAdd::new(types::Fd(self.waker.raw_fd()), libc::POLLIN as u32).multi(true);
            // SAFETY: the entry names no memory.
            unsafe { self.ring.push(&poll.build().user_data(WAKE_USER_DATA)) };
            self.wake_armed = true;
        }
    }
}

/// Planning and doing.
impl<T> Reactor<T> {
    fn plan_all(&mut self) {
        let mut planning = std::mem::take(&mut self.planning);
        std::mem::swap(&mut planning, &mut self.starved);
        planning.drain(..).for_each(|key| self.plan(key));
        std::mem::swap(&mut planning, &mut self.listed);
        for key in planning.drain(..) {
            if let Some(connection) = self.connections.get_mut(key) {
                connection.listed = false;
                self.plan(key);
            }
        }
        self.planning = planning;
    }

    /// Twice in a turn does no harm.
    fn plan(&mut self, key: Key) {
        let Some(connection) = self.connections.get_mut(key) else { return };
        // A kernel that takes no submissions now is asked again next turn.
        if !self.ring.make_room(SUBMISSIONS_PER_PLAN) {
            return self.list(key);
        }
        let was_draining = connection.stage == Stage::Draining;
        let plan = connection.plan(self.drained_turn);
        if was_draining && connection.stage == Stage::Closing {
            self.draining -= 1;
            self.closing += 1;
        }
        self.carry_out(key, &plan);
    }

    fn carry_out(&mut self, key: Key, plan: &Plan) {
        if let Some(how) = plan.send {
            self.submit_send(key, how);
        }
        let connection = self.connections.get_mut(key).expect("planned for a live key");
        let cancel = |target: u8, tag: u8| {
            opcode::AsyncCancel::new(key.tagged(target))
                .build()
                .user_data(key.tagged(tag))
                .flags(squeue::Flags::SKIP_SUCCESS)
        };
        if plan.cancel_send {
            // SAFETY: the entry names no memory.
            unsafe { self.ring.push(&cancel(tag::SEND, tag::CANCEL_SEND)) };
        }
        if plan.cancel_receive {
            connection.receive = Receive::Cancelling;
            // SAFETY: the entry names no memory.
            unsafe { self.ring.push(&cancel(tag::RECEIVE, tag::CANCEL_RECEIVE)) };
        }
        if plan.arm_receive {
            connection.receive = Receive::Armed;
            let entry = if connection.direct {
                opcode::RecvMulti::new(types::Fixed(key.index()), buffers::GROUP).build()
            } else {
                opcode::RecvMulti::new(types::Fd(connection.fd.as_raw_fd()), buffers::GROUP).build()
            };
            // SAFETY: the memory it fills is the buffer ring's, which outlives the ring.
            unsafe { self.ring.push(&entry.user_data(key.tagged(tag::RECEIVE))) };
        }
        if plan.shut_write {
            // ENOTCONN: the peer was faster; the receive says so.
            let _ = rustix::net::shutdown(&connection.fd, Shutdown::Write);
        }
        if plan.again {
            self.list(key);
        }
        if plan.release {
            self.chores.push_back(key);
        }
    }

    /// Shuts down connections that are to end, and lets go those of which nothing is in flight any more.
    fn do_chores(&mut self) {
        for _ in 0..CHORES_A_TURN_MAX {
            let Some(key) = self.chores.pop_front() else { return };
            match self.connections.get(key) {
                Some(connection) if connection.is_at_rest() => self.release(key),
                // ENOTCONN: it is down already.
                Some(connection) => drop(rustix::net::shutdown(&connection.fd, Shutdown::Both)),
                // Released by an earlier entry.
                None => {}
            }
        }
    }

    fn submit_send(&mut self, key: Key, how: Send) {
        let connection = self.connections.get_mut(key).expect("planned for a live key");
        let flags = match how {
            // WAITALL makes a short send a failure, so that its completion is not skipped.
            Send::Quiet => libc::MSG_NOSIGNAL | libc::MSG_DONTWAIT | libc::MSG_WAITALL,
            // Without WAITALL a short send completes: progress is seen.
            Send::Tracked => libc::MSG_NOSIGNAL,
        };
        let piece = connection.output.launch();
        let (at, len) = (piece.as_ptr(), piece.len() as u32);
        let entry = if connection.direct {
            opcode::Send::new(types::Fixed(key.index()), at, len).flags(flags).build()
        } else {
            opcode::Send::new(types::Fd(connection.fd.as_raw_fd()), at, len).flags(flags).build()
        };
        let mut entry = entry.user_data(key.tagged(tag::SEND));
        match how {
            Send::Quiet => {
                entry = entry.flags(squeue::Flags::SKIP_SUCCESS);
                connection.flight = Flight::Quiet { turn: self.turn };
            }
            Send::Tracked => {
                if !connection.is_waiting_to_send() {
                    connection.progress_ns = self.now_ns;
                }
                connection.flight = Flight::Tracked;
                if !std::mem::replace(&mut connection.has_stall_timer, true) {
                    self.stalls.push(connection.progress_ns + self.io_timeout_ns, key);
                }
            }
        }
        // SAFETY: the piece stays in place until `landed`, which comes after the operation's end: records do
        // not move, and are released only when nothing is in flight.
        unsafe { self.ring.push(&entry) };
    }

    /// The last act: nothing of this connection is in flight.
    fn release(&mut self, key: Key) {
        let connection = self.connections.remove(key).expect("released once");
        if connection.direct {
            // Cannot fail: the slot is within the table.
            let _ = self.ring.set_direct(key.index(), -1);
        }
        self.closing -= 1;
    }

    /// Ends a connection; its owner's data comes out. The caller keeps the books of what it was before.
    fn start_closing(&mut self, key: Key) -> Option<T> {
        let connection = self.connections.get_mut(key).expect("the caller looked it up");
        let data = connection.start_closing();
        self.closing += 1;
        self.chores.push_back(key);
        self.list(key);
        data
    }
}

impl<T> Drop for Reactor<T> {
    fn drop(&mut self) {
        for connection in self.connections.iter() {
            // FIN goes out now; closing a descriptor that the ring still knows would not send it.
            let _ = rustix::net::shutdown(&connection.fd, Shutdown::Both);
        }
        if !self.ring.cancel_all() {
            // The kernel may still read outputs and fill buffers: what it names must outlive it.
            std::mem::forget(std::mem::take(&mut self.connections));
            self.buffers.leak();
        }
    }
}

fn monotonic_ns() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}
