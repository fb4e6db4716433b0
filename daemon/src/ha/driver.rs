//! Feeds the pair's state machine, and does what it says.
//!
//! One task owns the state machine and the gate: a promise and the opening of the gate are never apart. What
//! may wait (the disk, the peer, a fencer) runs elsewhere and comes back as an event.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use agent::Link;
use audit::{NodeEvent, NodeWhat, Recorder};
use ha::ceiling::{Ceiling, STEP};
use ha::fence::Fencer;
use ha::message::{Answer, Ask, Request, Said};
use ha::pair::{Action, Audit, Command, CommandId, Event, Outcome, Pair, Reason, RequestId, Setup, Warning};
use ha::stored::Stored;
use ha::term::Term;
use locks::TokenSource;
use protocol::Token;
use threads::Workers;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::AbortHandle;
use tokio::time::{Instant, MissedTickBehavior, interval, sleep_until};
use tracing::{error, info, warn};

use super::facts::FactsSource;
use super::fencers;
use super::metrics::{HaMetrics, Transition};
use super::seen::{Answered, Seen};
use super::state::StateDir;
use crate::clock;
use crate::gate::{FOREVER, Gate};
use crate::shard::Wakers;

/// How long the peer has to answer: 200 ms for its server, then to kill, lock and sync.
const ANSWER_TIME_MAX: Duration = Duration::from_secs(1);

/// How often the room below the token ceiling and the own readiness are looked at.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// What comes to the driver from outside.
pub(super) enum Order {
    /// Of a person or a script.
    Command(Command, oneshot::Sender<Outcome>),
    /// Of the peer.
    Request(Request, oneshot::Sender<Answer>),
    /// The process shuts down; answered when the gate is closed.
    Stop,
}

/// What the driver works with.
pub(super) struct Parts {
    pub(super) setup: Arc<Setup>,
    pub(super) gate: Arc<Gate>,
    pub(super) tokens: Arc<TokenSource>,
    pub(super) wakers: Wakers,
    pub(super) peer: peer::Peer,
    pub(super) fence_timeout: Duration,
    pub(super) audit: Option<Recorder>,
    pub(super) facts: FactsSource,
    pub(super) metrics: Arc<HaMetrics>,
    /// Whether this node may serve, as `/readyz` has it.
    pub(super) is_ready: Box<dyn Fn() -> bool + Send>,
    pub(super) disk: Workers,
    /// The agent that keeps the health file, where there is one.
    pub(super) link: Option<Arc<Link>>,
}

/// The task that owns the node.
pub(super) struct Driver {
    parts: Parts,
    state: Arc<StateDir>,
    pair: Pair,
    orders: mpsc::Receiver<Order>,
    events: mpsc::UnboundedSender<Event>,
    happened: mpsc::UnboundedReceiver<Event>,
    seen: watch::Sender<Seen>,
    commands: HashMap<CommandId, oneshot::Sender<Outcome>>,
    requests: HashMap<RequestId, oneshot::Sender<Answer>>,
    next_id: u64,
    fences: Vec<(Term, AbortHandle)>,
    /// When the fence level that runs was asked.
    asked: Option<Instant>,
    ready: bool,
    /// The last token before the ceiling was wanted higher.
    last_token: Token,
}

impl Driver {
    /// A node that starts, and what it does first.
    pub(super) fn new(
        parts: Parts,
        state: StateDir,
        pair: Pair,
        orders: mpsc::Receiver<Order>,
    ) -> (Self, watch::Receiver<Seen>) {
        let (events, happened) = mpsc::unbounded_channel();
        let seen = Seen {
            status: pair.status(),
            stored: pair.stored().clone(),
            reason: None,
            last_fence: None,
            silence: None,
            answer: None,
            own_facts: parts.facts.now(),
            fencers: parts.setup.levels.to_string(),
            gives_address: false,
        };
        let (seen, is_seen) = watch::channel(seen);
        let driver = Self {
            last_token: parts.tokens.last(),
            parts,
            state: Arc::new(state),
            pair,
            orders,
            events,
            happened,
            seen,
            commands: HashMap::new(),
            requests: HashMap::new(),
            next_id: 0,
            fences: Vec::new(),
            asked: None,
            ready: true,
        };
        (driver, is_seen)
    }

    /// Runs for as long as the process.
    pub(super) async fn run(mut self, first: Vec<Action>) {
        self.act(first);
        let mut looks = interval(LOOK_EVERY);
        looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            let due_ns = self.pair.deadline_ns().saturating_sub(clock::boot_ns());
            let due = Instant::now() + Duration::from_nanos(due_ns);
            tokio::select! {
                biased;
                Some(event) = self.happened.recv() => self.handle(event),
                Some(order) = self.orders.recv() => self.take(order),
                () = sleep_until(due) => self.handle(Event::Tick),
                _ = looks.tick() => self.look(),
            }
        }
    }

    fn take(&mut self, order: Order) {
        self.next_id += 1;
        match order {
            Order::Command(command, reply) => {
                let id = CommandId(self.next_id);
                self.commands.insert(id, reply);
                self.handle(Event::Command(id, command));
            }
            Order::Request(request, reply) => {
                let id = RequestId(self.next_id);
                self.requests.insert(id, reply);
                self.handle(Event::Request(id, request));
            }
            Order::Stop => self.handle(Event::Stopping),
        }
    }

    /// What nobody tells: how near the ceiling is, and whether this node is ready.
    fn look(&mut self) {
        self.commands.retain(|_, reply| !reply.is_closed());
        self.requests.retain(|_, reply| !reply.is_closed());
        let ready = (self.parts.is_ready)();
        if let Some(link) = &self.parts.link {
            link.set_ready(ready);
        }
        if std::mem::replace(&mut self.ready, ready) != ready {
            self.handle(Event::Ready(ready));
        }
        let (now, last) = (Token::from_unix_ns(clock::unix_ns()), self.parts.tokens.last());
        let Some(ceiling) = self.parts.tokens.ceiling() else { return };
        let from = now.max(last).0;
        if last != self.last_token && ceiling.0.saturating_sub(from) < STEP {
            let wanted = Ceiling(from.saturating_add(2 * STEP));
            self.handle(Event::CeilingWanted(wanted));
        }
    }

    fn handle(&mut self, event: Event) {
        let asked = match &event {
            Event::Answered { answer, sent_ns, .. } => Some(Answered::now((**answer).clone(), *sent_ns)),
            _ => None,
        };
        let own_facts = asked.as_ref().map(|_| self.parts.facts.now());
        let actions = self.pair.handle(event, clock::boot_ns());
        self.act(actions);
        self.seen.send_modify(|seen| {
            seen.status = self.pair.status();
            seen.stored = self.pair.stored().clone();
            if let (Some(answered), Some(own)) = (asked, own_facts) {
                self.parts.metrics.peer_clock_is_ahead_by(answered.clock_ahead_ns);
                (seen.answer, seen.own_facts, seen.silence) = (Some(answered), own, None);
            }
        });
        self.parts.metrics.show(&self.seen.borrow());
    }

    /// Does what the state machine says, in its order.
    fn act(&mut self, actions: Vec<Action>) {
        for action in actions {
            match action {
                Action::Store(stored) => self.store(*stored),
                Action::OpenGate { term, floor, ceiling } => self.open(&term, floor, ceiling),
                Action::CloseGate => self.close(),
                Action::RaiseCeiling(ceiling) => {
                    self.last_token = self.parts.tokens.last();
                    self.parts.tokens.raise_ceiling(Token(ceiling.0));
                    self.parts.wakers.wake();
                }
                Action::Ask(request) => {
                    if matches!(request.ask, Ask::Close { .. }) {
                        self.asked = Some(Instant::now());
                    }
                    self.ask(request);
                }
                Action::Answer(id, said) => self.answer(id, *said),
                Action::Fence { term, level, device } => {
                    self.asked = Some(Instant::now());
                    self.fence(term, level, device);
                }
                Action::CancelFence(of) => self.fences.retain(|(term, fence)| {
                    let is_over = *term == of;
                    if is_over {
                        fence.abort();
                    }
                    !is_over
                }),
                Action::GiveAddress(gives) => {
                    self.seen.send_modify(|seen| seen.gives_address = gives);
                    // At once, and not at the next look.
                    if let Some(link) = self.parts.link.as_ref().filter(|_| gives) {
                        link.set_ready(false);
                    }
                }
                Action::Because(reason) => self.seen.send_modify(|seen| seen.reason = reason),
                Action::Tell(id, outcome) => {
                    if let Some(reply) = self.commands.remove(&id) {
                        // Who asked may have gone.
                        let _ = reply.send(outcome);
                    }
                }
                Action::Warn(warning) => self.warn(&warning),
                Action::Audit(event) => self.audit(event),
            }
        }
    }

    fn store(&mut self, stored: Stored) {
        let (state, events) = (Arc::clone(&self.state), self.events.clone());
        let disk = self.parts.disk.clone();
        tokio::spawn(async move {
            let written = disk.run(move || state.store(&stored)).await;
            let event = match written {
                Ok(Ok(())) => Event::Stored,
                Ok(Err(fault)) => {
                    error!("-ha-state {fault}");
                    Event::StoreFailed
                }
                Err(problem) => {
                    error!(%problem, "the state directory was not written");
                    Event::StoreFailed
                }
            };
            // The driver outlives its work, but not the process.
            let _ = events.send(event);
        });
    }

    fn open(&mut self, term: &Term, floor: Ceiling, ceiling: Ceiling) {
        self.parts.tokens.stay_above(Token(floor.0));
        self.parts.tokens.raise_ceiling(Token(ceiling.0));
        self.last_token = self.parts.tokens.last();
        self.parts.gate.open(FOREVER).expect("the state machine opens only after every shard has confirmed");
        self.parts.wakers.wake();
        self.parts.metrics.transition(Transition::Active);
        info!(%term, "active: the gate is open");
    }

    fn close(&mut self) {
        self.parts.gate.close();
        self.parts.wakers.wake();
        self.parts.metrics.transition(Transition::Standby);
        warn!("standby: the gate is closed, and every session is ended");
        let (gate, events) = (Arc::clone(&self.parts.gate), self.events.clone());
        tokio::spawn(async move {
            gate.closed_everywhere().await;
            let _ = events.send(Event::GateClosed);
        });
    }

    fn ask(&self, request: Request) {
        let (peer, events, seen) = (self.parts.peer.clone(), self.events.clone(), self.seen.clone());
        let own = self.pair.stored().host;
        let expected = self.parts.setup.peer.clone();
        tokio::spawn(async move {
            let sent_ns = clock::boot_ns();
            // With several addresses, one that is our own must not hide another's answer.
            let counts = move |answer: &Answer| {
                if answer.said.host == own {
                    Err("this node itself answers there: it may be the address that moves".to_owned())
                } else if answer.said.node != expected {
                    Err(format!("node {} answers there, not {expected}", answer.said.node))
                } else {
                    Ok(())
                }
            };
            let event = match peer.ask(&request, ANSWER_TIME_MAX, counts).await {
                Ok(answer) => Event::Answered { ask: request.ask, answer: Box::new(answer), sent_ns },
                Err(none) => {
                    seen.send_modify(|seen| seen.silence = Some(none.to_string()));
                    Event::Unanswered(request.ask)
                }
            };
            let _ = events.send(event);
        });
    }

    fn answer(&mut self, id: RequestId, said: Said) {
        if let Some(reply) = self.requests.remove(&id) {
            let _ = reply.send(Answer { said, facts: self.parts.facts.now() });
        }
    }

    fn fence(&mut self, term: Term, level: usize, device: usize) {
        let levels = &self.parts.setup.levels;
        let Some(Fencer::Exec(path)) = levels.levels().get(level).and_then(|level| level.get(device)) else {
            return warn!(level, device, "no such fencer");
        };
        let (path, node, limit) = (Arc::clone(path), self.parts.setup.peer.clone(), self.parts.fence_timeout);
        let (events, seen, of) = (self.events.clone(), self.seen.clone(), term.clone());
        warn!(%term, level, fencer = %path.display(), "fencing the peer");
        let task = tokio::spawn(async move {
            let fenced = fencers::fence(&path, &node, limit).await;
            let confirmed = fenced.is_ok();
            let result = match &fenced {
                Ok(()) => format!("{} confirms that {node} can no longer act", path.display()),
                Err(problem) => problem.clone(),
            };
            if confirmed {
                info!(%term, level, "{result}");
            } else {
                error!(%term, level, "{result}");
            }
            seen.send_modify(|seen| seen.last_fence = Some(result));
            let _ = events.send(Event::Fenced { term, level, device, confirmed });
        });
        self.fences.retain(|(_, fence)| !fence.is_finished());
        self.fences.push((of, task.abort_handle()));
    }

    fn warn(&self, warning: &Warning) {
        self.parts.metrics.warned();
        warn!("{warning}");
    }

    fn audit(&mut self, event: Audit) {
        let (what, term, by, result) = match event {
            Audit::Promoted { term, by, failed } => {
                let result = failed.as_ref().map_or_else(|| "open".into(), Reason::to_string);
                (NodeWhat::Promoted, Some(term), word(&by), result)
            }
            Audit::Demoted { term, by } => (NodeWhat::Demoted, term, word(&by), "closed".into()),
            Audit::Fence { term, level, confirmed } => {
                let took = self.asked.map(|asked| asked.elapsed());
                self.parts.metrics.fenced(level, confirmed, took);
                let result = if confirmed { "confirmed" } else { "not confirmed" };
                (NodeWhat::Fence, Some(term), format!("level {level}"), result.into())
            }
            Audit::Hold(held) => {
                let result = if held { "under hold" } else { "no longer under hold" };
                (NodeWhat::Hold, None, "operator".into(), result.into())
            }
        };
        if let Some(audit) = &mut self.parts.audit {
            let term = term.map(|term| term.to_string());
            audit.record_node(NodeEvent { time_unix_ns: clock::unix_ns(), what, term, by, result });
        }
    }
}

/// The word that stands for a value in JSON.
fn word(value: &impl serde::Serialize) -> String {
    match serde_json::to_value(value) {
        Ok(serde_json::Value::String(word)) => word,
        _ => "unknown".into(),
    }
}
