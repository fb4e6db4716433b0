//! The promises, checked after every step.
//!
//! Of the server's decisions: [`locks::checker`], fed with what a server does on the wire. Of what clients
//! believe, of the frames of a connection, of the gate, of the guarded resource and of waiting: here. The
//! first fault is kept.

use std::collections::BTreeMap;

use locks::Gate;
use locks::checker::{Checker, Event};
use protocol::Token;

use crate::register::{Register, Write};
use crate::segment::ConnId;

/// A broken promise.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{rule}: {what}")]
pub struct Violation {
    /// Which promise.
    pub rule: Rule,
    /// What was seen.
    pub what: String,
}

/// A promise.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Rule {
    /// At no time do two clients believe to hold a lock within one life of a server.
    OneBeliever,
    /// What a server decides: exclusion, order, tokens, leases.
    Decision,
    /// Tokens of a later life are larger: across restarts and failovers too.
    Tokens,
    /// Nobody is expired who was heard in time.
    HeardBeforeExpired,
    /// Nobody whose lease is over is put off for what others have sent.
    NotPutOff,
    /// Nothing is granted or confirmed behind a closed gate.
    Gate,
    /// One answer a heartbeat and one push, and never a WAITING after an ACQUIRED.
    Frames,
    /// The guarded resource: one claim a token, and the newest holder is never refused.
    Register,
    /// The assertions of the lock table, of the claim, and of the simulation itself.
    Assertions,
    /// When faults have ended, every live waiter is granted within a bounded time.
    Liveness,
}

impl std::fmt::Display for Rule {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        std::fmt::Debug::fmt(self, f)
    }
}

/// A lock within one server's life.
pub(crate) type LockOfLife = (usize, usize);

/// A frame that confirms something.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Frame {
    Waiting,
    Acquired(Token),
}

/// What is known of the frames of one connection.
#[derive(Debug, Default)]
struct Dialogue {
    last: Option<Frame>,
    /// Frames of the client that are not answered yet.
    owed: u64,
}

#[derive(Debug)]
pub(crate) struct Checks {
    /// One for each life: across lives only tokens are ordered.
    checkers: BTreeMap<usize, Checker<usize, ConnId>>,
    dialogues: BTreeMap<ConnId, Dialogue>,
    registers: Vec<Register>,
    /// The smallest and the largest token of each life.
    tokens: BTreeMap<usize, (Token, Token)>,
    violation: Option<Violation>,
}

impl Checks {
    pub(crate) fn new(locks: usize) -> Self {
        Self {
            checkers: BTreeMap::new(),
            dialogues: BTreeMap::new(),
            registers: vec![Register::default(); locks],
            tokens: BTreeMap::new(),
            violation: None,
        }
    }

    pub(crate) fn violation(&self) -> Option<&Violation> {
        self.violation.as_ref()
    }

    pub(crate) fn fail(&mut self, rule: Rule, what: String) {
        self.violation.get_or_insert(Violation { rule, what });
    }

    /// A server decided something, at this time of its monotonic clock. What it says after its address has
    /// moved, nobody hears.
    pub(crate) fn observe(&mut self, now_ns: u64, lock: LockOfLife, event: Event<ConnId>, is_heard: bool) {
        let (life, name) = lock;
        if let Err(violation) = self.checkers.entry(life).or_default().observe(now_ns, &name, event) {
            self.fail(Rule::Decision, violation.to_string());
        }
        if let Event::Granted { claim, token } = event
            && is_heard
        {
            self.check_order_of_lives(life, token);
            if self.tokens.keys().all(|&other| other <= life) {
                self.registers[name].granted(token, claim);
            }
        }
    }

    /// Who holds a lock, by what was observed.
    pub(crate) fn holder(&self, (life, name): LockOfLife) -> Option<ConnId> {
        self.checkers.get(&life)?.holder(&name)
    }

    /// The largest token of all servers so far, and the life in which it was granted.
    pub(crate) fn last_token(&self) -> (Token, usize) {
        self.tokens.iter().map(|(&life, &(_, last))| (last, life)).max().unwrap_or((Token(0), 0))
    }

    /// Tokens are ordered as lives are, and not as grants: a shard that looked at its gate in time, and was
    /// then held up past its deadline, grants with a token of its look, which the resource refuses as soon as
    /// the next life has granted.
    fn check_order_of_lives(&mut self, life: usize, token: Token) {
        let before = self.tokens.range(..life).map(|(_, &(_, last))| last).max();
        let after = self.tokens.range(life + 1..).map(|(_, &(first, _))| first).min();
        if before.is_some_and(|last| token <= last) || after.is_some_and(|first| token >= first) {
            let what = format!("{token} of life {life}, between {before:?} before and {after:?} after");
            self.fail(Rule::Tokens, what);
        }
        let (first, last) = self.tokens.entry(life).or_insert((token, token));
        (*first, *last) = (token.min(*first), token.max(*last));
    }

    /// A server took frames that it has to answer: the ACQUIRE, or heartbeats.
    pub(crate) fn taken(&mut self, conn: ConnId, frames: u64) {
        self.dialogues.entry(conn).or_default().owed += frames;
    }

    /// A server answers, confirms or grants, by a look at its gate that showed this.
    pub(crate) fn sent(&mut self, conn: ConnId, frame: Frame, gate: Gate) {
        if !gate.is_open() {
            self.fail(Rule::Gate, format!("connection {conn} gets {frame:?} behind a closed gate"));
        }
        let dialogue = self.dialogues.entry(conn).or_default();
        let fault = match (dialogue.last.replace(frame), frame) {
            // The push answers nothing.
            (Some(Frame::Waiting), Frame::Acquired(_)) => None,
            (Some(Frame::Acquired(_)), Frame::Waiting) => Some("WAITING after ACQUIRED"),
            (Some(Frame::Acquired(old)), Frame::Acquired(new)) if old != new => Some("another token"),
            _ if dialogue.owed == 0 => Some("a frame that answers nothing"),
            _ => {
                dialogue.owed -= 1;
                None
            }
        };
        if let Some(fault) = fault {
            self.fail(Rule::Frames, format!("connection {conn} gets {fault}"));
        }
    }

    /// A server has nothing of this connection left to do: everything is answered.
    pub(crate) fn all_answered(&mut self, conn: ConnId) {
        let owed = self.dialogues.get(&conn).map_or(0, |dialogue| dialogue.owed);
        if owed > 0 {
            self.fail(Rule::Frames, format!("connection {conn} gets no answer to {owed} of its frames"));
        }
    }

    /// A server expires a claim: `heard_ns` is when its last answered heartbeat came in, on the server's
    /// monotonic clock.
    pub(crate) fn expired(
        &mut self,
        conn: ConnId,
        now_ns: u64,
        heard_ns: u64,
        lease_ns: u64,
        has_unread: bool,
    ) {
        if has_unread {
            self.fail(Rule::HeardBeforeExpired, format!("connection {conn} is expired with unread input"));
        } else if now_ns <= heard_ns + lease_ns {
            let early_ns = heard_ns + lease_ns - now_ns;
            self.fail(Rule::HeardBeforeExpired, format!("connection {conn} is expired {early_ns} ns early"));
        }
    }

    /// A server leaves a claim although its lease is over and nothing of it is unread.
    pub(crate) fn put_off(&mut self, conn: ConnId, late_ns: u64) {
        self.fail(Rule::NotPutOff, format!("connection {conn} is put off, {late_ns} ns after its lease"));
    }

    /// Who believes to hold which lock, all at one moment.
    pub(crate) fn believed(&mut self, beliefs: impl Iterator<Item = (LockOfLife, usize)>) {
        let mut seen: Vec<(LockOfLife, usize)> = Vec::new();
        for (lock, client) in beliefs {
            if let Some((_, first)) = seen.iter().find(|(other, _)| *other == lock) {
                let what = format!("clients {first} and {client} both believe to hold lock {}", lock.1);
                return self.fail(Rule::OneBeliever, what);
            }
            seen.push((lock, client));
        }
    }

    /// A write reaches the guarded resource. Whether it is taken.
    pub(crate) fn write(&mut self, write: Write) -> bool {
        self.registers[write.lock].hear(write).unwrap_or_else(|fault| {
            self.fail(Rule::Register, fault);
            false
        })
    }
}
