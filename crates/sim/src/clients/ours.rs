//! A claim of ours: the real [`Claim`], and what a planted fault believes beyond it.

use client::{Claim, Closed, Event, GIVE_UP_TENTHS, Loss};
use protocol::{Acquire, Lease, Token, WAITING};

use super::news::News;
use crate::sabotage::Sabotage;

#[derive(Debug)]
pub(crate) struct Ours {
    claim: Claim,
    token: Option<Token>,
    waits: bool,
    loss: Option<Loss>,
    sabotage: Sabotage,
    /// When something was last read.
    read_ns: u64,
    /// When the frame that is not answered yet was sent.
    in_flight_ns: Option<u64>,
    /// As of when the push, taken for an answer, confirms the claim.
    confirmed_by_push_ns: u64,
}

impl Ours {
    pub(crate) fn new(now_ns: u64, acquire: Acquire, sabotage: Sabotage) -> Self {
        Self {
            claim: Claim::new(now_ns, acquire),
            token: None,
            waits: false,
            loss: None,
            sabotage,
            read_ns: now_ns,
            in_flight_ns: None,
            confirmed_by_push_ns: now_ns,
        }
    }

    pub(crate) fn input(&mut self, now_ns: u64, bytes: &[u8]) {
        self.read_ns = now_ns;
        let in_flight_ns = self.in_flight_ns.take();
        if self.waits && bytes.first() != WAITING.first() {
            self.waits = false;
            self.confirmed_by_push_ns = in_flight_ns.unwrap_or(now_ns);
        }
        self.claim.handle_input(now_ns, bytes);
    }

    pub(crate) fn closed(&mut self, now_ns: u64, how: Closed) {
        self.claim.connection_closed(now_ns, how);
    }

    pub(crate) fn timeout(&mut self, now_ns: u64) {
        self.claim.handle_timeout(now_ns);
    }

    pub(crate) fn transmit(&mut self, now_ns: u64) -> Option<Vec<u8>> {
        let frame = self.claim.poll_transmit(now_ns)?;
        self.in_flight_ns = Some(now_ns);
        Some(frame.to_vec())
    }

    pub(crate) fn news(&mut self) -> Option<News> {
        match self.claim.poll_event()? {
            Event::Waiting => {
                self.waits = true;
                Some(News::Waits)
            }
            Event::Acquired(token) => {
                self.token = Some(token);
                Some(News::Holds)
            }
            Event::Lost(loss) => {
                self.loss = Some(loss);
                Some(News::Lost)
            }
        }
    }

    pub(crate) fn loss(&self) -> Option<&Loss> {
        self.loss.as_ref()
    }

    pub(crate) fn token(&self) -> Option<Token> {
        self.token
    }

    /// Whether it acts as the holder.
    pub(crate) fn believes(&self, now_ns: u64) -> bool {
        match self.believes_until_ns() {
            None => self.claim.is_held(now_ns),
            Some(until_ns) => now_ns < until_ns,
        }
    }

    pub(crate) fn wake_ns(&self) -> Option<u64> {
        self.claim.poll_timeout().or(self.believes_until_ns())
    }

    /// What a planted fault believes; `None` is the claim's own belief.
    fn believes_until_ns(&self) -> Option<u64> {
        let confirmed_ns = self.claim.confirmed_ns();
        let (from_ns, tenths) = match self.sabotage {
            Sabotage::CountsFromReading => (self.read_ns, GIVE_UP_TENTHS),
            Sabotage::TakesPushForAnswer => (confirmed_ns.max(self.confirmed_by_push_ns), GIVE_UP_TENTHS),
            Sabotage::GivesUpAtLease => (confirmed_ns, 10),
            Sabotage::GivesUpLate => (confirmed_ns, 13),
            Sabotage::BelievesAfterError => (confirmed_ns, GIVE_UP_TENTHS),
            _ => return None,
        };
        let was_told = match &self.loss {
            Some(Loss::Server { .. }) => self.sabotage != Sabotage::BelievesAfterError,
            Some(Loss::ConnectionClosed(_) | Loss::ProtocolViolation(_)) => true,
            Some(Loss::HeartbeatTimeout) | None => false,
        };
        let until_ns = from_ns + tenths_of(self.claim.lease(), tenths);
        Some(if self.token.is_none() || was_told { 0 } else { until_ns })
    }
}

pub(crate) fn tenths_of(lease: Lease, tenths: u64) -> u64 {
    lease.as_ns() * tenths / 10
}
