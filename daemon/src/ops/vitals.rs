//! The values that readiness is judged by, read in one moment from what others published; `/metrics` exports
//! them as they are.

use rustix::io::{Errno, fcntl_dupfd_cloexec};

use super::phase::Phase;
use super::sources::{Ceiling, Sources};
use crate::clock;

/// How the audit log stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Audit {
    pub(super) fails: bool,
    pub(super) dropped_total: u64,
    pub(super) written_total: u64,
    pub(super) unwritten: u64,
}

/// Places for connections.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Places {
    pub(super) all: usize,
    pub(super) taken: usize,
}

/// The values of one moment. `None`: this server has no such part, or cannot tell.
#[derive(Debug, Clone)]
pub(super) struct Vitals {
    /// CLOCK_MONOTONIC.
    pub(super) now_ns: u64,
    pub(super) phase: Phase,
    pub(super) gate: locks::Gate,
    /// A switchover moves the address to the peer.
    pub(super) gives_address: bool,
    /// Since the last turn of each shard; `None` before the first.
    pub(super) stalls_ns: Vec<Option<u64>>,
    pub(super) ceiling: Option<Ceiling>,
    pub(super) agent_connected: Option<bool>,
    pub(super) fence_pending: Option<bool>,
    /// Of the service time of heartbeats, over the last 10 s; `None` after too few of them.
    pub(super) p99_ns: Option<u64>,
    pub(super) places: Places,
    /// The kernel gives the process no descriptor more.
    pub(super) table_full: bool,
    pub(super) clock_synchronised: Option<bool>,
    pub(super) isolated: Option<bool>,
    pub(super) audit: Option<Audit>,
}

impl Vitals {
    /// Reads all values. `p99_ns` is taken over time, elsewhere.
    pub(super) fn read(sources: &Sources, phase: Phase, p99_ns: Option<u64>) -> Self {
        // Before the beats: one that comes in between is no turn in the future.
        let now_ns = clock::monotonic_ns();
        let beats_ns = sources.shards.iter().map(|published| published.beat_ns());
        let reports = &sources.reports;
        Self {
            now_ns,
            phase,
            gate: sources.gate.look(),
            gives_address: reports.gives_address.as_ref().is_some_and(|tell| tell()),
            stalls_ns: beats_ns
                .map(|beat_ns| (beat_ns != 0).then(|| now_ns.saturating_sub(beat_ns)))
                .collect(),
            ceiling: reports.ceiling.as_ref().map(|tell| tell()),
            agent_connected: reports.agent.as_ref().map(|tell| tell()),
            fence_pending: reports.fence.as_ref().map(|tell| tell()),
            p99_ns,
            places: Places { all: sources.capacity.places(), taken: sources.capacity.taken() },
            table_full: table_is_full(),
            clock_synchronised: clock::is_synchronised(),
            isolated: reports.isolated.as_ref().map(|tell| tell()),
            audit: sources.audit.as_ref().map(|log| Audit {
                fails: log.fails(),
                dropped_total: log.dropped_total(),
                written_total: log.written_total(),
                unwritten: log.unwritten(),
            }),
        }
    }
}

/// Whether the kernel has no descriptor more, for this process or at all, asked by taking one. Standard input
/// is always open: Rust's runtime sees to that.
fn table_is_full() -> bool {
    matches!(fcntl_dupfd_cloexec(std::io::stdin(), 0), Err(Errno::MFILE | Errno::NFILE))
}
