//! What will happen, in the order of true time.

use std::collections::BTreeMap;

use crate::register::Write;
use crate::segment::{ConnId, Segment, Side};

/// Something that happens at a moment.
#[derive(Debug)]
pub(crate) enum Happening {
    /// A kernel gets a segment.
    Arrives { conn: ConnId, at: Side, segment: Segment },
    /// The kernel that sent something at `sent_ns` to this side looks whether it should give up.
    GivesUp { conn: ConnId, to: Side, sent_ns: u64 },
    /// A client's way in this direction may be free again.
    Heals { client: usize, to: Side },
    /// A shard goes on; only its last plan counts.
    ShardSteps { process: usize, shard: usize, plan: u64 },
    /// A client goes on; only its last plan counts.
    ClientWakes { client: usize, plan: u64 },
    /// A write under a lock reaches the resource.
    RegisterHears(Write),
    /// The next fault.
    FaultStrikes,
    /// A server process starts on this host.
    ProcessStarts { host: usize },
    /// A server process that shuts down ends.
    ProcessEnds { process: usize },
    /// The server of this host becomes the active one.
    Promotes { host: usize },
    /// The disk of a server's host takes a higher token ceiling.
    CeilingIsStored { process: usize },
    /// That server hears of it.
    CeilingRises { process: usize, to: u64 },
    /// The active server's leadership is confirmed once more.
    GateRenews { process: usize, life: usize },
}

/// Pending happenings. Those of one moment come in the order in which they were planned.
#[derive(Debug, Default)]
pub(crate) struct Agenda {
    pending: BTreeMap<(u64, u64), Happening>,
    planned: u64,
}

impl Agenda {
    pub(crate) fn plan(&mut self, at_ns: u64, happening: Happening) {
        self.planned += 1;
        self.pending.insert((at_ns, self.planned), happening);
    }

    pub(crate) fn next(&mut self) -> Option<(u64, Happening)> {
        self.pending.pop_first().map(|((at_ns, _), happening)| (at_ns, happening))
    }
}
