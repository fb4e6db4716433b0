//! What the state directory keeps. Whoever writes it (`crates/durable`) locks, checks and syncs.

use serde::{Deserialize, Serialize};

use crate::ceiling::{Ceiling, Stamped};
use crate::fence::Levels;
use crate::identity::{BootId, HostId, Incarnation};
use crate::term::Term;

/// The durable state of a node of a pair.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Stored {
    /// This host.
    pub host: HostId,
    /// The boot on which this was written.
    pub boot: BootId,
    /// The highest term promised, to oneself or to the peer. Never falls.
    pub promise: Option<Term>,
    /// The highest term known to have been opened, by this node or by the peer. Never falls.
    pub opened: Option<Term>,
    /// This node was open and has not closed on purpose since: a restart may resume.
    pub active: bool,
    /// This node was the last one to be open, on this boot, and has given the peer no promise since: nobody
    /// can have been promoted by its answer.
    #[serde(default)]
    pub last_open: bool,
    /// Demoted by hand: only a `promote` by hand lifts it.
    pub demoted: bool,
    /// `ha hold`: no promotion, no fencing.
    pub held: bool,
    /// Own token ceiling, stored before tokens below it are issued.
    pub ceiling: Stamped,
    /// What is known of the peer.
    pub peer: Peer,
}

/// What is known of the peer.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
pub struct Peer {
    /// Its host.
    pub host: Option<HostId>,
    /// Its fence levels.
    pub fencers: Option<Levels>,
    /// The highest term that it has said it promised, if that is above the own promise.
    pub promise: Option<Term>,
    /// Its last authenticated answer.
    pub heard: Option<Heard>,
    /// Its ceiling, as it was copied.
    pub ceiling: Option<Stamped>,
}

/// When the peer was last heard.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Heard {
    /// The boot and the process that answered.
    pub incarnation: Incarnation,
    /// The own boot on which the answer came.
    pub own_boot: BootId,
    /// CLOCK_BOOTTIME, ns, before the question was sent.
    pub at_ns: u64,
}

impl Stored {
    /// The state of a node that has never run. Its tokens begin above `ceiling`: the token of the wall clock
    /// or, where a server without a peer ran before, the ceiling of its token file.
    pub fn new(host: HostId, boot: BootId, ceiling: Ceiling, now_ns: u64) -> Self {
        Self {
            host,
            boot,
            promise: None,
            opened: None,
            active: false,
            last_open: false,
            demoted: false,
            held: false,
            ceiling: Stamped { ceiling, boot, at_ns: now_ns },
            peer: Peer::default(),
        }
    }

    /// Promises `term` to the peer, if it is above everything promised: nothing is resumed after that.
    /// Returns whether `term` is the promise now. The node says so only when this is synced and its gate is
    /// closed; its agent, when this is synced and the process is gone.
    pub fn promise_to_peer(&mut self, term: &Term) -> bool {
        if self.promise.as_ref() < Some(term) {
            self.set_promise(term);
            self.active = false;
            self.last_open = false;
        }
        self.promise.as_ref() == Some(term)
    }

    /// A higher promise. What the peer has promised is of no use once the own promise is above it.
    pub(crate) fn set_promise(&mut self, term: &Term) {
        debug_assert!(self.promise.as_ref() < Some(term));
        self.promise = Some(term.clone());
        self.peer.promise.take_if(|promise| *promise <= *term);
    }

    /// The counter of the next own promotion: above every term that this node has promised, or has heard of.
    pub(crate) fn next_counter(&self) -> u64 {
        let counter = |term: &Option<Term>| term.as_ref().map_or(0, |term| term.counter);
        counter(&self.promise).max(counter(&self.opened)).max(counter(&self.peer.promise)) + 1
    }
}
