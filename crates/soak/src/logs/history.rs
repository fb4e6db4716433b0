//! What the logs of a soak tell together: claims, server lives, what was done to clients, and the writes that
//! reached each register.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use client::GIVE_UP_TENTHS;
use protocol::Token;

use super::audit::Audit;
use super::entry::{Act, ActLine, Answer, Cause, ClaimId, ClientId, ClientLine, Seen, WriteLine};

/// A line does not fit those before it: why.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(super) struct Misfit(String);

/// All that is known of a soak.
#[derive(Debug, Default)]
pub struct History {
    /// By client and number.
    pub(crate) claims: BTreeMap<ClaimId, Claim>,
    /// In their order; they do not overlap.
    pub(crate) lives: Vec<Life>,
    pub(crate) fates: BTreeMap<ClientId, Fate>,
    /// By lock, in the order in which the writes came.
    pub(crate) registers: BTreeMap<u32, Vec<WriteLine>>,
    /// What an administrator did, in its order.
    pub(crate) deeds: Vec<Deed>,
    pub(crate) audit: Audit,
}

/// One claim, as its client saw it.
#[derive(Debug, Clone)]
pub(crate) struct Claim {
    pub(crate) id: ClaimId,
    pub(crate) lock: u32,
    pub(crate) lease_ns: u64,
    pub(crate) opened_ns: u64,
    /// Its connection's own address.
    pub(crate) from: Option<SocketAddr>,
    /// Just before the ACQUIRE went out.
    pub(crate) sent_ns: Option<u64>,
    /// When its WAITING was read.
    pub(crate) queued_ns: Option<u64>,
    /// When the last frame was sent that was answered with WAITING: it was in the queue then.
    pub(crate) queued_until_ns: Option<u64>,
    pub(crate) grant: Option<Grant>,
    pub(crate) confirmed_ns: Option<u64>,
    pub(crate) end: Option<(u64, End)>,
}

/// When ACQUIRED was read, and its token.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Grant {
    pub(crate) read_ns: u64,
    pub(crate) token: Token,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum End {
    Unreachable,
    Lost(Cause),
    Released,
    Crashed,
}

/// One server process: it can have answered nothing before `start_ns` and after `ended_ns`.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Life {
    pub(crate) start_ns: u64,
    pub(crate) listening_ns: u64,
    /// When its end began, and whether it was killed.
    pub(crate) signal: Option<(u64, bool)>,
    pub(crate) ended_ns: u64,
    /// Where its part of the audit log begins.
    pub(crate) audit_bytes: usize,
}

/// What an administrator did to a lock.
#[derive(Debug, Clone)]
pub(crate) struct Deed {
    pub(crate) begin_ns: u64,
    pub(crate) lock: u32,
    /// When it was answered, and how; none if the soak ended before.
    pub(crate) answer: Option<(u64, Answer)>,
}

/// What was done to a client.
#[derive(Debug, Default, Clone)]
pub(crate) struct Fate {
    pub(crate) killed_ns: Option<u64>,
    /// From the stop to the continuation, or to the end of time.
    pub(crate) stops: Vec<(u64, u64)>,
}

impl Claim {
    fn new(id: ClaimId, opened_ns: u64, lock: u32, lease_ms: u32) -> Self {
        Self {
            id,
            lock,
            lease_ns: u64::from(lease_ms) * 1_000_000,
            opened_ns,
            from: None,
            sent_ns: None,
            queued_ns: None,
            queued_until_ns: None,
            grant: None,
            confirmed_ns: None,
            end: None,
        }
    }

    /// When the server's first answer was read, if one was.
    pub(crate) fn answered_ns(&self) -> Option<u64> {
        self.queued_ns.or(self.grant.map(|grant| grant.read_ns))
    }

    /// Until when the client believed that it holds the lock, as long as it lived: its own end of the claim,
    /// at the latest 0.8 × lease after the last confirmation.
    pub(crate) fn belief_end_ns(&self) -> u64 {
        let confirmed_ns = self.confirmed_ns.expect("a grant has a confirmation");
        let give_up_ns = confirmed_ns + self.lease_ns * GIVE_UP_TENTHS / 10;
        self.end.map_or(give_up_ns, |(end_ns, _)| end_ns.min(give_up_ns))
    }

    /// Takes what was seen of it next. Its opening was seen already.
    fn apply(&mut self, at_ns: u64, seen: Seen) {
        match seen {
            Seen::Opening { .. } => {}
            Seen::Acquire { from } => {
                self.from = Some(from);
                self.sent_ns = Some(at_ns);
            }
            Seen::Unreachable => self.end = Some((at_ns, End::Unreachable)),
            Seen::Waiting { confirmed_ns } => {
                self.queued_ns = Some(at_ns);
                self.confirm(confirmed_ns);
            }
            Seen::Acquired { token, confirmed_ns } => {
                self.grant = Some(Grant { read_ns: at_ns, token });
                self.confirmed_ns = Some(confirmed_ns);
            }
            Seen::Confirmed { confirmed_ns } => self.confirm(confirmed_ns),
            // Its register has it, in the order of coming.
            Seen::Write { .. } => {}
            Seen::Lost { cause, confirmed_ns } => {
                if self.answered_ns().is_some() {
                    self.confirmed_ns = Some(confirmed_ns);
                }
                self.end = Some((at_ns, End::Lost(cause)));
            }
            Seen::Released { confirmed_ns } => {
                self.confirmed_ns = Some(confirmed_ns);
                self.end = Some((at_ns, End::Released));
            }
            Seen::Crashed => self.end = Some((at_ns, End::Crashed)),
        }
    }

    fn confirm(&mut self, confirmed_ns: u64) {
        self.confirmed_ns = Some(confirmed_ns);
        if self.grant.is_none() {
            self.queued_until_ns = Some(confirmed_ns);
        }
    }
}

impl Life {
    /// Whether the server lived at that time.
    pub(crate) fn has(&self, at_ns: u64) -> bool {
        (self.start_ns..=self.ended_ns).contains(&at_ns)
    }

    /// Whether it was asked to end, and not killed.
    pub(crate) fn ended_in_order(&self) -> bool {
        self.signal.is_some_and(|(_, was_killed)| !was_killed)
    }
}

impl Fate {
    pub(crate) fn was_stopped_within(&self, from_ns: u64, to_ns: u64) -> bool {
        self.stops.iter().any(|&(stop_ns, continue_ns)| stop_ns < to_ns && from_ns < continue_ns)
    }
}

impl History {
    /// Takes a client's next line.
    pub(super) fn see(&mut self, client: ClientId, line: ClientLine) -> Result<(), Misfit> {
        let ClientLine { at_ns, number, seen } = line;
        let id = ClaimId { client, number };
        let misfit = |what| Err(Misfit(format!("claim {id} at {at_ns}: {what}")));
        match (seen, self.claims.get_mut(&id)) {
            (Seen::Opening { lock, lease_ms }, None) => {
                self.claims.insert(id, Claim::new(id, at_ns, lock, lease_ms));
            }
            (Seen::Opening { .. }, Some(_)) => return misfit("it is opened twice"),
            (_, None) => return misfit("it was never opened"),
            (_, Some(claim)) if claim.end.is_some() => return misfit("it had ended"),
            (seen, Some(claim)) => claim.apply(at_ns, seen),
        }
        Ok(())
    }

    /// Takes the soak's next line.
    pub(super) fn act(&mut self, ActLine { at_ns, act }: ActLine) -> Result<(), Misfit> {
        match act {
            Act::Spawn(client) => {
                self.fates.insert(client, Fate::default());
            }
            Act::Kill(client) => self.fates.entry(client).or_default().killed_ns = Some(at_ns),
            Act::Stop(client) => self.fates.entry(client).or_default().stops.push((at_ns, u64::MAX)),
            Act::Continue(client) => {
                // One continuation ends all stops before it.
                for (_, continue_ns) in &mut self.fates.entry(client).or_default().stops {
                    *continue_ns = at_ns.min(*continue_ns);
                }
            }
            Act::ServerStart { audit_bytes } => self.lives.push(Life {
                start_ns: at_ns,
                listening_ns: at_ns,
                signal: None,
                ended_ns: u64::MAX,
                audit_bytes,
            }),
            Act::ServerListening => self.last_life()?.listening_ns = at_ns,
            Act::ServerTerm => self.last_life()?.signal = Some((at_ns, false)),
            Act::ServerKill => self.last_life()?.signal = Some((at_ns, true)),
            Act::ServerEnded => self.last_life()?.ended_ns = at_ns,
            Act::ForceRelease { lock } | Act::Kick { lock } => {
                self.deeds.push(Deed { begin_ns: at_ns, lock, answer: None });
            }
            Act::Answered(answer) => {
                let unanswered = self.deeds.last_mut().filter(|deed| deed.answer.is_none());
                let deed =
                    unanswered.ok_or_else(|| Misfit(format!("at {at_ns} nothing was to be answered")))?;
                deed.answer = Some((at_ns, answer));
            }
        }
        Ok(())
    }

    fn last_life(&mut self) -> Result<&mut Life, Misfit> {
        self.lives.last_mut().ok_or_else(|| Misfit("a server that never started".into()))
    }

    /// The server process that a claim was at. A claim whose ACQUIRE was answered was connected before it was
    /// sent and served after that: at the one server that lived in between.
    pub(crate) fn life_of(&self, claim: &Claim) -> Option<usize> {
        let sent_ns = claim.sent_ns?;
        self.lives.iter().position(|life| life.has(sent_ns))
    }

    /// When the claim's client was killed, by the soak.
    pub(crate) fn killed_ns(&self, claim: &Claim) -> Option<u64> {
        self.fates.get(&claim.id.client)?.killed_ns
    }

    /// From when to when a living client believed that it holds the lock, if it did for any time.
    pub(crate) fn belief_ns(&self, claim: &Claim) -> Option<(u64, u64)> {
        let start_ns = claim.grant?.read_ns;
        let end_ns = self.killed_ns(claim).unwrap_or(u64::MAX).min(claim.belief_end_ns());
        (start_ns < end_ns).then_some((start_ns, end_ns))
    }
}
