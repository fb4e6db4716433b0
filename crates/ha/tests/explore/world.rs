//! Two nodes, what is between them, and every step that may happen next.
//!
//! The clock stands still at 0 and every pace is 0, so that each time-out may come at any moment and no two
//! states differ by their times alone. Ceilings stand at their maximum for the same reason. Boots are told
//! apart only as far as a node's own disk can tell them.

use std::hash::{Hash, Hasher};
use std::sync::Arc;

use ha::ceiling::Ceiling;
use ha::fence::Levels;
use ha::identity::{BootId, HostId, Incarnation};
use ha::message::{Answer, Ask, Facts, Request, Said, Verdict};
use ha::pair::{Action, Command, CommandId, Event, Outcome, Pace, Pair, RequestId, Setup};
use ha::stored::Stored;

use crate::sabotage::Sabotage;

/// The state of everything.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct World {
    pub(crate) nodes: [Node; 2],
    /// What is under way, in a fixed order, each thing once: a set.
    pub(crate) wire: Vec<(u64, Message)>,
    /// Messages that may still be lost or doubled.
    pub(crate) faults: u8,
    /// Demotions and switchovers that may still be ordered.
    pub(crate) orders: u8,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Node {
    pub(crate) setup: Arc<Setup>,
    /// `None`: the process does not run.
    pub(crate) pair: Option<Pair>,
    pub(crate) disk: Stored,
    /// What is being written: a crash may find it done or not.
    pub(crate) writing: Option<Stored>,
    /// The real gate.
    pub(crate) gate: Gate,
    /// Crashes left.
    pub(crate) crashes: u8,
    /// Its fence device, aimed at the other node.
    pub(crate) fence: Option<Fence>,
    /// Questions for which a time-out may come.
    pub(crate) asked: Vec<Ask>,
    /// The peer's questions that wait for an answer.
    requests: Vec<(RequestId, Ask)>,
    /// An operator's demotion was told, and no `promote` by hand came since.
    pub(crate) demoted: bool,
    /// Started on another boot, and nobody has ordered a promotion since.
    asleep: bool,
    /// Planted: an opening that is still to be carried out.
    pub(crate) opening: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Gate {
    Closed,
    /// Ordered, and not confirmed: some shard may still grant.
    Closing,
    Open,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Fence {
    term: ha::term::Term,
    level: usize,
    /// It has done its work, and its exit status is not known yet.
    pub(crate) done: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) enum Message {
    Request { to: usize, request: Request },
    Answer { to: usize, ask: Ask, said: Box<Said> },
}

/// A step. `usize` is a node, or for the wire the place in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Step {
    Command(usize, Command),
    Deliver(usize),
    Double(usize),
    Lose(usize),
    /// The peer's address leads to the asking node itself.
    Reflect(usize),
    TimeOut(usize, usize),
    Read(usize),
    Synced(usize),
    Closed(usize),
    /// The bool: what was being written is on disk.
    Crash(usize, bool),
    /// The bool: on the same boot.
    Start(usize, bool),
    FenceWorks(usize, bool),
    FenceEnds(usize),
    FenceFails(usize),
    Tick(usize),
    LateOpening(usize),
}

/// What must never be.
pub(crate) type Violation = String;

const COMMANDS: [Command; 6] = [
    Command::Promote,
    Command::PromoteAuto,
    Command::PromoteKeep,
    Command::Demote,
    Command::DemoteAuto,
    Command::Switchover,
];

/// A fast 64-bit hash: each word is multiplied to 128 bits and folded.
struct Folded(u64);

impl Hasher for Folded {
    fn finish(&self) -> u64 {
        fold(self.0, 0xd6e8_feb8_6659_fd93)
    }

    fn write(&mut self, bytes: &[u8]) {
        for chunk in bytes.chunks(8) {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            self.write_u64(u64::from_le_bytes(word) ^ (chunk.len() as u64) << 56);
        }
    }

    fn write_u64(&mut self, word: u64) {
        self.0 = fold(self.0 ^ word, 0xa076_1d64_78bd_642f).wrapping_add(0x9e37_79b9_7f4a_7c15);
    }
}

fn fold(word: u64, by: u64) -> u64 {
    let product = u128::from(word) * u128::from(by);
    (product >> 64) as u64 ^ product as u64
}

/// Nothing that a peer decides depends on which boot of a host answers; and only a switchover that looks for
/// a fit peer looks at the gate, at a promotion and at fitness.
fn disguise(said: &mut Said, sabotage: Sabotage) {
    said.incarnation = Incarnation { boot: NOW, started_ns: 0 };
    if said.verdict != Verdict::Status {
        (said.gate, said.promoting, said.unfit) = (ha::message::GateState::Closed, false, None);
    }
    if sabotage == Sabotage::HidesPowerFencer {
        said.fencers = Levels::peer_only();
    }
}

/// The boot on which a node runs, and any boot before it: a node tells no more of them apart.
const NOW: BootId = BootId(0);
const BEFORE: BootId = BootId(1);

/// An order to close, of which there are only so many. Promotions are bounded by their counters.
fn orders(command: Command) -> bool {
    matches!(command, Command::Demote | Command::DemoteAuto | Command::Switchover)
}

/// The commands, as far as their ends are told apart.
fn command_id(command: Command) -> CommandId {
    CommandId(match command {
        Command::Demote | Command::DemoteAuto => 1,
        Command::Switchover => 3,
        _ => 0,
    })
}

pub(crate) fn fingerprint(value: &impl Hash) -> u64 {
    let mut hasher = Folded(0x9e37_79b9_7f4a_7c15);
    value.hash(&mut hasher);
    hasher.finish()
}

impl World {
    /// Two nodes that have never run, with these fence levels.
    pub(crate) fn new(levels: [&Levels; 2], crashes: u8, faults: u8, orders: u8, sabotage: Sabotage) -> Self {
        let names = ["a", "b"];
        let node = |i: usize| Node {
            setup: Arc::new(Setup {
                node: names[i].parse().unwrap(),
                peer: names[1 - i].parse().unwrap(),
                levels: levels[i].clone(),
                pace: Pace {
                    read_every_ns: 0,
                    retry_ns: 0,
                    fence_delay_ns: 0,
                    take_over_ns: 0,
                    address_ns: 0,
                },
            }),
            pair: None,
            disk: Stored::new(HostId(i as u128), BootId(0), Ceiling(u64::MAX), 0),
            writing: None,
            gate: Gate::Closed,
            crashes,
            fence: None,
            asked: Vec::new(),
            requests: Vec::new(),
            demoted: false,
            asleep: false,
            opening: false,
        };
        let mut nodes = [node(0), node(1)];
        for node in &mut nodes {
            // Ceilings are not explored.
            node.disk.peer.ceiling = Some(node.disk.ceiling);
        }
        let mut world = Self { nodes, wire: Vec::new(), faults, orders };
        for i in 0..2 {
            world.take(Step::Start(i, true), sabotage).unwrap();
        }
        for i in 0..2 {
            world.take(Step::Read(i), sabotage).unwrap();
            world.take(Step::Synced(i), sabotage).unwrap();
        }
        world
    }

    /// The same, with the first node open in its first term.
    pub(crate) fn opened(mut self, sabotage: Sabotage) -> Self {
        let orders = self.orders;
        self.take(Step::Command(0, Command::PromoteAuto), sabotage).unwrap();
        while let Some(step) = crate::search::next_fair(&self, true, sabotage) {
            self.take(step, sabotage).unwrap();
        }
        assert_eq!(self.nodes[0].gate, Gate::Open);
        self.orders = orders;
        self
    }

    /// Every step that may come next.
    pub(crate) fn steps(&self, sabotage: Sabotage) -> Vec<Step> {
        let mut steps = Vec::new();
        for (i, message) in self.wire.iter().enumerate() {
            let (Message::Request { to, .. } | Message::Answer { to, .. }) = &message.1;
            if self.writes_alone(*to) {
                continue;
            }
            steps.push(Step::Deliver(i));
            if self.faults > 0 {
                steps.extend([Step::Double(i), Step::Lose(i)]);
                if matches!(message.1, Message::Request { .. }) {
                    steps.push(Step::Reflect(i));
                }
            }
        }
        for (i, node) in self.nodes.iter().enumerate() {
            if node.pair.is_none() {
                steps.extend([Step::Start(i, true), Step::Start(i, false)]);
                continue;
            }
            if node.writing.is_some() {
                steps.push(Step::Synced(i));
            }
            if node.crashes > 0 {
                steps.push(Step::Crash(i, false));
                steps.extend(node.writing.is_some().then_some(Step::Crash(i, true)));
            }
            if self.writes_alone(i) {
                continue;
            }
            steps.extend(
                COMMANDS
                    .into_iter()
                    .filter(|&command| self.matters(i, command))
                    .map(|command| Step::Command(i, command)),
            );
            steps.extend((0..node.asked.len()).map(|k| Step::TimeOut(i, k)));
            steps.push(Step::Tick(i));
            if self.reads(i) {
                steps.push(Step::Read(i));
            }
            if node.gate == Gate::Closing {
                steps.push(Step::Closed(i));
            }
            if node.opening && sabotage == Sabotage::OpensLate {
                steps.push(Step::LateOpening(i));
            }
            match &node.fence {
                Some(fence) if fence.done => steps.push(Step::FenceEnds(i)),
                Some(_) => {
                    steps.extend([Step::FenceFails(i), Step::FenceWorks(i, false)]);
                    steps.extend(self.nodes[1 - i].writing.is_some().then_some(Step::FenceWorks(i, true)));
                }
                None => {}
            }
        }
        steps
    }

    /// A write that nothing waits for (what was heard, a demotion, a new boot) is over before anything else
    /// happens to its node; or a crash cuts it.
    fn writes_alone(&self, i: usize) -> bool {
        let node = &self.nodes[i];
        let Some(pair) = &node.pair else { return false };
        let status = pair.status();
        node.writing.is_some()
            && node.requests.is_empty()
            && status.role != ha::pair::Role::FencePending
            && !status.switching
    }

    /// By hand and `--auto` are the same where nobody was demoted, and neither does anything to an open gate.
    fn matters(&self, i: usize, command: Command) -> bool {
        let Some(pair) = &self.nodes[i].pair else { return false };
        let status = pair.status();
        let open = status.role == ha::pair::Role::Active;
        if orders(command) && self.orders == 0 {
            return false;
        }
        match command {
            Command::Promote => !open && status.demoted,
            Command::PromoteAuto | Command::PromoteKeep => !open,
            Command::Switchover => open && !status.switching,
            Command::Demote => !status.demoted,
            _ => status.role != ha::pair::Role::Standby || status.switching,
        }
    }

    /// Whether a read of the peer's status could tell node `i` anything that it does not know. One that
    /// could not is left out: it changes nothing, now or late, since everything that it tells only rises.
    pub(crate) fn reads(&self, i: usize) -> bool {
        let (Some(own), Some(peer)) = (&self.nodes[i].pair, &self.nodes[1 - i].pair) else { return false };
        let heard = own.stored().peer.heard.is_some_and(|heard| heard.own_boot == NOW);
        let news = peer.stored().opened > own.stored().promise;
        !self.writes_alone(i)
            && self.nodes[1 - i].writing.is_none()
            && (!heard || news || self.nodes[i].asked.contains(&Ask::Status))
    }

    /// Whether a node has promised a term above the bound.
    pub(crate) fn is_beyond(&self, counter_max: u64) -> bool {
        let promises = self.nodes.iter().filter_map(|node| node.pair.as_ref()?.stored().promise.as_ref());
        promises.into_iter().any(|term| term.counter > counter_max)
    }

    /// Carries out a step, and drops what cannot matter any more.
    pub(crate) fn take(&mut self, step: Step, sabotage: Sabotage) -> Result<(), Violation> {
        self.carry(step, sabotage)?;
        for node in &mut self.nodes {
            let Some(pair) = &node.pair else { continue };
            let status = pair.status();
            let promoting = status.role == ha::pair::Role::FencePending;
            node.asked.retain(|ask| match ask {
                Ask::Close { term, .. } => promoting && status.promise.as_ref() == Some(term),
                _ => status.switching,
            });
        }
        if sabotage == Sabotage::None {
            for k in (0..self.wire.len()).rev() {
                if self.is_dead(&self.wire[k].1) {
                    let (_, message) = self.wire.remove(k);
                    self.proves_dead(message)?;
                }
            }
        }
        Ok(())
    }

    /// Whether a message speaks of a term that both sides have left behind for good: on disk and in memory.
    /// Such a message is taken out, once [`Self::proves_dead`] has seen that nobody listens to it.
    fn is_dead(&self, message: &Message) -> bool {
        let left = |i: usize, term: Option<&ha::term::Term>, or_there: bool| {
            let node = &self.nodes[i];
            let promises = [Some(&node.disk), node.pair.as_ref().map(Pair::stored)];
            promises.into_iter().flatten().all(|stored| {
                let promise = stored.promise.as_ref();
                promise > term || or_there && promise == term
            })
        };
        let switching = |i: usize| self.nodes[i].pair.as_ref().is_some_and(|pair| pair.status().switching);
        match message {
            Message::Request { to, request } => match &request.ask {
                Ask::Close { term, .. } => left(1 - to, Some(term), false) && left(*to, Some(term), true),
                Ask::TakeOver { promise } => !switching(1 - to) && left(*to, promise.as_ref(), false),
                Ask::Status => true,
            },
            Message::Answer { to, ask, said } => match &said.verdict {
                Verdict::ClosedFor(term) | Verdict::Refused { term, .. } | Verdict::TookOver(term) => {
                    left(*to, Some(term), false)
                }
                Verdict::NotTakenOver => !switching(*to),
                Verdict::NotForMe(_) => match ask {
                    Ask::Close { term, .. } => left(*to, Some(term), false),
                    _ => !switching(*to),
                },
                _ => true,
            },
        }
    }

    /// Delivers a dead message to a copy: it must change nothing but what is known of the peer.
    fn proves_dead(&self, message: Message) -> Result<(), Violation> {
        let (Message::Request { to, .. } | Message::Answer { to, .. }) = &message;
        let to = *to;
        let Some(pair) = &self.nodes[to].pair else { return Ok(()) };
        let before = pair.status();
        let mut copy = self.clone();
        copy.wire.clear();
        copy.deliver(message, Sabotage::None)?;
        let after = copy.nodes[to].pair.as_ref().map(Pair::status);
        let heals = after.as_ref().is_some_and(|after| after.promise != before.promise);
        if after.as_ref() == Some(&before) || heals {
            Ok(())
        } else {
            Err("a message of a past term matters".into())
        }
    }

    fn carry(&mut self, step: Step, sabotage: Sabotage) -> Result<(), Violation> {
        match step {
            Step::Command(i, command) => {
                self.orders -= u8::from(orders(command) && self.orders > 0);
                match command {
                    Command::Switchover => self.nodes[1 - i].asleep = false,
                    Command::Demote | Command::DemoteAuto => {}
                    _ => self.nodes[i].asleep = false,
                }
                if command == Command::Promote {
                    self.nodes[i].demoted = false;
                }
                let command = match command {
                    Command::PromoteAuto if sabotage == Sabotage::AutoIsHand => Command::Promote,
                    command => command,
                };
                self.event(i, Event::Command(command_id(command), command), sabotage)?;
                if command == Command::Switchover && self.nodes[i].gate == Gate::Open {
                    let asked = &mut self.nodes[i].asked;
                    if !asked.contains(&Ask::Status) {
                        asked.push(Ask::Status);
                    }
                }
                Ok(())
            }
            Step::Deliver(k) => {
                let (_, message) = self.wire.remove(k);
                self.deliver(message, sabotage)
            }
            Step::Double(k) => {
                self.faults -= 1;
                let (_, message) = self.wire[k].clone();
                self.deliver(message, sabotage)
            }
            Step::Lose(k) => {
                self.faults -= 1;
                self.wire.remove(k);
                Ok(())
            }
            Step::Reflect(k) => {
                self.faults -= 1;
                let (_, message) = self.wire.remove(k);
                let Message::Request { to, request } = message else { return Ok(()) };
                self.reflect(1 - to, request, sabotage)
            }
            Step::TimeOut(i, k) => {
                let ask = self.nodes[i].asked.remove(k);
                if let (Ask::Close { term, .. }, Sabotage::SilenceIsProof) = (&ask, sabotage) {
                    let verdict = Verdict::ClosedFor(term.clone());
                    return self.forge(i, ask, verdict, sabotage);
                }
                self.event(i, Event::Unanswered(ask), sabotage)
            }
            Step::Read(i) => {
                let (own, peer) = (&self.nodes[i], &self.nodes[1 - i].pair);
                let request = Request {
                    version: ha::message::VERSION,
                    from: own.setup.node.clone(),
                    host: own.disk.host,
                    to: own.setup.peer.clone(),
                    ask: Ask::Status,
                };
                let Some(mut peer) = peer.clone() else { return Ok(()) };
                for action in peer.handle(Event::Request(RequestId(0), request), 0) {
                    if let Action::Answer(_, mut said) = action {
                        disguise(&mut said, sabotage);
                        self.deliver(Message::Answer { to: i, ask: Ask::Status, said }, sabotage)?;
                    }
                }
                Ok(())
            }
            Step::Synced(i) => {
                let node = &mut self.nodes[i];
                if let Some(written) = node.writing.take() {
                    node.disk = written;
                }
                if sabotage == Sabotage::TellsBeforeSynced {
                    return Ok(());
                }
                self.event(i, Event::Stored, sabotage)
            }
            Step::Closed(i) => {
                self.nodes[i].gate = Gate::Closed;
                if sabotage == Sabotage::TellsBeforeClosed {
                    return Ok(());
                }
                self.event(i, Event::GateClosed, sabotage)
            }
            Step::Crash(i, written) => {
                self.nodes[i].crashes -= 1;
                self.die(i, written);
                Ok(())
            }
            Step::Start(i, same_boot) => self.start(i, same_boot, sabotage),
            Step::FenceWorks(i, written) => {
                self.die(1 - i, written);
                if let Some(fence) = &mut self.nodes[i].fence {
                    fence.done = true;
                }
                Ok(())
            }
            Step::FenceEnds(i) => self.fence_ends(i, true, sabotage),
            Step::FenceFails(i) => {
                let confirmed = sabotage == Sabotage::FailureIsFence;
                self.fence_ends(i, confirmed, sabotage)
            }
            Step::Tick(i) => self.event(i, Event::Tick, sabotage),
            Step::LateOpening(i) => {
                self.nodes[i].opening = false;
                self.open(i)
            }
        }
    }

    fn fence_ends(&mut self, i: usize, confirmed: bool, sabotage: Sabotage) -> Result<(), Violation> {
        let Some(Fence { term, level, .. }) = self.nodes[i].fence.take() else { return Ok(()) };
        self.event(i, Event::Fenced { term, level, device: 0, confirmed }, sabotage)
    }

    /// The process is gone, with its gate, its questions and its fence device.
    pub(crate) fn die(&mut self, i: usize, written: bool) {
        let node = &mut self.nodes[i];
        if let Some(writing) = node.writing.take().filter(|_| written) {
            node.disk = writing;
        }
        node.pair = None;
        node.gate = Gate::Closed;
        node.fence = None;
        node.opening = false;
        node.asked.clear();
        node.requests.clear();
        self.wire.retain(|message| !matches!(&message.1, Message::Answer { to, .. } if *to == i));
    }

    fn start(&mut self, i: usize, same_boot: bool, sabotage: Sabotage) -> Result<(), Violation> {
        let node = &mut self.nodes[i];
        node.asleep |= !same_boot;
        if !same_boot && sabotage != Sabotage::ForgetsBoot {
            node.disk.boot = BEFORE;
            // It matters to one who may shoot.
            if let (Some(heard), false) = (&mut node.disk.peer.heard, node.setup.levels.is_peer_only()) {
                heard.own_boot = BEFORE;
            }
        }
        let incarnation = Incarnation { boot: NOW, started_ns: 0 };
        let (pair, actions) = Pair::start(node.setup.clone(), node.disk.clone(), incarnation, 0);
        node.pair = Some(pair);
        self.carry_out(i, actions, sabotage)
    }

    fn event(&mut self, i: usize, event: Event, sabotage: Sabotage) -> Result<(), Violation> {
        let Some(pair) = &mut self.nodes[i].pair else { return Ok(()) };
        let actions = pair.handle(event, 0);
        self.carry_out(i, actions, sabotage)
    }

    fn deliver(&mut self, message: Message, sabotage: Sabotage) -> Result<(), Violation> {
        match message {
            Message::Request { to, request } => {
                if self.nodes[to].pair.is_none() {
                    return Ok(());
                }
                self.nodes[to].asleep &= !matches!(request.ask, Ask::TakeOver { .. });
                let id = RequestId(fingerprint(&request.ask));
                let requests = &mut self.nodes[to].requests;
                if !requests.iter().any(|known| known.0 == id) {
                    requests.push((id, request.ask.clone()));
                }
                self.event(to, Event::Request(id, request), sabotage)
            }
            Message::Answer { to, ask, said } => {
                self.nodes[to].asked.retain(|asked| *asked != ask);
                let mut said = said;
                match (sabotage, &said.verdict) {
                    (Sabotage::RefusalIsProof, Verdict::Refused { term, .. }) => {
                        said.verdict = Verdict::ClosedFor(term.clone());
                    }
                    (Sabotage::TakesLateAnswers, Verdict::ClosedFor(_)) => {
                        let promise =
                            self.nodes[to].pair.as_ref().and_then(|pair| pair.stored().promise.clone());
                        said.verdict = promise.map_or(Verdict::Status, Verdict::ClosedFor);
                    }
                    (Sabotage::PromiseIsOpened, _) => {
                        said.opened = said.opened.take().max(said.promise.clone())
                    }
                    _ => {}
                }
                let answer = Box::new(Answer { said: *said, facts: Facts::default() });
                self.event(to, Event::Answered { ask, answer, sent_ns: 0 }, sabotage)
            }
        }
    }

    /// The request comes back to its own sender, who answers it.
    fn reflect(&mut self, i: usize, request: Request, sabotage: Sabotage) -> Result<(), Violation> {
        let Some(pair) = &mut self.nodes[i].pair else { return Ok(()) };
        let ask = request.ask.clone();
        if let (Sabotage::PeerIsOneself, Ask::Close { term, .. }) = (sabotage, &ask) {
            let verdict = Verdict::ClosedFor(term.clone());
            return self.forge(i, ask, verdict, sabotage);
        }
        let actions = pair.handle(Event::Request(RequestId(0), request), 0);
        for action in actions {
            if let Action::Answer(_, said) = action {
                self.send(Message::Answer { to: i, ask: ask.clone(), said });
            }
        }
        Ok(())
    }

    /// Planted: an answer of the peer that it never gave.
    fn forge(&mut self, i: usize, ask: Ask, verdict: Verdict, sabotage: Sabotage) -> Result<(), Violation> {
        let peer = &self.nodes[1 - i];
        let said = Said {
            version: ha::message::VERSION,
            node: peer.setup.node.clone(),
            host: peer.disk.host,
            incarnation: Incarnation { boot: BootId(0), started_ns: 0 },
            promise: None,
            opened: None,
            gate: ha::message::GateState::Closed,
            promoting: false,
            unfit: None,
            ceiling: Ceiling(u64::MAX),
            copied: None,
            fencers: peer.setup.levels.clone(),
            verdict,
        };
        let answer = Box::new(Answer { said, facts: Facts::default() });
        self.event(i, Event::Answered { ask, answer, sent_ns: 0 }, sabotage)
    }

    fn send(&mut self, message: Message) {
        let key = fingerprint(&message);
        if let Err(place) = self.wire.binary_search_by_key(&key, |known| known.0) {
            self.wire.insert(place, (key, message));
        }
    }

    fn open(&mut self, i: usize) -> Result<(), Violation> {
        self.nodes[i].gate = Gate::Open;
        if self.nodes[1 - i].gate != Gate::Closed {
            return Err("two nodes are open".into());
        }
        if self.nodes[i].asleep {
            return Err("a node opened by itself on another boot".into());
        }
        if self.nodes[i].demoted {
            return Err("an operator's demotion was undone".into());
        }
        Ok(())
    }

    fn carry_out(&mut self, i: usize, actions: Vec<Action>, sabotage: Sabotage) -> Result<(), Violation> {
        for action in actions {
            match action {
                Action::Store(stored) => {
                    self.nodes[i].writing = Some(*stored);
                    if sabotage == Sabotage::TellsBeforeSynced {
                        self.event(i, Event::Stored, sabotage)?;
                    }
                }
                Action::OpenGate { .. } if sabotage == Sabotage::OpensLate => self.nodes[i].opening = true,
                Action::OpenGate { .. } => self.open(i)?,
                Action::CloseGate if self.nodes[i].gate == Gate::Closed => {
                    // Only with a late opening.
                    self.event(i, Event::GateClosed, sabotage)?;
                }
                Action::CloseGate => {
                    self.nodes[i].gate = Gate::Closing;
                    if sabotage == Sabotage::TellsBeforeClosed {
                        self.event(i, Event::GateClosed, sabotage)?;
                    }
                }
                Action::Ask(request) if request.ask == Ask::Status => {}
                Action::Ask(request) => {
                    if !self.nodes[i].asked.contains(&request.ask) {
                        self.nodes[i].asked.push(request.ask.clone());
                    }
                    self.send(Message::Request { to: 1 - i, request });
                }
                Action::Answer(id, mut said) => {
                    let requests = &mut self.nodes[i].requests;
                    let Some(place) = requests.iter().position(|request| request.0 == id) else { continue };
                    let (_, ask) = requests.remove(place);
                    disguise(&mut said, sabotage);
                    self.send(Message::Answer { to: 1 - i, ask, said });
                }
                Action::Fence { term, level, .. } => {
                    self.nodes[i].fence = Some(Fence { term, level, done: false });
                }
                Action::CancelFence(_) => self.nodes[i].fence = None,
                Action::Tell(id, Outcome::Closed) if id == command_id(Command::Demote) => {
                    let node = &mut self.nodes[i];
                    node.demoted |= node.pair.as_ref().is_some_and(|pair| pair.stored().demoted);
                }
                Action::GiveAddress(true) => self.event(i, Event::Tick, sabotage)?,
                Action::Tell(..)
                | Action::RaiseCeiling(_)
                | Action::GiveAddress(false)
                | Action::Because(_)
                | Action::Warn(_)
                | Action::Audit(_) => {}
            }
        }
        Ok(())
    }
}
