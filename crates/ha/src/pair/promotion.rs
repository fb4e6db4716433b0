//! A promotion: promise a higher term to oneself, fence the peer, open.
//!
//! ```text
//! Promising ──stored──▶ Asking ──closed / gone──────────────────────┐
//!     ▲                   │ no answer                               ▼
//!     │ (next round       ▼              all devices confirm     Opening ──stored, gate closed──▶ open
//!     │  asks again)   Delaying ─▶ Shooting ───────────────────────▶┘
//!   Resting ◀──no level left─────────┘
//! ```
//! An answer counts in every step before `Opening`. A promotion ends by opening, a refusal, a demotion, a
//! hold, a higher term, or shutdown; what comes for its term later finds no promotion of that term.

use super::{Action, Audit, By, CommandId, Gate, Outcome, Pair, Reason, Warning};
use crate::ceiling::{Ceiling, STEP, begin_unsaid};
use crate::fence::Round;
use crate::message::{Ask, Refusal};
use crate::term::Term;

/// A promotion that runs.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Promotion {
    pub(super) term: Term,
    pub(super) by: By,
    step: Step,
    waiting: Vec<CommandId>,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum Step {
    /// The own promise is not on disk yet.
    Promising,
    /// The peer is asked.
    Asking,
    /// `-fence-delay`.
    Delaying { until_ns: u64 },
    /// The devices of a level run.
    Shooting { level: usize, round: Round },
    /// Until the next round.
    Resting { until_ns: u64 },
    /// Fenced: what is about to be open is not on disk yet, or an own closing is not confirmed.
    Opening { floor: Ceiling },
}

impl Promotion {
    pub(super) fn deadline_ns(&self) -> Option<u64> {
        match self.step {
            Step::Delaying { until_ns } | Step::Resting { until_ns } => Some(until_ns),
            _ => None,
        }
    }
}

impl Pair {
    /// Takes a higher counter and promises it to oneself. Only a new command, or a start, comes here.
    pub(super) fn begin_promotion(&mut self, by: By, waiting: Option<CommandId>) {
        debug_assert!(self.promotion.is_none());
        let term = Term { counter: self.stored.next_counter(), node: self.setup.node.clone() };
        self.stored.set_promise(&term);
        self.disk.dirty = true;
        self.promotion =
            Some(Promotion { term, by, step: Step::Promising, waiting: waiting.into_iter().collect() });
    }

    /// A command joins the promotion that runs. A stronger one takes it over, in the same term.
    pub(super) fn join_promotion(&mut self, id: CommandId, by: By) {
        let Some(promotion) = &mut self.promotion else { return };
        if !promotion.waiting.contains(&id) {
            promotion.waiting.push(id);
        }
        let asked_weakly = promotion.by.asks_weakly();
        promotion.by = promotion.by.max(by);
        let now_strong = asked_weakly && !promotion.by.asks_weakly();
        match promotion.step {
            Step::Promising | Step::Opening { .. } => {}
            _ if by == By::Unfenced => self.fenced(None),
            Step::Asking if now_strong => self.begin_round(),
            _ => {}
        }
    }

    /// Ends the promotion that runs, if any; everybody who waits is told.
    pub(super) fn end_promotion(&mut self, outcome: Outcome) {
        let Some(promotion) = self.promotion.take() else { return };
        if matches!(promotion.step, Step::Shooting { .. }) {
            self.act(Action::CancelFence(promotion.term.clone()));
        }
        let failed = match &outcome {
            Outcome::Refused(reason) | Outcome::Unknown(reason) | Outcome::Pending(reason) => {
                Some(reason.clone())
            }
            _ => None,
        };
        self.act(Action::Because(failed.clone()));
        self.act(Action::Audit(Audit::Promoted { term: promotion.term, by: promotion.by, failed }));
        self.tell(promotion.waiting, &outcome);
        if promotion.by == By::Undo {
            self.undo_ended(&outcome);
        }
    }

    /// The disk has caught up: what waited for it goes on.
    pub(super) fn go_on_promoting(&mut self) {
        match &self.promotion {
            Some(Promotion { step: Step::Promising, by: By::Unfenced, .. }) => self.fenced(None),
            Some(Promotion { step: Step::Promising, .. }) => self.begin_round(),
            Some(Promotion { step: Step::Opening { floor }, term, .. })
                if self.gate == Gate::Closed && !self.disk.dirty =>
            {
                let (floor, term) = (*floor, term.clone());
                self.open_gate(term.clone(), floor);
                self.end_promotion(Outcome::Open(term));
            }
            _ => {}
        }
    }

    /// A round starts with the peer's own answer.
    fn begin_round(&mut self) {
        let ceiling = self.stored.ceiling.ceiling;
        let Some(promotion) = &mut self.promotion else { return };
        promotion.step = Step::Asking;
        let ask = Ask::Close { term: promotion.term.clone(), weak: promotion.by.asks_weakly(), ceiling };
        self.ask(ask);
    }

    /// The peer answers again: a promotion that rests asks it now. A server that was restarted is there after
    /// a moment, and refuses nothing for as long as this node promotes.
    pub(super) fn ask_again(&mut self) {
        if matches!(self.promotion, Some(Promotion { step: Step::Resting { .. }, .. })) {
            self.begin_round();
        }
    }

    /// The promotion of this term, as long as it waits for a fence.
    fn unfenced(&self, term: &Term) -> Option<&Promotion> {
        let waits = |promotion: &&Promotion| {
            promotion.term == *term && !matches!(promotion.step, Step::Promising | Step::Opening { .. })
        };
        self.promotion.as_ref().filter(waits)
    }

    /// The peer says `closed` or `gone` for `term`, with its final ceiling.
    pub(super) fn peer_closed(&mut self, term: &Term, ceiling: Ceiling) {
        if self.unfenced(term).is_some() {
            self.act(Action::Audit(Audit::Fence { term: term.clone(), level: 0, confirmed: true }));
            self.fenced(Some(ceiling));
        }
    }

    /// The peer refuses `term`. What was refused to a weaker ask does not end a promotion that has become
    /// stronger since.
    pub(super) fn peer_refuses(&mut self, term: &Term, weak: bool, why: Refusal) {
        if self.unfenced(term).is_some_and(|promotion| promotion.by.asks_weakly() == weak) {
            self.act(Action::Audit(Audit::Fence { term: term.clone(), level: 0, confirmed: false }));
            self.set_inactive();
            self.end_promotion(Outcome::Refused(Reason::PeerRefuses(why)));
        }
    }

    /// The peer gives no answer: nothing is proved, the next level follows.
    pub(super) fn peer_silent(&mut self, term: &Term, weak: bool) {
        let Some(promotion) = self.unfenced(term) else { return };
        if promotion.step != Step::Asking || promotion.by.asks_weakly() != weak {
            return;
        }
        let by = promotion.by;
        self.act(Action::Audit(Audit::Fence { term: term.clone(), level: 0, confirmed: false }));
        match by {
            By::Auto | By::Hand if self.stored.last_open && self.nobody_else_can_be_open() => {
                self.fenced(Some(Ceiling::default()));
            }
            By::Auto | By::Hand => self.next_level(0),
            By::Resume if self.nobody_else_can_be_open() => self.fenced(Some(Ceiling::default())),
            By::Resume => {
                self.act(Action::Warn(Warning::NotResumed(Reason::NotResumed)));
                self.end_promotion(Outcome::Unknown(Reason::NotResumed));
            }
            _ => self.end_promotion(Outcome::Unknown(Reason::NoAnswer)),
        }
    }

    /// A peer whose only fencer is this node's answer cannot have been promoted without it. (That this is
    /// the same boot, and that no such answer was given, `active` and `last_open` say.)
    fn nobody_else_can_be_open(&self) -> bool {
        self.stored.peer.fencers.as_ref().is_some_and(crate::fence::Levels::is_peer_only)
    }

    /// Level `failed` did not count: runs the one after it, if it may.
    fn next_level(&mut self, failed: usize) {
        let level = failed + 1;
        let delay_ns = self.setup.pace.fence_delay_ns;
        let heard = self.stored.peer.heard.is_some_and(|heard| heard.own_boot == self.incarnation.boot);
        if level >= self.setup.levels.levels().len() {
            self.rest(if failed == 0 { Reason::NoAnswer } else { Reason::FenceFailed });
        } else if !heard {
            self.rest(Reason::NotHeardSinceBoot);
        } else if failed == 0 && delay_ns > 0 {
            self.set_step(Step::Delaying { until_ns: self.now_ns + delay_ns });
        } else {
            self.shoot(level);
        }
    }

    fn shoot(&mut self, level: usize) {
        let devices = self.setup.levels.levels()[level].len();
        let Some(promotion) = &mut self.promotion else { return };
        debug_assert!(promotion.by.may_shoot());
        promotion.step = Step::Shooting { level, round: Round::new(devices) };
        let term = promotion.term.clone();
        for device in 0..devices {
            self.act(Action::Fence { term: term.clone(), level, device });
        }
    }

    fn rest(&mut self, reason: Reason) {
        let until_ns = self.now_ns + self.setup.pace.retry_ns;
        self.act(Action::Because(Some(reason.clone())));
        let Some(promotion) = &mut self.promotion else { return };
        promotion.step = Step::Resting { until_ns };
        let waiting = std::mem::take(&mut promotion.waiting);
        self.tell(waiting, &Outcome::Pending(reason));
    }

    pub(super) fn fence_ended(&mut self, of: &Term, at: usize, device: usize, confirmed: bool) {
        let Some(Promotion { term, step: Step::Shooting { level, round }, .. }) = &mut self.promotion else {
            return;
        };
        if term != of || *level != at {
            return;
        }
        let Some(counts) = round.ended(device, confirmed) else { return };
        self.act(Action::Audit(Audit::Fence { term: of.clone(), level: at, confirmed: counts }));
        if counts {
            self.fenced(None);
        } else {
            self.next_level(at);
        }
    }

    /// The peer can no longer act: what is about to be open is stored first. `said` is its final ceiling.
    fn fenced(&mut self, said: Option<Ceiling>) {
        let own = self.stored.ceiling;
        let floor = said.map_or_else(
            || begin_unsaid(own, self.stored.peer.ceiling, self.incarnation.boot, self.now_ns),
            |said| said.max(own.ceiling),
        );
        let Some(promotion) = &mut self.promotion else { return };
        let was_shooting = matches!(promotion.step, Step::Shooting { .. });
        promotion.step = Step::Opening { floor };
        let (term, by) = (promotion.term.clone(), promotion.by);
        if was_shooting && said.is_some() || by == By::Unfenced {
            self.act(Action::CancelFence(term.clone()));
        }
        if by == By::Unfenced {
            self.act(Action::Warn(Warning::Unfenced));
        }
        self.stored.opened = self.stored.opened.take().max(Some(term));
        self.stored.active = true;
        self.stored.last_open = true;
        self.set_ceiling(floor.plus(STEP));
    }

    fn set_step(&mut self, step: Step) {
        if let Some(promotion) = &mut self.promotion {
            promotion.step = step;
        }
    }

    pub(super) fn set_inactive(&mut self) {
        self.disk.dirty |= self.stored.active || self.stored.last_open;
        self.stored.active = false;
        self.stored.last_open = false;
    }

    pub(super) fn tick_promotion(&mut self) {
        match self.promotion.as_ref().map(|promotion| &promotion.step) {
            Some(&Step::Delaying { until_ns }) if self.now_ns >= until_ns => self.shoot(1),
            Some(&Step::Resting { until_ns }) if self.now_ns >= until_ns => self.begin_round(),
            _ => {}
        }
    }
}
