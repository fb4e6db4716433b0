//! A switchover: look at the peer, close here, let it open, move the address. Undone only by an ordinary
//! promotion whose fence is the peer's promise.
//!
//! ```text
//! Looking ─fit▶ Closing ─closed, stored▶ Waiting ─took over▶ the address moves
//!    │ unfit, silent                         │ not taken over, silent, too long
//!    ▼                                       ▼
//! refused, still open                     Undoing ─promised▶ open again      ─else▶ both stay closed
//! ```

use super::{Action, By, CommandId, DemotedBy, Gate, Outcome, Pair, Reason};
use crate::message::{Ask, Refusal, Said};
use crate::term::Term;

/// A switchover that runs.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Switchover {
    command: CommandId,
    step: Step,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum Step {
    Looking,
    /// With the peer's promise as it was when it was found fit.
    Closing {
        promise: Option<Term>,
    },
    Waiting {
        until_ns: u64,
    },
    Undoing,
}

impl Switchover {
    pub(super) fn deadline_ns(&self) -> Option<u64> {
        match self.step {
            Step::Waiting { until_ns } => Some(until_ns),
            _ => None,
        }
    }
}

impl Pair {
    pub(super) fn switch_over(&mut self, command: CommandId) {
        if self.switchover.is_some() {
            self.tell(vec![command], &Outcome::Refused(Reason::SwitchingOver));
        } else if !matches!(self.gate, Gate::Open(_)) {
            self.tell(vec![command], &Outcome::Refused(Reason::NotActive));
        } else {
            self.switchover = Some(Switchover { command, step: Step::Looking });
            self.ask(Ask::Status);
        }
    }

    fn step(&self) -> Option<&Step> {
        self.switchover.as_ref().map(|switchover| &switchover.step)
    }

    /// The peer's status: it must be fit *before* this node closes.
    pub(super) fn switchover_heard(&mut self, said: &Said) {
        if self.step() != Some(&Step::Looking) {
            return;
        }
        if !matches!(self.gate, Gate::Open(_)) {
            return self.end_switchover(Outcome::Refused(Reason::NotActive));
        }
        if let Err(reason) = Self::fit(said) {
            return self.end_switchover(Outcome::Refused(reason));
        }
        self.set_switchover(Step::Closing { promise: said.promise.clone() });
        self.set_inactive();
        self.close_gate(DemotedBy::Switchover);
    }

    pub(super) fn switchover_unheard(&mut self) {
        if self.step() == Some(&Step::Looking) {
            self.end_switchover(Outcome::Refused(Reason::PeerSilent));
        }
    }

    /// The disk has caught up: a closed gate lets the peer open.
    pub(super) fn go_on_switching(&mut self) {
        if let (Some(Step::Closing { promise }), Gate::Closed) = (self.step(), &self.gate) {
            let promise = promise.clone();
            self.set_switchover(Step::Waiting { until_ns: self.now_ns + self.setup.pace.take_over_ns });
            self.ask(Ask::TakeOver { promise });
        }
    }

    pub(super) fn took_over(&mut self, term: &Term) {
        let waits = matches!(self.step(), Some(Step::Waiting { .. } | Step::Undoing));
        // A word of an earlier switchover names a term that this node has left behind.
        if waits && Some(term) >= self.stored.promise.as_ref() {
            self.end_switchover(Outcome::SwitchedOver(term.clone()));
            self.end_promotion(Outcome::Refused(Reason::HigherTerm(term.clone())));
            self.give_address();
        }
    }

    pub(super) fn not_taken_over(&mut self) {
        if matches!(self.step(), Some(Step::Waiting { .. })) {
            self.set_switchover(Step::Undoing);
            if self.stored.held || self.promotion.is_some() {
                self.end_switchover(Outcome::Unknown(Reason::BothClosed));
            } else {
                self.begin_promotion(By::Undo, None);
            }
        }
    }

    /// The promotion that was to undo the switchover has ended.
    pub(super) fn undo_ended(&mut self, outcome: &Outcome) {
        if self.step() != Some(&Step::Undoing) {
            return;
        }
        let outcome = match outcome {
            Outcome::Open(_) => Outcome::Refused(Reason::Undone),
            Outcome::Refused(Reason::PeerRefuses(Refusal::Open)) => self.peer_is_open(),
            Outcome::Refused(Reason::PeerRefuses(_) | Reason::HigherTerm(_)) => {
                Outcome::Unknown(Reason::PeerAtIt)
            }
            _ => Outcome::Unknown(Reason::BothClosed),
        };
        self.end_switchover(outcome);
    }

    /// It refused the undo because it is open: only its word was lost.
    fn peer_is_open(&mut self) -> Outcome {
        self.give_address();
        self.stored.opened.clone().map_or(Outcome::Unknown(Reason::PeerAtIt), Outcome::SwitchedOver)
    }

    pub(super) fn end_switchover(&mut self, outcome: Outcome) {
        if let Some(switchover) = self.switchover.take() {
            self.tell(vec![switchover.command], &outcome);
        }
    }

    fn set_switchover(&mut self, step: Step) {
        if let Some(switchover) = &mut self.switchover {
            switchover.step = step;
        }
    }

    fn give_address(&mut self) {
        self.address_until_ns = Some(self.now_ns + self.setup.pace.address_ns);
        self.act(Action::GiveAddress(true));
    }

    /// The health file is as health has it again: the peer holds the address, this node opens, or it took
    /// too long.
    pub(super) fn return_address(&mut self) {
        if self.address_until_ns.take().is_some() {
            self.act(Action::GiveAddress(false));
        }
    }

    pub(super) fn tick_switchover(&mut self) {
        if matches!(self.step(), Some(&Step::Waiting { until_ns }) if self.now_ns >= until_ns) {
            self.not_taken_over();
        }
        if self.address_until_ns.is_some_and(|until_ns| self.now_ns >= until_ns) {
            self.return_address();
        }
    }
}
