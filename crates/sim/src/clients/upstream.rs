//! Upstream's Go client, as far as its rules go: it counts from *reading* an answer, takes any frame for one,
//! keeps at least 100 ms between heartbeats, and gives up 0.8 × lease after the last frame.

use client::{Closed, GIVE_UP_TENTHS, Loss, Violation};
use protocol::{Acquire, HEARTBEAT, Lease, ServerFrame, Token, decode_server_frame};

use super::news::News;
use super::ours::tenths_of;

/// Upstream's shortest interval.
const INTERVAL_NS_MIN: u64 = 100_000_000;

#[derive(Debug)]
pub(crate) struct Upstream {
    lease: Lease,
    acquire: Option<Acquire>,
    received: Vec<u8>,
    sent_ns: u64,
    in_flight: bool,
    /// When the last frame was read; at first, when the claim began.
    read_ns: u64,
    rtt_ns: Option<u64>,
    token: Option<Token>,
    loss: Option<Loss>,
    news: Vec<News>,
}

impl Upstream {
    pub(crate) fn new(now_ns: u64, acquire: Acquire) -> Self {
        Self {
            lease: acquire.lease,
            acquire: Some(acquire),
            received: Vec::new(),
            sent_ns: now_ns,
            in_flight: false,
            read_ns: now_ns,
            rtt_ns: None,
            token: None,
            loss: None,
            news: Vec::new(),
        }
    }

    pub(crate) fn input(&mut self, now_ns: u64, bytes: &[u8]) {
        self.timeout(now_ns);
        self.received.extend(bytes);
        while self.loss.is_none() {
            match decode_server_frame(&self.received) {
                Ok(None) => return,
                Ok(Some((frame, len))) => {
                    self.received.drain(..len);
                    self.frame(now_ns, frame);
                }
                Err(unknown) => self.lose(Loss::ProtocolViolation(unknown.into())),
            }
        }
    }

    fn frame(&mut self, now_ns: u64, frame: ServerFrame) {
        self.read_ns = now_ns;
        if std::mem::take(&mut self.in_flight) {
            let rtt_ns = now_ns - self.sent_ns;
            self.rtt_ns = Some(self.rtt_ns.map_or(rtt_ns, |average_ns| (4 * average_ns + rtt_ns) / 5));
        }
        match frame {
            ServerFrame::Waiting if self.token.is_some() => {
                self.lose(Loss::ProtocolViolation(Violation::WaitingAfterAcquired));
            }
            ServerFrame::Waiting => self.news.push(News::Waits),
            ServerFrame::Acquired(token) => {
                if self.token.replace(token).is_none() {
                    self.news.push(News::Holds);
                }
            }
            ServerFrame::Error { code, reason } => self.lose(Loss::Server { code, reason }),
        }
    }

    pub(crate) fn closed(&mut self, how: Closed) {
        if self.loss.is_none() {
            self.lose(Loss::ConnectionClosed(how));
        }
    }

    pub(crate) fn timeout(&mut self, now_ns: u64) {
        if self.loss.is_none() && now_ns >= self.gives_up_ns() {
            self.lose(Loss::HeartbeatTimeout);
        }
    }

    pub(crate) fn transmit(&mut self, now_ns: u64) -> Option<Vec<u8>> {
        if self.loss.is_some() || self.in_flight {
            return None;
        }
        let frame = match self.acquire.take() {
            Some(acquire) => acquire.encode().to_vec(),
            None if now_ns >= self.next_heartbeat_ns() => HEARTBEAT.to_vec(),
            None => return None,
        };
        self.in_flight = true;
        self.sent_ns = now_ns;
        Some(frame)
    }

    pub(crate) fn news(&mut self) -> Option<News> {
        (!self.news.is_empty()).then(|| self.news.remove(0))
    }

    pub(crate) fn loss(&self) -> Option<&Loss> {
        self.loss.as_ref()
    }

    pub(crate) fn token(&self) -> Option<Token> {
        self.token
    }

    pub(crate) fn believes(&self, now_ns: u64) -> bool {
        self.token.is_some() && self.loss.is_none() && now_ns < self.gives_up_ns()
    }

    pub(crate) fn wake_ns(&self) -> Option<u64> {
        match self.loss {
            Some(_) => None,
            None if self.in_flight => Some(self.gives_up_ns()),
            None => Some(self.gives_up_ns().min(self.next_heartbeat_ns())),
        }
    }

    fn lose(&mut self, loss: Loss) {
        self.loss = Some(loss);
        self.news.push(News::Lost);
    }

    fn gives_up_ns(&self) -> u64 {
        self.read_ns + tenths_of(self.lease, GIVE_UP_TENTHS)
    }

    fn next_heartbeat_ns(&self) -> u64 {
        let base_ns = self.lease.as_ns() / 4;
        let safe_rtt_ns = 2 * self.rtt_ns.unwrap_or(0);
        let interval_ns = match base_ns.checked_sub(safe_rtt_ns) {
            None | Some(0) => 0,
            Some(interval_ns) => interval_ns.max(INTERVAL_NS_MIN.min(base_ns)),
        };
        self.sent_ns + interval_ns
    }
}
