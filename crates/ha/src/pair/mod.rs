//! The state machine of a pair: see [`Pair`].

mod commands;
mod event;
mod peer;
mod promotion;
mod switchover;
#[cfg(test)]
mod tests;

use std::sync::Arc;

pub use event::{
    Action, Audit, By, Command, CommandId, DemotedBy, Event, Outcome, Pace, Reason, RequestId, Setup, Warning,
};

use crate::ceiling::{Allowance, Ceiling, Stamped};
use crate::identity::Incarnation;
use crate::message::{Ask, GateState, Request, Unfit, VERSION};
use crate::stored::Stored;
use crate::term::Term;
use promotion::Promotion;
use switchover::Switchover;

/// One node of a pair. See the crate's page for what it decides.
///
/// The caller holds one lock around [`Pair::handle`] and the carrying out of [`Action::OpenGate`] and
/// [`Action::CloseGate`]: that is what makes a promise and the gate one thing.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Pair {
    setup: Arc<Setup>,
    incarnation: Incarnation,
    stored: Stored,
    /// Whether `stored` is on disk.
    disk: Disk,
    gate: Gate,
    /// While open: the ceiling that the gate was told, and how far it may rise.
    counting: Option<(Ceiling, Allowance)>,
    promotion: Option<Promotion>,
    switchover: Option<Switchover>,
    /// The peer's requests that have no answer yet.
    askers: Vec<(RequestId, Ask)>,
    /// Demotions that wait for the gate and the disk.
    demotions: Vec<CommandId>,
    /// Holds and their ends that wait for the disk.
    holds: Vec<(CommandId, bool)>,
    ready: bool,
    stopping: bool,
    /// The next read of the peer's status, CLOCK_BOOTTIME ns.
    read_at_ns: u64,
    /// The health file is taken away until then at most.
    address_until_ns: Option<u64>,
    /// The time of the event that is handled, CLOCK_BOOTTIME ns.
    now_ns: u64,
    actions: Vec<Action>,
}

/// Requests of the peer that wait at most; the oldest goes. The peer asks one thing at a time, and again
/// after 1 s: more than this many are not from a peer that still waits.
const ASKERS_MAX: usize = 16;

/// Whether the state in memory is on disk. Nothing is said or done about a state before it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Disk {
    dirty: bool,
    writing: bool,
}

/// The gate, as far as this machine has ordered it and heard of it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum Gate {
    Closed,
    Closing,
    Open(Term),
}

/// What `monolock status` shows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Status {
    /// The role.
    pub role: Role,
    /// The highest promised term; while active, the term in which this node is open.
    pub promise: Option<Term>,
    /// The gate.
    pub gate: GateState,
    /// Demoted by hand.
    pub demoted: bool,
    /// Under hold.
    pub held: bool,
    /// A switchover from here runs.
    pub switching: bool,
}

/// What a node is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// Open.
    Active,
    /// Not open, and not about to be.
    Standby,
    /// It wants to be active and may not yet.
    FencePending,
}

impl Role {
    /// The exit status of `monolock status`. 2 is for a server that gives no answer.
    pub fn exit_status(self) -> u8 {
        match self {
            Self::Active => 0,
            Self::Standby => 1,
            Self::FencePending => 3,
        }
    }
}

impl Pair {
    /// A process starts, under the exclusive lock of its state directory, with its gate closed.
    ///
    /// A node that was active resumes, unless it was demoted, is held, or is on another boot.
    pub fn start(
        setup: Arc<Setup>,
        stored: Stored,
        incarnation: Incarnation,
        now_ns: u64,
    ) -> (Self, Vec<Action>) {
        let mut pair = Self {
            setup,
            incarnation,
            stored,
            disk: Disk { dirty: false, writing: false },
            gate: Gate::Closed,
            counting: None,
            promotion: None,
            switchover: None,
            askers: Vec::new(),
            demotions: Vec::new(),
            holds: Vec::new(),
            ready: true,
            stopping: false,
            read_at_ns: now_ns,
            address_until_ns: None,
            now_ns,
            actions: Vec::new(),
        };
        pair.wake_up();
        pair.advance();
        let actions = std::mem::take(&mut pair.actions);
        (pair, actions)
    }

    /// One event in, actions out. `now_ns` is CLOCK_BOOTTIME.
    pub fn handle(&mut self, event: Event, now_ns: u64) -> Vec<Action> {
        self.now_ns = now_ns;
        match event {
            Event::Command(id, command) => self.command(id, command),
            Event::Request(id, request) => self.request(id, request),
            Event::Answered { ask, answer, sent_ns } => self.answered(&ask, &answer, sent_ns),
            Event::Unanswered(ask) => self.unanswered(&ask),
            Event::Fenced { term, level, device, confirmed } => {
                self.fence_ended(&term, level, device, confirmed);
            }
            Event::GateClosed => self.gate_closed(),
            Event::Stored => self.disk.writing = false,
            Event::StoreFailed => {
                self.disk = Disk { dirty: true, writing: false };
                self.act(Action::Warn(Warning::StoreFailed));
                // The next event, at the latest the tick of the next read, tries again.
                return std::mem::take(&mut self.actions);
            }
            Event::CeilingWanted(wanted) => self.ceiling_wanted(wanted),
            Event::Ready(ready) => self.ready = ready,
            Event::Stopping => self.stop(),
            Event::Tick => self.tick(),
        }
        self.advance();
        std::mem::take(&mut self.actions)
    }

    /// When [`Event::Tick`] is due: CLOCK_BOOTTIME, ns.
    pub fn deadline_ns(&self) -> u64 {
        let promotion = self.promotion.as_ref().and_then(Promotion::deadline_ns);
        let switchover = self.switchover.as_ref().and_then(Switchover::deadline_ns);
        [promotion, switchover, self.address_until_ns].into_iter().flatten().fold(self.read_at_ns, u64::min)
    }

    /// What `monolock status` shows.
    pub fn status(&self) -> Status {
        let role = match self.gate {
            Gate::Open(_) => Role::Active,
            _ if self.promotion.is_some() => Role::FencePending,
            _ => Role::Standby,
        };
        Status {
            role,
            promise: self.stored.promise.clone(),
            gate: self.gate_state(),
            demoted: self.stored.demoted,
            held: self.stored.held,
            switching: self.switchover.is_some(),
        }
    }

    /// The state that this node holds to, for `--json` and tests. It may not be on disk yet.
    pub fn stored(&self) -> &Stored {
        &self.stored
    }

    /// Everything that waits for the disk or the gate goes on here, and nowhere else.
    fn advance(&mut self) {
        loop {
            if self.disk.dirty && !self.disk.writing {
                self.disk = Disk { dirty: false, writing: true };
                self.act(Action::Store(Box::new(self.stored.clone())));
            }
            if self.disk.writing {
                return;
            }
            self.answer_askers();
            self.tell_demotions();
            self.raise_ceiling();
            self.go_on_promoting();
            self.go_on_switching();
            if !self.disk.dirty {
                // Who waits for a promotion that has just ended is not left to the next event.
                self.answer_askers();
                return;
            }
        }
    }

    /// Closes an open gate. A closed one stays closed.
    fn close_gate(&mut self, by: DemotedBy) {
        if let Gate::Open(term) = &self.gate {
            let term = Some(term.clone());
            self.gate = Gate::Closing;
            self.counting = None;
            self.act(Action::CloseGate);
            self.act(Action::Audit(Audit::Demoted { term, by }));
        }
    }

    fn gate_closed(&mut self) {
        if self.gate == Gate::Closing {
            self.gate = Gate::Closed;
        }
    }

    /// Opens the gate. The only place that does.
    fn open_gate(&mut self, term: Term, floor: Ceiling) {
        assert_eq!(self.gate, Gate::Closed, "no opening before the last closing is confirmed");
        assert_eq!(self.stored.promise.as_ref(), Some(&term), "the promise has moved on");
        assert!(!self.stopping && !self.stored.held && !self.stored.demoted, "this node must not open");
        assert!(!self.disk.writing && !self.disk.dirty, "opened, and not stored");
        self.gate = Gate::Open(term.clone());
        let ceiling = self.stored.ceiling.ceiling;
        self.counting = Some((ceiling, Allowance::begin(floor, self.now_ns)));
        self.act(Action::Because(None));
        self.act(Action::OpenGate { term, floor, ceiling });
        self.return_address();
    }

    fn ceiling_wanted(&mut self, wanted: Ceiling) {
        let Some((_, allowance)) = self.counting else { return };
        let ceiling = wanted.min(allowance.limit(self.now_ns));
        if ceiling > self.stored.ceiling.ceiling {
            self.set_ceiling(ceiling);
        }
    }

    fn set_ceiling(&mut self, ceiling: Ceiling) {
        self.stored.ceiling = Stamped { ceiling, boot: self.incarnation.boot, at_ns: self.now_ns };
        self.disk.dirty = true;
    }

    fn raise_ceiling(&mut self) {
        let stored = self.stored.ceiling.ceiling;
        if let Some((told, _)) = &mut self.counting
            && stored > *told
        {
            *told = stored;
            self.act(Action::RaiseCeiling(stored));
        }
    }

    fn stop(&mut self) {
        self.stopping = true;
        self.end_promotion(Outcome::Refused(Reason::Stopping));
        self.end_switchover(Outcome::Unknown(Reason::Stopping));
        self.close_gate(DemotedBy::Stopping);
    }

    fn tick(&mut self) {
        if self.now_ns >= self.read_at_ns {
            self.read_at_ns = self.now_ns + self.setup.pace.read_every_ns;
            self.ask(Ask::Status);
        }
        self.tick_promotion();
        self.tick_switchover();
    }

    fn ask(&mut self, ask: Ask) {
        let request = Request {
            version: VERSION,
            from: self.setup.node.clone(),
            host: self.stored.host,
            to: self.setup.peer.clone(),
            ask,
        };
        self.act(Action::Ask(request));
    }

    fn act(&mut self, action: Action) {
        self.actions.push(action);
    }

    fn tell(&mut self, commands: Vec<CommandId>, outcome: &Outcome) {
        for id in commands {
            self.act(Action::Tell(id, outcome.clone()));
        }
    }

    fn gate_state(&self) -> GateState {
        match self.gate {
            Gate::Closed => GateState::Closed,
            Gate::Closing => GateState::Closing,
            Gate::Open(_) => GateState::Open,
        }
    }

    fn unfit(&self) -> Option<Unfit> {
        let reasons = [
            (self.stopping, Unfit::Stopping),
            (self.stored.held, Unfit::Held),
            (self.stored.demoted, Unfit::Demoted),
            (!self.ready, Unfit::NotReady),
        ];
        reasons.into_iter().find_map(|(holds, unfit)| holds.then_some(unfit))
    }
}
