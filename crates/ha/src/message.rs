//! What two nodes say to each other, as JSON over the peer's endpoint.
//!
//! A request names who asks and who is meant. An answer is in two parts: what the state machine says
//! ([`Said`]), and what only the daemon knows ([`Facts`]). No answer at all (EOF, a refused connection, a
//! timeout) proves nothing and has no type here.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::ceiling::Ceiling;
use crate::fence::Levels;
use crate::identity::{HostId, Incarnation};
use crate::term::{NodeId, Term};

/// The version of this protocol. A node of another version is not understood, and proves nothing.
pub const VERSION: u32 = 1;

/// A request to the peer.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Request {
    /// [`VERSION`] of the node that asks.
    pub version: u32,
    /// The node that asks.
    pub from: NodeId,
    /// Its host.
    pub host: HostId,
    /// The node that is meant.
    pub to: NodeId,
    /// What is asked.
    pub ask: Ask,
}

/// What is asked.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Ask {
    /// How are you? Each node asks once a second, in every role.
    Status,
    /// Promise this term, close, and say so.
    Close {
        /// The term in which the asking node promotes.
        term: Term,
        /// A node that is open or promoting refuses (`--keep`, a resume, the undo of a switchover).
        weak: bool,
        /// The asking node's own ceiling: its term begins at or above it.
        ceiling: Ceiling,
    },
    /// I have closed for a switchover: promote yourself, if this still is your promise.
    TakeOver {
        /// The promise of the asked node, as the asking node has read it.
        promise: Option<Term>,
    },
}

/// The gate, as a node tells it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum GateState {
    /// Every shard has confirmed, no session is left.
    Closed,
    /// Closing: not every shard has confirmed, or a session is left.
    Closing,
    /// Grants may be made.
    Open,
}

/// Why a node must not be promoted by a switchover.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Unfit {
    /// `ha hold` is in force.
    Held,
    /// It was demoted by hand.
    Demoted,
    /// Its readiness fails.
    NotReady,
    /// It shuts down.
    Stopping,
}

impl fmt::Display for Unfit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Held => "it is under hold (`monolock ha unhold` there)",
            Self::Demoted => "it was demoted by hand (`monolock promote` there)",
            Self::NotReady => "it is not ready",
            Self::Stopping => "it shuts down",
        })
    }
}

/// The answer to what was asked.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// To [`Ask::Status`]: the rest of the answer says it all.
    Status,
    /// Promised, every shard has confirmed, no session is left.
    ClosedFor(Term),
    /// Said by an agent: the process is gone, and the promise stored under its state lock.
    GoneFor(Term),
    /// Not promised.
    Refused {
        /// The term that was asked for.
        term: Term,
        /// As it was asked.
        weak: bool,
        /// Why.
        why: Refusal,
    },
    /// To [`Ask::TakeOver`]: open in this term.
    TookOver(Term),
    /// To [`Ask::TakeOver`]: not promoted.
    NotTakenOver,
    /// The request is not for this node, or not from its peer.
    NotForMe(Stranger),
}

/// Why a term was not promised.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Refusal {
    /// A higher term, or the same counter for a higher node id, is promised.
    Promised,
    /// Asked weakly, and open.
    Open,
    /// Asked weakly, and promoting.
    Promoting,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Promised => "it has promised a higher term",
            Self::Open => "it is open",
            Self::Promoting => "it is promoting",
        })
    }
}

/// Why whoever speaks is not the peer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, thiserror::Error)]
#[serde(rename_all = "snake_case")]
pub enum Stranger {
    /// It speaks from this very host.
    #[error(
        "it is this host itself: the peer's address may be the address that moves (`-peer` needs a fixed one)"
    )]
    Myself,
    /// Its node id is not the one configured.
    #[error("it is another node than the one that `-peer` names")]
    OtherNode,
    /// It means another node.
    #[error("it takes this node for another one (compare `-node-id` here with `-peer` there)")]
    MeansAnother,
    /// The peer's node id, but not the host that is known under it.
    #[error(
        "it is another host than the one known under this node id, which may still be open: make sure that \
         it is stopped, then `monolock promote --force-unfenced`"
    )]
    OtherHost,
    /// Another version of the protocol.
    #[error("it speaks another version of the protocol")]
    OtherVersion,
}

/// What the state machine says in each answer.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Said {
    /// [`VERSION`] of the answering node.
    pub version: u32,
    /// Its node id.
    pub node: NodeId,
    /// Its host.
    pub host: HostId,
    /// Its boot, and when its process started.
    pub incarnation: Incarnation,
    /// The highest term that it has promised, to itself or to the peer.
    pub promise: Option<Term>,
    /// The highest term that it knows to have been opened, by itself or by the peer.
    pub opened: Option<Term>,
    /// Its gate.
    pub gate: GateState,
    /// Whether a promotion runs.
    pub promoting: bool,
    /// Why it must not be promoted by a switchover.
    pub unfit: Option<Unfit>,
    /// Its token ceiling; final once it is closed.
    pub ceiling: Ceiling,
    /// The asking node's ceiling, as far as it is stored here.
    pub copied: Option<Ceiling>,
    /// Its fence levels.
    pub fencers: Levels,
    /// The answer to what was asked.
    pub verdict: Verdict,
}

/// What the daemon adds to each answer. It decides nothing, except that the health file of a switchover
/// comes back when the peer holds the address.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
pub struct Facts {
    /// Sessions that are not over.
    pub sessions: u64,
    /// Wall clock, ns since the Unix epoch.
    pub wall_clock_ns: u64,
    /// Whether the address that moves is here. `None` when nobody knows which one that is.
    pub holds_address: Option<bool>,
    /// Digest of the settings that both nodes should share.
    pub configuration: String,
    /// Digest of the certificate authorities.
    pub authorities: String,
    /// Digest of the access-control list.
    pub acl: String,
}

impl Facts {
    /// What differs from the peer's and should not: one word each, for a warning. An agent that answers in
    /// the place of its server knows nothing of that.
    pub fn differences(&self, peer: &Self) -> Vec<&'static str> {
        if self.configuration.is_empty() || peer.configuration.is_empty() {
            return Vec::new();
        }
        let pairs = [
            ("configuration", &self.configuration, &peer.configuration),
            ("authorities", &self.authorities, &peer.authorities),
            ("acl", &self.acl, &peer.acl),
        ];
        pairs.into_iter().filter(|(_, own, its)| own != its).map(|(word, ..)| word).collect()
    }
}

/// An answer of the peer.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Answer {
    /// What the state machine says.
    #[serde(flatten)]
    pub said: Said,
    /// What the daemon adds.
    #[serde(flatten)]
    pub facts: Facts,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_are_told_what_they_differ_in_and_nothing_by_an_agent() {
        let facts = |configuration: &str, acl: &str| Facts {
            configuration: configuration.into(),
            acl: acl.into(),
            ..Facts::default()
        };
        assert_eq!(facts("1", "x").differences(&facts("1", "")), ["acl"]);
        assert_eq!(facts("1", "x").differences(&facts("2", "x")), ["configuration"]);
        assert_eq!(facts("1", "x").differences(&Facts::default()), [""; 0]);
    }
}
