//! What goes into the state machine of a pair, and what comes out.

use std::fmt;

use serde::Serialize;

use crate::ceiling::Ceiling;
use crate::fence::Levels;
use crate::message::{Answer, Ask, Refusal, Request, Said, Stranger, Unfit};
use crate::stored::Stored;
use crate::term::{NodeId, Term};

/// How a node is set up.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Setup {
    /// `-node-id`.
    pub node: NodeId,
    /// The id in `-peer`.
    pub peer: NodeId,
    /// `-fencer`.
    pub levels: Levels,
    /// Times.
    pub pace: Pace,
}

/// The times of a pair, all in ns.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Pace {
    /// Between two reads of the peer's status.
    pub read_every_ns: u64,
    /// Between a round of fencing that failed and the next.
    pub retry_ns: u64,
    /// `-fence-delay`: before the first level that is not the peer's answer, in each round. It differs
    /// between the nodes, so that two do not shoot each other.
    pub fence_delay_ns: u64,
    /// How long a switchover waits for the other node to open, before it is undone.
    pub take_over_ns: u64,
    /// How long the health file stays away when nobody says where the address is.
    pub address_ns: u64,
}

impl Default for Pace {
    fn default() -> Self {
        const S: u64 = 1_000_000_000;
        Self { read_every_ns: S, retry_ns: 5 * S, fence_delay_ns: 0, take_over_ns: 3 * S, address_ns: 10 * S }
    }
}

/// A number that the caller gives a command and finds in [`Action::Tell`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct CommandId(pub u64);

/// A number that the caller gives a peer's request and finds in [`Action::Answer`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct RequestId(pub u64);

/// What a person or a script wants.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Command {
    /// `monolock promote`.
    Promote,
    /// `monolock promote --auto`.
    PromoteAuto,
    /// `monolock promote --keep`, on the node that holds the address.
    PromoteKeep,
    /// `monolock promote --force-unfenced`.
    PromoteUnfenced,
    /// `monolock demote`.
    Demote,
    /// `monolock demote --auto`.
    DemoteAuto,
    /// `monolock switchover`.
    Switchover,
    /// `monolock ha hold`.
    Hold,
    /// `monolock ha unhold`.
    Unhold,
}

/// What has happened.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Event {
    /// A command.
    Command(CommandId, Command),
    /// A request of the peer, over its authenticated connection.
    Request(RequestId, Request),
    /// The peer answers `ask`, which was sent at `sent_ns` (CLOCK_BOOTTIME).
    Answered {
        /// What was asked.
        ask: Ask,
        /// What it says.
        answer: Box<Answer>,
        /// When the question was sent.
        sent_ns: u64,
    },
    /// No address of the peer gave an answer to this in time. An answer may still come later.
    Unanswered(Ask),
    /// A device of a fence level has ended.
    Fenced {
        /// As in [`Action::Fence`].
        term: Term,
        /// As in [`Action::Fence`].
        level: usize,
        /// As in [`Action::Fence`].
        device: usize,
        /// It confirms that the peer can no longer act. A timeout does not.
        confirmed: bool,
    },
    /// After [`Action::CloseGate`]: every shard has confirmed, no session is left.
    GateClosed,
    /// The state of the last [`Action::Store`] is synced.
    Stored,
    /// It could not be stored.
    StoreFailed,
    /// Tokens come near the ceiling, or the wall clock does: this one is wished for.
    CeilingWanted(Ceiling),
    /// Own readiness, whenever it changes. A node is ready until this says otherwise.
    Ready(bool),
    /// The process shuts down: the gate closes and never opens again. A restart resumes.
    Stopping,
    /// Time has passed, see [`Pair::deadline_ns`](super::Pair::deadline_ns).
    Tick,
}

/// What is to be done, in this order.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Action {
    /// Replace the durable state by this, and sync it. One at a time: the next comes after [`Event::Stored`].
    Store(Box<Stored>),
    /// Open the gate at once, in the same critical section as the event that led to it.
    OpenGate {
        /// The term.
        term: Term,
        /// Tokens begin above this.
        floor: Ceiling,
        /// No token above this is issued.
        ceiling: Ceiling,
    },
    /// Close the gate at once and end every session; [`Event::GateClosed`] says that it is done.
    CloseGate,
    /// Issue tokens up to this: it is stored.
    RaiseCeiling(Ceiling),
    /// Ask the peer, at all its addresses, for at most 1 s.
    Ask(Request),
    /// Answer a request of the peer.
    Answer(RequestId, Box<Said>),
    /// Run a device of a fence level against the peer.
    Fence {
        /// The promotion that it is for.
        term: Term,
        /// The level, counted from 0. Level 0 is the peer's answer and never comes here.
        level: usize,
        /// The device of the level, counted from 0.
        device: usize,
    },
    /// Stop all fence devices of this promotion that still run.
    CancelFence(Term),
    /// Take the health file away, so that the address moves; or let it be as health has it again.
    GiveAddress(bool),
    /// Why this node is not open, for `status`, or `None` when it is.
    Because(Option<Reason>),
    /// The end of a command, as far as it waits.
    Tell(CommandId, Outcome),
    /// For log and metrics.
    Warn(Warning),
    /// For the audit log.
    Audit(Audit),
}

/// How a command ended.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Outcome {
    /// The gate is open in this term.
    Open(Term),
    /// Demoted: closed, and stored.
    Closed,
    /// The other node is open in this term.
    SwitchedOver(Term),
    /// Under hold, or no longer.
    Held(bool),
    /// Nothing was done, or it was undone.
    Refused(Reason),
    /// Nobody knows.
    Unknown(Reason),
    /// It goes on: the fence has not succeeded yet.
    Pending(Reason),
}

impl Outcome {
    /// The exit status of the command: 0 done, 1 refused, 2 unknown, 3 pending.
    pub fn exit_status(&self) -> u8 {
        match self {
            Self::Open(_) | Self::Closed | Self::SwitchedOver(_) | Self::Held(_) => 0,
            Self::Refused(_) => 1,
            Self::Unknown(_) => 2,
            Self::Pending(_) => 3,
        }
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Open(term) => write!(f, "active in term {term}"),
            Self::Closed => f.write_str("demoted: the gate is closed and no session is left"),
            Self::SwitchedOver(term) => write!(f, "the other node is active in term {term}"),
            Self::Held(true) => {
                f.write_str("under hold: no promotion and no fencing until `monolock ha unhold`")
            }
            Self::Held(false) => f.write_str("no longer under hold"),
            Self::Refused(reason) => write!(f, "refused: {reason}"),
            Self::Unknown(reason) => write!(f, "unknown: {reason}"),
            Self::Pending(reason) => write!(f, "fence pending: {reason}"),
        }
    }
}

/// Why a command ended so, or why a node is not open.
#[derive(Debug, Clone, PartialEq, Eq, Hash, thiserror::Error)]
pub enum Reason {
    /// Shutdown wins over everything.
    #[error("this node shuts down")]
    Stopping,
    /// `ha hold` is in force here.
    #[error("this node is under hold (`monolock ha unhold`)")]
    Held,
    /// Sticky demotion.
    #[error("this node was demoted by hand (`monolock promote` without --auto or --keep lifts that)")]
    Demoted,
    /// A demotion ended the promotion.
    #[error("it was demoted meanwhile")]
    DemotedMeanwhile,
    /// The peer refused.
    #[error("the peer refuses: {0}")]
    PeerRefuses(Refusal),
    /// This node has promised a higher term to the peer.
    #[error("the peer promotes, or is active, in the higher term {0}")]
    HigherTerm(Term),
    /// No answer of the peer, which proves nothing, and nothing else may be tried.
    #[error(
        "the peer does not answer, which proves nothing, and no other fencer may run; once the other server \
         is stopped for certain and stays so: `monolock promote --force-unfenced`"
    )]
    NoAnswer,
    /// The peer has given no answer since this boot, so it is not shot.
    #[error(
        "the peer has given no answer since this host has booted, so it is not fenced by force; once the other \
         server is stopped for certain and stays so: `monolock promote --force-unfenced`"
    )]
    NotHeardSinceBoot,
    /// Every fence level failed.
    #[error("no fence level has confirmed that the peer can no longer act; the next round follows")]
    FenceFailed,
    /// A restart that may not resume.
    #[error(
        "it was active before it restarted, but the peer does not answer and may have been promoted; \
         `monolock promote` fences it"
    )]
    NotResumed,
    /// A restart on another boot.
    #[error("this host has booted anew: `monolock promote`, or the address's move, makes it active")]
    OtherBoot,
    /// A switchover needs an active node to start from.
    #[error("this node is not active")]
    NotActive,
    /// A switchover runs.
    #[error("a switchover runs")]
    SwitchingOver,
    /// The peer does not answer a switchover's question.
    #[error("the peer does not answer; this node stays active")]
    PeerSilent,
    /// A switchover's peer must not be promoted.
    #[error("the peer is not fit to be promoted: {0}; this node stays active")]
    PeerUnfit(Unfit),
    /// A switchover's peer is open or promotes.
    #[error("the peer is open or promoting; this node stays active")]
    PeerBusy,
    /// A switchover was undone.
    #[error("the peer did not become active; the switchover is undone and this node is active again")]
    Undone,
    /// A switchover was neither done nor undone.
    #[error(
        "the peer did not become active, and without its promise this node does not become active again: \
         both stay closed (`monolock status` on both, then `monolock promote` on one)"
    )]
    BothClosed,
    /// A switchover whose peer is at it.
    #[error("this node is closed and the peer is promoting (`monolock status` there)")]
    PeerAtIt,
    /// Another command came in between.
    #[error("another command came in between")]
    Overtaken,
}

/// What an operator should know.
#[derive(Debug, Clone, PartialEq, Eq, Hash, thiserror::Error)]
pub enum Warning {
    /// Whoever speaks under the peer's address or name is not the peer.
    #[error("not the peer: {0}")]
    Stranger(Stranger),
    /// Two nodes were open; this one closes.
    #[error("the peer has opened in the higher term {0}, while this node was open: it closes")]
    Healed(Term),
    /// The state cannot be stored.
    #[error("the state directory cannot be written: nothing is promised, and no gate opens, until it can")]
    StoreFailed,
    /// Opened without a fence.
    #[error("active without a fence: the other server must stay stopped until it is set up again")]
    Unfenced,
    /// A node that was active stays closed.
    #[error("closed after a restart: {0}")]
    NotResumed(Reason),
}

/// Who made a promotion, from the weakest to the strongest. A stronger one that joins takes it over.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum By {
    /// `promote --keep`.
    Keep,
    /// A restart.
    Resume,
    /// A switchover from here that did not succeed.
    Undo,
    /// A switchover from the peer.
    TakeOver,
    /// `promote --auto`.
    Auto,
    /// `promote` by hand.
    Hand,
    /// `promote --force-unfenced`.
    Unfenced,
}

impl By {
    /// A peer that is open or promoting refuses.
    pub(crate) fn asks_weakly(self) -> bool {
        matches!(self, Self::Keep | Self::Resume | Self::Undo)
    }

    /// It runs every fence level, and goes on until one succeeds. The others ask once.
    pub(crate) fn may_shoot(self) -> bool {
        matches!(self, Self::Auto | Self::Hand)
    }

    /// It lifts a demotion by hand.
    pub(crate) fn lifts_demotion(self) -> bool {
        matches!(self, Self::Hand | Self::Unfenced)
    }
}

/// An audit event. `term` is absent where none is concerned.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Audit {
    /// A promotion has ended.
    Promoted {
        /// Its term.
        term: Term,
        /// Who made it.
        by: By,
        /// Why it did not open; `None` when it did.
        failed: Option<Reason>,
    },
    /// An open gate was closed, or a node demoted.
    Demoted {
        /// The term that was open.
        term: Option<Term>,
        /// Why.
        by: DemotedBy,
    },
    /// A fence level has ended. Level 0 is the peer's answer.
    Fence {
        /// The promotion's term.
        term: Term,
        /// The level.
        level: usize,
        /// Whether it counts.
        confirmed: bool,
    },
    /// `ha hold` or `ha unhold`.
    Hold(bool),
}

/// Why a gate closed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum DemotedBy {
    /// `demote` by hand.
    Hand,
    /// `demote --auto`.
    Auto,
    /// The peer promotes, or has opened, in a higher term.
    Peer,
    /// A switchover from here.
    Switchover,
    /// Shutdown.
    Stopping,
}
