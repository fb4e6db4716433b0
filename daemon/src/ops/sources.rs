//! Where the values come from that are exported and judged.

use std::fmt;
use std::sync::Arc;

use audit::Standing;
use locks::TokenSource;

use crate::addresses;
use crate::capacity::Capacity;
use crate::gate::Gate;
use crate::ha::HaMetrics;
use crate::metrics::{IntakeCounters, Published};
use crate::reload::ReloadStatus;

/// Where the numbers come from.
#[derive(Debug, Clone)]
pub(crate) struct Sources {
    pub(crate) shards: Vec<Arc<Published>>,
    pub(crate) intake: Arc<IntakeCounters>,
    pub(crate) reloads: Arc<ReloadStatus>,
    pub(crate) tokens: Option<Arc<TokenSource>>,
    pub(crate) addresses: addresses::Shared,
    /// One of two nodes; none without a standby.
    pub(crate) node: Option<Arc<HaMetrics>>,
    /// None without an audit log.
    pub(crate) audit: Option<Standing>,
    pub(crate) gate: Arc<Gate>,
    pub(crate) capacity: Arc<Capacity>,
    pub(crate) reports: Reports,
}

/// How the token ceiling stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Ceiling {
    /// The largest token that may be issued.
    pub(crate) token: u64,
    /// A claim waits because of it.
    pub(crate) reached: bool,
}

/// Tells one value as of now. Called on the control thread, often: it must not wait.
pub(crate) type Tell<T> = Arc<dyn Fn() -> T + Send + Sync>;

/// What parts tell of themselves that a server need not have.
#[derive(Clone, Default)]
pub(crate) struct Reports {
    pub(crate) ceiling: Option<Tell<Ceiling>>,
    /// Whether the agent is connected.
    pub(crate) agent: Option<Tell<bool>>,
    /// Whether this node wants to be active, and may not yet.
    pub(crate) fence: Option<Tell<bool>>,
    /// Whether the address is to leave for the peer.
    pub(crate) gives_address: Option<Tell<bool>>,
    /// Whether no other host is heard any more.
    pub(crate) isolated: Option<Tell<bool>>,
}

impl fmt::Debug for Reports {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { ceiling, agent, fence, gives_address, isolated } = self;
        f.debug_struct("Reports")
            .field("ceiling", &ceiling.is_some())
            .field("agent", &agent.is_some())
            .field("fence", &fence.is_some())
            .field("gives_address", &gives_address.is_some())
            .field("isolated", &isolated.is_some())
            .finish()
    }
}

#[cfg(test)]
impl Sources {
    /// Without shards, with room for eight connections.
    pub(super) fn of_a_test() -> Self {
        Self {
            shards: Vec::new(),
            intake: Arc::default(),
            reloads: Arc::default(),
            audit: None,
            tokens: None,
            addresses: Arc::default(),
            node: None,
            gate: Arc::new(Gate::standalone(1)),
            capacity: Capacity::new(88, 0).unwrap(),
            reports: Reports::default(),
        }
    }
}
