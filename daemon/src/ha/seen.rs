//! What others see of the node.

use ha::message::{Answer, Facts};
use ha::pair::{Reason, Status};
use ha::stored::Stored;

use crate::clock;

/// What others see of the node; the driver replaces it whenever it changes.
#[derive(Debug, Clone)]
pub(crate) struct Seen {
    pub(crate) status: Status,
    pub(crate) stored: Stored,
    /// Why this node is not open.
    pub(crate) reason: Option<Reason>,
    /// What the last fence that ended came to, for people.
    pub(crate) last_fence: Option<String>,
    /// Why the peer gave no answer the last time.
    pub(crate) silence: Option<String>,
    /// The peer's last answer.
    pub(crate) answer: Option<Answered>,
    /// What this node tells its peer, as it was at that answer.
    pub(crate) own_facts: Facts,
    /// This node's fence levels.
    pub(crate) fencers: String,
    /// The health file is to be away: the address goes to the peer.
    pub(crate) gives_address: bool,
}

/// An answer of the peer.
#[derive(Debug, Clone)]
pub(crate) struct Answered {
    pub(crate) answer: Answer,
    /// When it was asked: CLOCK_BOOTTIME, ns.
    pub(crate) sent_ns: u64,
    /// By how much its wall clock is ahead of ours.
    pub(crate) clock_ahead_ns: i64,
}

impl Answered {
    /// Of an answer that came now: its clock was read in the middle of the way, as far as anybody knows.
    pub(super) fn now(answer: Answer, sent_ns: u64) -> Self {
        let on_the_way_ns = clock::boot_ns().saturating_sub(sent_ns) / 2;
        let then_ns = clock::unix_ns().saturating_sub(on_the_way_ns);
        let clock_ahead_ns = answer.facts.wall_clock_ns.wrapping_sub(then_ns).cast_signed();
        Self { answer, sent_ns, clock_ahead_ns }
    }
}
