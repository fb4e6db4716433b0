//! Commands of people and scripts, and the start of a process.

use super::{Action, Audit, By, Command, CommandId, DemotedBy, Gate, Outcome, Pair, Reason, Warning};

impl Pair {
    pub(super) fn command(&mut self, id: CommandId, command: Command) {
        match command {
            Command::Promote => self.promote(id, By::Hand),
            Command::PromoteAuto => self.promote(id, By::Auto),
            Command::PromoteKeep => self.promote(id, By::Keep),
            Command::PromoteUnfenced => self.promote(id, By::Unfenced),
            Command::Demote => self.demote(id, DemotedBy::Hand),
            Command::DemoteAuto => self.demote(id, DemotedBy::Auto),
            Command::Switchover => self.switch_over(id),
            Command::Hold => self.hold(id, true),
            Command::Unhold => self.hold(id, false),
        }
    }

    /// A process starts. It resumes only what ran on this very boot and was not closed on purpose.
    pub(super) fn wake_up(&mut self) {
        let same_boot = self.stored.boot == self.incarnation.boot;
        let was_active = self.stored.active;
        let hindered = [
            (!same_boot, Reason::OtherBoot),
            (self.stored.demoted, Reason::Demoted),
            (self.stored.held, Reason::Held),
        ];
        let hindered = hindered.into_iter().find_map(|(holds, reason)| holds.then_some(reason));
        if !same_boot {
            self.stored.boot = self.incarnation.boot;
            self.stored.active = false;
            self.stored.last_open = false;
            self.disk.dirty = true;
        }
        match hindered {
            None if was_active => self.begin_promotion(By::Resume, None),
            Some(reason) if was_active => {
                self.act(Action::Because(Some(reason.clone())));
                self.act(Action::Warn(Warning::NotResumed(reason)));
            }
            _ => {}
        }
    }

    fn promote(&mut self, id: CommandId, by: By) {
        if self.stopping {
            return self.tell(vec![id], &Outcome::Refused(Reason::Stopping));
        }
        if let Gate::Open(term) = &self.gate {
            let open = Outcome::Open(term.clone());
            return self.tell(vec![id], &open);
        }
        if self.stored.held {
            return self.tell(vec![id], &Outcome::Refused(Reason::Held));
        }
        if self.stored.demoted {
            if !by.lifts_demotion() {
                return self.tell(vec![id], &Outcome::Refused(Reason::Demoted));
            }
            self.stored.demoted = false;
            self.disk.dirty = true;
            let demotions = std::mem::take(&mut self.demotions);
            self.tell(demotions, &Outcome::Unknown(Reason::Overtaken));
        }
        if self.switchover.is_some() {
            if !by.lifts_demotion() {
                // keepalived's scripts go on while the address still is here: the switchover decides.
                return self.tell(vec![id], &Outcome::Pending(Reason::SwitchingOver));
            }
            self.end_switchover(Outcome::Unknown(Reason::Overtaken));
        }
        if self.promotion.is_some() {
            self.join_promotion(id, by);
        } else {
            self.begin_promotion(by, Some(id));
        }
    }

    /// By hand it is sticky. A restart resumes neither kind.
    fn demote(&mut self, id: CommandId, by: DemotedBy) {
        self.end_promotion(Outcome::Refused(Reason::DemotedMeanwhile));
        if by == DemotedBy::Hand {
            // `--auto` is what keepalived says when the switchover moves the address.
            self.end_switchover(Outcome::Unknown(Reason::DemotedMeanwhile));
            if !matches!(self.gate, Gate::Open(_)) && !self.stored.demoted {
                self.act(Action::Audit(Audit::Demoted { term: None, by }));
            }
        }
        let of = |stored: &crate::stored::Stored| (stored.demoted, stored.active, stored.last_open);
        let before = of(&self.stored);
        self.stored.demoted |= by == DemotedBy::Hand;
        self.stored.last_open &= by == DemotedBy::Auto;
        self.stored.active = false;
        self.disk.dirty |= before != of(&self.stored);
        self.close_gate(by);
        if !self.demotions.contains(&id) {
            self.demotions.push(id);
        }
    }

    /// A demotion is told when it is stored and no session is left.
    pub(super) fn tell_demotions(&mut self) {
        if self.gate == Gate::Closed {
            let demotions = std::mem::take(&mut self.demotions);
            self.tell(demotions, &Outcome::Closed);
        }
        for (id, held) in std::mem::take(&mut self.holds) {
            self.tell(vec![id], &Outcome::Held(held));
        }
    }

    /// Hold stops promotions and fences. It closes nothing, and nothing that closes or answers looks at it.
    fn hold(&mut self, id: CommandId, held: bool) {
        if held {
            self.end_promotion(Outcome::Refused(Reason::Held));
        }
        if self.stored.held != held {
            self.stored.held = held;
            self.disk.dirty = true;
            self.act(Action::Audit(Audit::Hold(held)));
        }
        self.holds.push((id, held));
    }
}
