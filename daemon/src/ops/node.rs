//! The token ceiling, local addresses, and the node of a pair, as Prometheus reads them.

use std::sync::Arc;

use metrics::{Counter, Gauge, Histogram, Label};
use metrics_exporter_prometheus::PrometheusRecorder;

use super::register::{register_counter, register_gauge, register_summary};
use super::sources::Sources;
use crate::ha::{HaMetrics, LEVELS_MAX, ROLES, Transition};

/// A second has so many tokens.
const TOKENS_PER_S: f64 = (1 << 20) as f64;

/// The series, registered once.
pub(super) struct NodeSeries {
    watched: Gauge,
    /// Where tokens are put aside.
    ceiling: Option<Gauge>,
    pair: Option<PairSeries>,
}

struct PairSeries {
    metrics: Arc<HaMetrics>,
    roles: Vec<Gauge>,
    term: Gauge,
    hold: Gauge,
    peer_clock: Gauge,
    transitions: Vec<(Transition, Counter)>,
    fences: Vec<(usize, bool, Counter)>,
    fence_seconds: Histogram,
    warnings: Counter,
}

impl NodeSeries {
    pub(super) fn register(recorder: &PrometheusRecorder, sources: &Sources) -> Self {
        let gauge = |name, help| register_gauge(recorder, name, help, Vec::new());
        let has_ceiling = sources.tokens.as_ref().is_some_and(|tokens| tokens.ceiling().is_some());
        Self {
            watched: gauge(
                "monolock_addresses_watched",
                "1 while the kernel tells which local addresses leave: sessions on those end at once.",
            ),
            ceiling: has_ceiling.then(|| {
                gauge(
                    "monolock_token_ceiling_seconds",
                    "The largest token put aside, as the Unix time that it stands for.",
                )
            }),
            pair: sources.node.as_ref().map(|metrics| PairSeries::register(recorder, metrics)),
        }
    }

    pub(super) fn set(&self, sources: &Sources) {
        self.watched.set(f64::from(u8::from(sources.addresses.is_watched())));
        let ceiling = sources.tokens.as_ref().and_then(|tokens| tokens.ceiling());
        if let (Some(gauge), Some(ceiling)) = (&self.ceiling, ceiling) {
            gauge.set(ceiling.0 as f64 / TOKENS_PER_S);
        }
        if let Some(pair) = &self.pair {
            pair.set();
        }
    }
}

impl PairSeries {
    fn register(recorder: &PrometheusRecorder, metrics: &Arc<HaMetrics>) -> Self {
        let gauge = |name, help| register_gauge(recorder, name, help, Vec::new());
        let role = |(_, word): &(_, &'static str)| {
            let labels = vec![Label::new("role", *word)];
            register_gauge(recorder, "monolock_ha_role", "1 for the role that this node has.", labels)
        };
        let transition = |(to, word)| {
            let labels = vec![Label::new("to", word)];
            let help = "Times that this node became active, or closed.";
            (to, register_counter(recorder, "monolock_ha_transitions_total", help, labels))
        };
        let fence = |level: usize| {
            [(true, "confirmed"), (false, "failed")].map(|(confirmed, word)| {
                let labels = vec![Label::new("level", level.to_string()), Label::new("result", word)];
                let help =
                    "Fence levels that ended, by what they confirmed; level 0 is the peer's own answer.";
                (level, confirmed, register_counter(recorder, "monolock_ha_fence_total", help, labels))
            })
        };
        Self {
            metrics: Arc::clone(metrics),
            roles: ROLES.iter().map(role).collect(),
            term: gauge("monolock_ha_term", "The counter of the highest term that this node has promised."),
            hold: gauge("monolock_ha_hold", "1 while this node is under hold."),
            peer_clock: gauge(
                "monolock_ha_peer_clock_offset_seconds",
                "How far the peer's wall clock is ahead of this node's.",
            ),
            transitions: [(Transition::Active, "active"), (Transition::Standby, "standby")]
                .map(transition)
                .into(),
            fences: (0..LEVELS_MAX).flat_map(fence).collect(),
            fence_seconds: register_summary(
                recorder,
                "monolock_ha_fence_seconds",
                "How long a fence level took, from when it was asked.",
            ),
            warnings: register_counter(
                recorder,
                "monolock_ha_warnings_total",
                "Things that an operator of the pair should look at; the log has each.",
                Vec::new(),
            ),
        }
    }

    fn set(&self) {
        for (role, gauge) in self.roles.iter().enumerate() {
            gauge.set(self.metrics.role(role) as f64);
        }
        self.term.set(self.metrics.term() as f64);
        self.hold.set(f64::from(u8::from(self.metrics.is_held())));
        self.peer_clock.set(self.metrics.peer_clock_offset_s());
        for (to, counter) in &self.transitions {
            counter.absolute(self.metrics.transitions(*to));
        }
        for (level, confirmed, counter) in &self.fences {
            counter.absolute(self.metrics.fences(*level, *confirmed));
        }
        self.metrics.take_fence_times().into_iter().for_each(|seconds| self.fence_seconds.record(seconds));
        self.warnings.absolute(self.metrics.warnings());
    }
}
