//! The claim: what a client says on its connection, and for how long it may believe that it holds the lock.
//!
//! Sans-IO. The caller writes what [`Claim::poll_transmit`] gives, feeds what it reads to
//! [`Claim::handle_input`], calls [`Claim::handle_timeout`] at [`Claim::poll_timeout`] and takes events from
//! [`Claim::poll_event`] after each of these. Times are nanoseconds of CLOCK_BOOTTIME, which counts a suspend
//! and never goes back. Whatever is called late finds the claim lost first.
//!
//! The claim is confirmed as of the time at which the answered frame was *sent*, so that a reply delayed in
//! the network never stretches it. The server counts the lease from a later moment: it cannot have passed the
//! lock on while the claim still holds.

use std::ops::Deref;

use protocol::{Acquire, AcquireFrame, HEARTBEAT, Lease, ServerFrame, Token};

use crate::error::{Closed, Loss, Violation};
use crate::inbox::Inbox;
use crate::rhythm::Rhythm;

/// A claim on one lock: one ACQUIRE and its heartbeats.
#[derive(Debug)]
pub struct Claim {
    lease: Lease,
    state: State,
    /// The request, until it is sent.
    acquire: Option<Acquire>,
    /// When the frame that is not answered yet was sent: the ACQUIRE or a heartbeat, never two.
    in_flight_ns: Option<u64>,
    /// When the last answered frame was sent; until the first answer, when the claim began.
    confirmed_ns: u64,
    rhythm: Rhythm,
    inbox: Inbox,
    events: Events,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// The ACQUIRE is not answered yet.
    Asking,
    Waiting,
    Held(Token),
    Lost,
}

/// What the caller has to know. Each comes at most once, in this order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// The lock is taken; the claim is queued.
    Waiting,
    /// The lock is held. Ask [`Claim::is_held`] with the current time before acting on it.
    Acquired(Token),
    /// The claim is over. An [`Event::Acquired`] that nobody took before is withdrawn.
    Lost(Loss),
}

/// A frame to send, whole and in order; dereferences to its bytes.
#[derive(Debug, Clone)]
#[expect(clippy::large_enum_variant, reason = "a claim allocates nothing, and one of these exists at a time")]
pub enum Transmit {
    /// The first frame.
    Acquire(AcquireFrame),
    /// Every later frame.
    Heartbeat,
}

impl Deref for Transmit {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            Self::Acquire(frame) => frame,
            Self::Heartbeat => &HEARTBEAT,
        }
    }
}

impl Claim {
    /// A claim that begins now: its time without confirmation counts from here until the ACQUIRE is answered.
    pub fn new(now_ns: u64, acquire: Acquire) -> Self {
        Self {
            lease: acquire.lease,
            state: State::Asking,
            rhythm: Rhythm::new(acquire.lease),
            acquire: Some(acquire),
            in_flight_ns: None,
            confirmed_ns: now_ns,
            inbox: Inbox::new(),
            events: Events::default(),
        }
    }

    /// True while the lock may be used: it was granted, and now < confirmed + 0.8 × lease.
    pub fn is_held(&self, now_ns: u64) -> bool {
        matches!(self.state, State::Held(_)) && now_ns < self.give_up_ns()
    }

    /// As of when the claim is confirmed: the send time of the last frame that was answered. It stands still
    /// once the claim is lost.
    pub fn confirmed_ns(&self) -> u64 {
        self.confirmed_ns
    }

    /// The lease that was asked for.
    pub fn lease(&self) -> Lease {
        self.lease
    }

    /// The next frame to send, if one is due. It counts as sent at `now_ns`: earlier than it really leaves,
    /// which is the safe side.
    pub fn poll_transmit(&mut self, now_ns: u64) -> Option<Transmit> {
        self.handle_timeout(now_ns);
        if self.state == State::Lost || self.in_flight_ns.is_some() {
            return None;
        }
        let frame = match self.acquire.take() {
            Some(acquire) => Transmit::Acquire(acquire.encode()),
            None if now_ns >= self.next_heartbeat_ns() => Transmit::Heartbeat,
            None => return None,
        };
        self.in_flight_ns = Some(now_ns);
        Some(frame)
    }

    /// Takes bytes that were read, split in any way.
    pub fn handle_input(&mut self, now_ns: u64, received: &[u8]) {
        self.handle_timeout(now_ns);
        let mut received = received;
        while self.state != State::Lost {
            let outcome = match self.inbox.next_frame(&mut received) {
                Ok(Some(frame)) => self.apply(now_ns, frame),
                Ok(None) => return,
                Err(unknown) => Err(Loss::ProtocolViolation(unknown.into())),
            };
            if let Err(loss) = outcome {
                self.lose(loss);
            }
        }
    }

    /// Looks at the time. Harmless when early.
    pub fn handle_timeout(&mut self, now_ns: u64) {
        if self.state != State::Lost && now_ns >= self.give_up_ns() {
            self.lose(Loss::HeartbeatTimeout);
        }
    }

    /// The connection is gone.
    pub fn connection_closed(&mut self, now_ns: u64, closed: Closed) {
        self.handle_timeout(now_ns);
        if self.state != State::Lost {
            self.lose(Loss::ConnectionClosed(closed));
        }
    }

    /// When to call [`Claim::handle_timeout`] and [`Claim::poll_transmit`] again; `None` once the claim is
    /// lost.
    pub fn poll_timeout(&self) -> Option<u64> {
        match self.state {
            State::Lost => None,
            _ if self.in_flight_ns.is_some() || self.acquire.is_some() => Some(self.give_up_ns()),
            _ => Some(self.next_heartbeat_ns().min(self.give_up_ns())),
        }
    }

    /// The next thing that happened.
    pub fn poll_event(&mut self) -> Option<Event> {
        self.events.take()
    }

    fn give_up_ns(&self) -> u64 {
        self.confirmed_ns + self.rhythm.give_up_after_ns()
    }

    /// Counted from the last send, which is the confirmed one while nothing is in flight.
    fn next_heartbeat_ns(&self) -> u64 {
        debug_assert!(self.in_flight_ns.is_none());
        self.confirmed_ns + self.rhythm.interval_ns()
    }

    fn apply(&mut self, now_ns: u64, frame: ServerFrame) -> Result<(), Loss> {
        match (self.state, frame) {
            (_, ServerFrame::Error { code, reason }) => return Err(Loss::Server { code, reason }),
            (State::Held(_), ServerFrame::Waiting) => return Err(violation(Violation::WaitingAfterAcquired)),
            (State::Held(granted), ServerFrame::Acquired(received)) if received != granted => {
                return Err(violation(Violation::TokenChanged { granted, received }));
            }
            // The push: it answers nothing, so a heartbeat in flight stays in flight.
            (State::Waiting, ServerFrame::Acquired(token)) => self.grant(token),
            (State::Asking, ServerFrame::Acquired(token)) => {
                self.confirm(now_ns)?;
                self.grant(token);
            }
            (State::Asking, ServerFrame::Waiting) => {
                self.confirm(now_ns)?;
                self.state = State::Waiting;
                self.events.waiting = true;
            }
            (State::Waiting, ServerFrame::Waiting) | (State::Held(_), ServerFrame::Acquired(_)) => {
                self.confirm(now_ns)?;
            }
            (State::Lost, _) => unreachable!("a lost claim reads nothing"),
        }
        Ok(())
    }

    fn confirm(&mut self, now_ns: u64) -> Result<(), Loss> {
        let sent_ns = self.in_flight_ns.take().ok_or(violation(Violation::Unasked))?;
        self.rhythm.answered_after(now_ns.saturating_sub(sent_ns));
        self.confirmed_ns = sent_ns;
        Ok(())
    }

    fn grant(&mut self, token: Token) {
        self.state = State::Held(token);
        self.events.acquired = Some(token);
    }

    fn lose(&mut self, loss: Loss) {
        assert!(self.state != State::Lost, "a claim is lost once");
        self.state = State::Lost;
        self.events.acquired = None;
        self.events.lost = Some(loss);
    }
}

fn violation(violation: Violation) -> Loss {
    Loss::ProtocolViolation(violation)
}

/// Events that nobody took yet.
#[derive(Debug, Default)]
struct Events {
    waiting: bool,
    acquired: Option<Token>,
    lost: Option<Loss>,
}

impl Events {
    fn take(&mut self) -> Option<Event> {
        if std::mem::take(&mut self.waiting) {
            return Some(Event::Waiting);
        }
        if let Some(token) = self.acquired.take() {
            return Some(Event::Acquired(token));
        }
        self.lost.take().map(Event::Lost)
    }
}
