//! The peer: its requests, its answers, and who is taken for it.

use super::{ASKERS_MAX, Action, By, DemotedBy, Gate, Outcome, Pair, Reason, RequestId, Warning};
use crate::ceiling::{Ceiling, Stamped};
use crate::identity::HostId;
use crate::message::{Answer, Ask, GateState, Refusal, Request, Said, Stranger, VERSION, Verdict};
use crate::stored::Heard;
use crate::term::{NodeId, Term};

impl Pair {
    /// A request of the peer. It is answered when what the answer says is on disk, see `answer_askers`.
    pub(super) fn request(&mut self, id: RequestId, request: Request) {
        let Request { version, from, host, to, ask } = request;
        let stranger = self.stranger(version, &from, host).err();
        let means_another = (to != self.setup.node).then_some(Stranger::MeansAnother);
        let not_its_term = match &ask {
            Ask::Close { term, .. } if term.node != from => Some(Stranger::OtherNode),
            _ => None,
        };
        if let Some(stranger) = stranger.or(means_another).or(not_its_term) {
            self.act(Action::Warn(Warning::Stranger(stranger)));
            let said = self.said(Verdict::NotForMe(stranger));
            return self.act(Action::Answer(id, Box::new(said)));
        }
        match &ask {
            Ask::Status => {}
            Ask::Close { term, weak, ceiling } => {
                if self.refusal(term, *weak).is_none() {
                    self.promise_to_peer(term, *ceiling);
                }
            }
            Ask::TakeOver { promise } => {
                let idle = self.gate == Gate::Closed && self.promotion.is_none() && self.switchover.is_none();
                if idle && self.unfit().is_none() && self.stored.promise == *promise {
                    self.begin_promotion(By::TakeOver, None);
                }
            }
        }
        self.askers.retain(|asker| asker.0 != id);
        if self.askers.len() == ASKERS_MAX {
            self.askers.remove(0);
        }
        self.askers.push((id, ask));
    }

    /// Why a term is not promised. A weak ask is refused by a node that is open or promoting; two that both
    /// promote weakly go by their terms, or each would refuse the other for ever.
    fn refusal(&self, term: &Term, weak: bool) -> Option<Refusal> {
        let promotes = self.promotion.as_ref().is_some_and(|promotion| !promotion.by.asks_weakly());
        if self.stored.promise.as_ref() == Some(term) {
            None
        } else if weak && matches!(self.gate, Gate::Open(_)) {
            Some(Refusal::Open)
        } else if weak && promotes {
            Some(Refusal::Promoting)
        } else if self.stored.promise.as_ref() > Some(term) {
            Some(Refusal::Promised)
        } else {
            None
        }
    }

    /// Promises a higher term of the peer: an own promotion has lost, an open gate closes. The peer's term
    /// begins at the higher of both ceilings, so that is what is known of its ceiling.
    fn promise_to_peer(&mut self, term: &Term, ceiling: Ceiling) {
        if self.stored.promise.as_ref() >= Some(term) {
            return;
        }
        self.stored.promise_to_peer(term);
        self.disk.dirty = true;
        let begins = ceiling.max(self.stored.ceiling.ceiling);
        self.copy_ceiling(begins, self.now_ns);
        self.end_promotion(Outcome::Refused(Reason::HigherTerm(term.clone())));
        self.close_gate(DemotedBy::Peer);
    }

    /// Everything is on disk: answers all requests whose answer does not wait for something else.
    pub(super) fn answer_askers(&mut self) {
        let mut waiting = Vec::new();
        for (id, ask) in std::mem::take(&mut self.askers) {
            match self.verdict(&ask) {
                Some(verdict) => {
                    let said = self.said(verdict);
                    self.act(Action::Answer(id, Box::new(said)));
                }
                None => waiting.push((id, ask)),
            }
        }
        self.askers = waiting;
    }

    /// The answer to what is asked, or nothing as long as it must wait.
    fn verdict(&self, ask: &Ask) -> Option<Verdict> {
        match ask {
            Ask::Status => Some(Verdict::Status),
            Ask::Close { term, weak, .. } if self.stored.promise.as_ref() != Some(term) => {
                // Refused then, or overtaken since by a higher term.
                let why = self.refusal(term, *weak).unwrap_or(Refusal::Promoting);
                Some(Verdict::Refused { term: term.clone(), weak: *weak, why })
            }
            Ask::Close { term, .. } => (self.gate == Gate::Closed).then(|| Verdict::ClosedFor(term.clone())),
            Ask::TakeOver { .. } => match (&self.gate, &self.promotion) {
                (Gate::Open(term), _) => Some(Verdict::TookOver(term.clone())),
                (_, Some(promotion)) if promotion.by >= By::TakeOver => None,
                _ => Some(Verdict::NotTakenOver),
            },
        }
    }

    fn said(&self, verdict: Verdict) -> Said {
        Said {
            version: VERSION,
            node: self.setup.node.clone(),
            host: self.stored.host,
            incarnation: self.incarnation,
            promise: self.stored.promise.clone(),
            opened: self.stored.opened.clone(),
            gate: self.gate_state(),
            promoting: self.promotion.is_some(),
            unfit: self.unfit(),
            ceiling: self.stored.ceiling.ceiling,
            copied: self.stored.peer.ceiling.map(|copied| copied.ceiling),
            fencers: self.setup.levels.clone(),
            verdict,
        }
    }

    /// Whether whoever speaks is the peer. Another host under its node id is believed only while this node
    /// is open: then the host known before is not.
    fn stranger(&self, version: u32, node: &NodeId, host: HostId) -> Result<(), Stranger> {
        let known = self.stored.peer.host.is_none_or(|known| known == host);
        if host == self.stored.host {
            Err(Stranger::Myself)
        } else if *node != self.setup.peer {
            Err(Stranger::OtherNode)
        } else if version != VERSION {
            Err(Stranger::OtherVersion)
        } else if !known && !matches!(self.gate, Gate::Open(_)) {
            Err(Stranger::OtherHost)
        } else {
            Ok(())
        }
    }

    /// An answer of whoever was reached.
    pub(super) fn answered(&mut self, ask: &Ask, answer: &Answer, sent_ns: u64) {
        let said = &answer.said;
        if let Err(stranger) = self.stranger(said.version, &said.node, said.host) {
            self.act(Action::Warn(Warning::Stranger(stranger)));
            return self.unanswered(ask);
        }
        self.hear(said, sent_ns);
        if answer.facts.holds_address == Some(true) {
            self.return_address();
        }
        match (&said.verdict, ask) {
            (Verdict::Status, _) => {
                self.switchover_heard(said);
                self.ask_again();
            }
            (Verdict::ClosedFor(term) | Verdict::GoneFor(term), _) => {
                self.peer_closed(term, said.ceiling);
            }
            (Verdict::Refused { term, weak, why }, _) => self.peer_refuses(term, *weak, *why),
            (Verdict::TookOver(term), _) => self.took_over(term),
            (Verdict::NotTakenOver, _) => self.not_taken_over(),
            (Verdict::NotForMe(stranger), _) => {
                self.act(Action::Warn(Warning::Stranger(*stranger)));
                self.unanswered(ask);
            }
        }
    }

    /// No answer, or one that is not the peer's. It proves nothing.
    pub(super) fn unanswered(&mut self, ask: &Ask) {
        match ask {
            Ask::Status => self.switchover_unheard(),
            Ask::Close { term, weak, .. } => self.peer_silent(term, *weak),
            Ask::TakeOver { .. } => self.not_taken_over(),
        }
    }

    /// What every answer of the peer tells.
    fn hear(&mut self, said: &Said, sent_ns: u64) {
        let peer = &mut self.stored.peer;
        let news = peer.host != Some(said.host)
            || peer.fencers.as_ref() != Some(&said.fencers)
            || said.promise > self.stored.promise.clone().max(peer.promise.clone())
            || peer.heard.is_none_or(|heard| {
                heard.incarnation != said.incarnation || heard.own_boot != self.incarnation.boot
            });
        peer.host = Some(said.host);
        if peer.fencers.as_ref() != Some(&said.fencers) {
            peer.fencers = Some(said.fencers.clone());
        }
        if said.promise > self.stored.promise.clone().max(peer.promise.clone()) {
            peer.promise.clone_from(&said.promise);
        }
        peer.heard =
            Some(Heard { incarnation: said.incarnation, own_boot: self.incarnation.boot, at_ns: sent_ns });
        self.disk.dirty |= news;
        self.copy_ceiling(said.ceiling, sent_ns);
        if let (Some((_, allowance)), Some(copied)) = (&mut self.counting, said.copied) {
            allowance.confirm(copied, self.now_ns);
        }
        if let Some(term) = &said.opened {
            self.hear_opened(term);
        }
    }

    /// A higher term was *opened*: this node has lost, whatever it believed. A mere promise of the peer does
    /// not come here: a closed peer that promises and promises would close an open node for ever.
    fn hear_opened(&mut self, term: &Term) {
        if self.stored.opened.as_ref() < Some(term) {
            self.stored.opened = Some(term.clone());
            self.stored.last_open = false;
            self.disk.dirty = true;
        }
        if self.stored.promise.as_ref() < Some(term) {
            if matches!(self.gate, Gate::Open(_)) {
                self.act(Action::Warn(Warning::Healed(term.clone())));
            }
            self.stored.promise_to_peer(term);
            self.disk.dirty = true;
            self.end_promotion(Outcome::Refused(Reason::HigherTerm(term.clone())));
            self.close_gate(DemotedBy::Peer);
        }
    }

    /// A higher ceiling of the peer, or the first one on this boot. An old stamp is the safe one, so the
    /// same ceiling is not stored again.
    fn copy_ceiling(&mut self, ceiling: Ceiling, at_ns: u64) {
        let boot = self.incarnation.boot;
        let known = self.stored.peer.ceiling;
        if known.is_none_or(|known| known.ceiling < ceiling || known.boot != boot) {
            let ceiling = known.map_or(ceiling, |known| known.ceiling.max(ceiling));
            self.stored.peer.ceiling = Some(Stamped { ceiling, boot, at_ns });
            self.disk.dirty = true;
        }
    }

    /// Whether a peer that says this could be promoted by a switchover.
    pub(super) fn fit(said: &Said) -> Result<(), Reason> {
        match said.unfit {
            Some(unfit) => Err(Reason::PeerUnfit(unfit)),
            None if said.gate != GateState::Closed || said.promoting => Err(Reason::PeerBusy),
            None => Ok(()),
        }
    }
}
