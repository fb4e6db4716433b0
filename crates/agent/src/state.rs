//! What the agent says from the disk, under the state lock: the lock is what a server needs before it
//! reads its state, so whoever holds it speaks for a node that has no server.

use std::path::{Path, PathBuf};
use std::time::Duration;

use durable::{Lock, Record};
use ha::ceiling::{Ceiling, Stamped};
use ha::fence::Levels;
use ha::identity::{BootId, Incarnation};
use ha::message::{Answer, Ask, Facts, GateState, Refusal, Request, Said, Stranger, Unfit, VERSION, Verdict};
use ha::stored::Stored;
use ha::term::{NodeId, Term};

use crate::{clock, ports};

/// The exclusive lock of a state directory.
pub const LOCK_FILE: &str = "lock";

/// The record of a state directory: a [`Stored`].
pub const STATE_FILE: &str = "state";

/// What the record is told from others by.
pub const STATE_KIND: &str = "ha-state";

/// Why the agent says nothing.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Silence {
    /// It may pass: a server that starts, a listener that the kernel has not closed yet.
    #[error("{0}")]
    ForNow(String),
    /// It stays so.
    #[error("{0}")]
    Lasting(String),
}

/// What is the same for all answers.
#[derive(Debug, Clone)]
pub(crate) struct State {
    directory: PathBuf,
    node: NodeId,
    peer: NodeId,
    boot: BootId,
}

/// What is known of the server that was here last.
#[derive(Debug, Clone)]
pub(crate) struct Last {
    /// None since this boot: 0.
    pub(crate) started_ns: u64,
    pub(crate) fencers: Levels,
    /// Nobody may listen here.
    pub(crate) ports: Vec<u16>,
}

impl State {
    pub(crate) fn new(directory: &Path, node: NodeId, peer: NodeId, boot: BootId) -> Self {
        Self { directory: directory.into(), node, peer, boot }
    }

    fn record(&self) -> Record<Stored> {
        Record::new(self.directory.join(STATE_FILE), STATE_KIND)
    }

    fn read(&self) -> Result<Stored, Silence> {
        let stored = self.record().read().map_err(|fault| Silence::Lasting(fault.to_string()))?;
        stored.ok_or_else(|| {
            let directory = self.directory.display();
            Silence::Lasting(format!("{directory}: no state there: no server has run with this -ha-state"))
        })
    }

    /// Whether a server may be killed for this request: only for one that would not be refused afterwards.
    /// The record is replaced as a whole, so it is read without the lock.
    pub(crate) fn may_kill_for(&self, request: &Request) -> Result<(), Silence> {
        let stored = self.read()?;
        self.not_a_stranger(request, &stored)?;
        match &request.ask {
            Ask::Close { term, weak: false, .. } if stored.promise.as_ref() <= Some(term) => Ok(()),
            Ask::Close { weak: false, .. } => Err(Silence::Lasting("a higher term is promised".into())),
            _ => Err(Silence::Lasting("it was not asked for".into())),
        }
    }

    /// Answers in the place of a server. Nobody else has its state when this returns an answer, and what the
    /// answer says is on the disk. The lock is given back then: a server that starts waits for it.
    pub(crate) fn answer(&self, request: &Request, last: &Last) -> Result<Answer, Silence> {
        let for_now = |fault: &dyn ToString| Silence::ForNow(fault.to_string());
        let lock = Lock::take(&self.directory.join(LOCK_FILE), Duration::ZERO);
        let _lock = lock.map_err(|fault| for_now(&fault))?;
        match ports::listened_on(&last.ports) {
            Ok(None) => {}
            Ok(Some(port)) => {
                return Err(Silence::ForNow(format!(
                    "somebody listens on port {port}, who is no server of this agent"
                )));
            }
            Err(error) => {
                return Err(Silence::ForNow(format!("whether a server listens cannot be told: {error}")));
            }
        }
        let mut stored = self.read()?;
        self.not_a_stranger(request, &stored)?;
        let verdict = match &request.ask {
            Ask::Status => Verdict::Status,
            Ask::Close { term, weak, ceiling } => self.close(&mut stored, term, *weak, *ceiling)?,
            Ask::TakeOver { .. } => {
                return Err(Silence::Lasting("there is no server that could take over".into()));
            }
        };
        Ok(Answer { said: self.said(stored, verdict, last), facts: facts() })
    }

    /// Promises, synced, if the term is not below a promise.
    fn close(
        &self,
        stored: &mut Stored,
        term: &Term,
        weak: bool,
        ceiling: Ceiling,
    ) -> Result<Verdict, Silence> {
        let before = stored.clone();
        if !stored.promise_to_peer(term) {
            return Ok(Verdict::Refused { term: term.clone(), weak, why: Refusal::Promised });
        }
        if before.promise.as_ref() != Some(term) {
            // The peer's term begins at the higher of both ceilings.
            let known = stored.peer.ceiling.map_or(Ceiling::default(), |known| known.ceiling);
            let ceiling = ceiling.max(stored.ceiling.ceiling).max(known);
            stored.peer.ceiling = Some(Stamped { ceiling, boot: self.boot, at_ns: clock::boot_ns() });
        }
        if *stored != before {
            self.record().write(stored).map_err(|fault| Silence::Lasting(fault.to_string()))?;
        }
        Ok(Verdict::GoneFor(term.clone()))
    }

    /// Whoever is not the peer is told nothing.
    fn not_a_stranger(&self, request: &Request, stored: &Stored) -> Result<(), Silence> {
        let Request { version, from, host, to, ask } = request;
        let stranger = if *host == stored.host {
            Stranger::Myself
        } else if *from != self.peer || matches!(ask, Ask::Close { term, .. } if term.node != *from) {
            Stranger::OtherNode
        } else if *to != self.node {
            Stranger::MeansAnother
        } else if *version != VERSION {
            Stranger::OtherVersion
        } else if stored.peer.host.is_some_and(|known| known != *host) {
            Stranger::OtherHost
        } else {
            return Ok(());
        };
        Err(Silence::Lasting(format!("not the peer: {stranger}")))
    }

    fn said(&self, stored: Stored, verdict: Verdict, last: &Last) -> Said {
        let unfit = match &stored {
            Stored { held: true, .. } => Unfit::Held,
            Stored { demoted: true, .. } => Unfit::Demoted,
            _ => Unfit::NotReady,
        };
        Said {
            version: VERSION,
            node: self.node.clone(),
            host: stored.host,
            incarnation: Incarnation { boot: self.boot, started_ns: last.started_ns },
            promise: stored.promise,
            opened: stored.opened,
            gate: GateState::Closed,
            promoting: false,
            unfit: Some(unfit),
            ceiling: stored.ceiling.ceiling,
            copied: stored.peer.ceiling.map(|copied| copied.ceiling),
            fencers: last.fencers.clone(),
            verdict,
        }
    }
}

fn facts() -> Facts {
    Facts { wall_clock_ns: clock::unix_ns(), ..Facts::default() }
}
