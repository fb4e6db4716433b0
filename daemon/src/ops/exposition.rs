//! From published numbers to the Prometheus text format.

use std::sync::Arc;

use locks::{Reason, TokenSource};
use metrics::{Counter, Gauge, Key, KeyName, Label, Level as Verbosity, Metadata, Recorder};
use metrics_exporter_prometheus::{PrometheusBuilder, PrometheusHandle, PrometheusRecorder};
use metrics_process::Collector;
use protocol::ErrorCode;

use super::histogram::write_histograms;
use super::node::NodeSeries;
use crate::addresses;
use crate::gate::Gate;
use crate::ha::HaMetrics;
use crate::metrics::cells::Cells;
use crate::metrics::names::{CODES, Count, Level};
use crate::metrics::{IntakeCounters, Published};
use crate::reload::{Part, ReloadStatus};
use audit::Dropped;

const METADATA: Metadata<'static> = Metadata::new("monolock", Verbosity::INFO, None);

/// Where the numbers come from.
#[derive(Debug, Clone, Default)]
pub(crate) struct Sources {
    pub(crate) shards: Vec<Arc<Published>>,
    pub(crate) intake: Arc<IntakeCounters>,
    pub(crate) reloads: Arc<ReloadStatus>,
    /// Events that the audit log lost; none without an audit log.
    pub(crate) audit_dropped: Option<Dropped>,
    pub(crate) gate: Option<Arc<Gate>>,
    pub(crate) tokens: Option<Arc<TokenSource>>,
    pub(crate) addresses: addresses::Shared,
    /// One of two nodes; none without a standby.
    pub(crate) node: Option<Arc<HaMetrics>>,
}

/// A counter of the whole process, without labels.
struct Total {
    name: &'static str,
    help: &'static str,
    read: fn(&Sources) -> u64,
}

const TOTALS: [Total; 6] = [
    Total {
        name: "monolock_connections_accepted_total",
        help: "Connections accepted.",
        read: |sources| sources.intake.accepted_total(),
    },
    Total {
        name: "monolock_accept_errors_total",
        help: "Accepts that failed or found no free descriptor.",
        read: |sources| sources.intake.accept_errors_total(),
    },
    Total {
        name: "monolock_tls_handshake_errors_total",
        help: "TLS handshakes that failed.",
        read: |sources| sources.intake.tls_handshake_errors_total(),
    },
    Total {
        name: "monolock_acl_denials_total",
        help: "Claims that the ACL refused.",
        read: |sources| sources.intake.acl_denials_total(),
    },
    Total {
        name: "monolock_audit_dropped_total",
        help: "Audit events dropped because the log could not be written fast enough.",
        read: |sources| sources.audit_dropped.as_ref().map_or(0, Dropped::total),
    },
    Total {
        name: "monolock_log_lines_lost_total",
        help: "Diagnostic log lines lost because standard error took no more or failed.",
        read: |_| logging::lines_lost_total(),
    },
];

/// Reads the sources and renders them. Owns its recorder: nothing here is global to the process.
pub(crate) struct Exposition {
    sources: Sources,
    /// The last numbers read of each shard.
    shards: Vec<Cells>,
    recorder: PrometheusRecorder,
    handle: PrometheusHandle,
    process: Collector,
    levels: Vec<(Level, Gauge)>,
    counts: Vec<(Count, Counter)>,
    releases: Vec<(Reason, Counter)>,
    errors: Vec<(ErrorCode, Counter)>,
    reloads: Vec<(Part, bool, Counter)>,
    totals: Vec<(&'static Total, Counter)>,
    node: NodeSeries,
    /// With TLS.
    certificate_expires: Option<Gauge>,
}

impl Exposition {
    /// Registers every series, so that all of them are there from the first scrape on, with 0.
    pub(crate) fn new(sources: Sources) -> Self {
        let recorder = PrometheusBuilder::new().build_recorder();
        let process = Collector::default();
        metrics::with_local_recorder(&recorder, || process.describe());

        register_build_info(&recorder);
        Self {
            shards: vec![Cells::default(); sources.shards.len()],
            levels: Level::ALL
                .map(|level| (level, register_gauge(&recorder, level.name(), level.help(), Vec::new())))
                .into(),
            counts: Count::ALL
                .map(|count| (count, register_counter(&recorder, count.name(), count.help(), Vec::new())))
                .into(),
            releases: Reason::ALL.map(|reason| (reason, register_releases(&recorder, reason))).into(),
            errors: CODES.map(|code| (code, register_errors(&recorder, code))).into(),
            reloads: Part::ALL
                .iter()
                .flat_map(|&part| [(part, true), (part, false)])
                .map(|(part, success)| (part, success, register_reloads(&recorder, part, success)))
                .collect(),
            totals: TOTALS
                .iter()
                .map(|total| (total, register_counter(&recorder, total.name, total.help, Vec::new())))
                .collect(),
            certificate_expires: sources.reloads.certificate_expires_unix_s().map(|_| {
                register_gauge(
                    &recorder,
                    "monolock_tls_certificate_expiry_timestamp_seconds",
                    "When the server's certificate ends, in Unix time.",
                    Vec::new(),
                )
            }),
            node: NodeSeries::register(&recorder, &sources),
            handle: recorder.handle(),
            recorder,
            process,
            sources,
        }
    }

    /// The text format, current as of now.
    pub(crate) fn render(&mut self) -> String {
        for (cells, published) in self.shards.iter_mut().zip(&self.sources.shards) {
            if let Some(read) = published.read() {
                *cells = read;
            }
        }
        let mut all = Cells::default();
        self.shards.iter().for_each(|cells| all.merge(cells));

        for (level, gauge) in &self.levels {
            gauge.set(all.level(*level) as f64);
        }
        for (count, counter) in &self.counts {
            counter.absolute(all.count(*count));
        }
        for (reason, counter) in &self.releases {
            counter.absolute(all.releases(*reason));
        }
        for (code, counter) in &self.errors {
            counter.absolute(all.errors(*code) + self.sources.intake.errors(*code));
        }
        for (part, success, counter) in &self.reloads {
            counter.absolute(self.sources.reloads.total(*part, *success));
        }
        if let (Some(gauge), Some(at_unix_s)) =
            (&self.certificate_expires, self.sources.reloads.certificate_expires_unix_s())
        {
            gauge.set(at_unix_s as f64);
        }
        for (total, counter) in &self.totals {
            counter.absolute((total.read)(&self.sources));
        }
        self.node.set(&self.sources);
        metrics::with_local_recorder(&self.recorder, || self.process.collect());
        let mut text = self.handle.render();
        write_histograms(&mut text, &all, &self.shards);
        text
    }
}

pub(super) fn register_counter(
    recorder: &PrometheusRecorder,
    name: &'static str,
    help: &'static str,
    labels: Vec<Label>,
) -> Counter {
    recorder.describe_counter(KeyName::from_const_str(name), None, help.into());
    recorder.register_counter(&Key::from_parts(name, labels), &METADATA)
}

pub(super) fn register_gauge(
    recorder: &PrometheusRecorder,
    name: &'static str,
    help: &'static str,
    labels: Vec<Label>,
) -> Gauge {
    recorder.describe_gauge(KeyName::from_const_str(name), None, help.into());
    recorder.register_gauge(&Key::from_parts(name, labels), &METADATA)
}

fn register_releases(recorder: &PrometheusRecorder, reason: Reason) -> Counter {
    let labels = vec![Label::new("reason", reason.as_str())];
    register_counter(recorder, "monolock_releases_total", "Ownerships that ended, by reason.", labels)
}

fn register_reloads(recorder: &PrometheusRecorder, part: Part, success: bool) -> Counter {
    let result = if success { "success" } else { "failure" };
    let labels = vec![Label::new("part", part.as_str()), Label::new("result", result)];
    register_counter(recorder, "monolock_reloads_total", "Parts reread at a SIGHUP, by result.", labels)
}

fn register_errors(recorder: &PrometheusRecorder, code: ErrorCode) -> Counter {
    let labels = vec![Label::new("code", code.to_string())];
    register_counter(recorder, "monolock_protocol_errors_total", "ERROR frames sent, by code.", labels)
}

fn register_build_info(recorder: &PrometheusRecorder) {
    let labels =
        vec![Label::new("version", env!("CARGO_PKG_VERSION")), Label::new("commit", env!("MONOLOCK_COMMIT"))];
    let help = "The running program; the value is always 1.";
    register_gauge(recorder, "monolock_build_info", help, labels).set(1.0);
}

#[cfg(test)]
mod tests {
    use locks::Counts;

    use super::*;
    use crate::metrics::{ShardCounters, TurnTimes};

    const NOW_NS: u64 = 1_000_000_000_000;

    fn sources(shards: usize) -> Sources {
        let shards = (0..shards).map(|_| Arc::new(Published::default())).collect();
        Sources { shards, ..Sources::default() }
    }

    /// The value of a series, named as it stands in the text.
    fn value(text: &str, series: &str) -> f64 {
        let line = text.lines().find_map(|line| line.strip_prefix(series)?.strip_prefix(' '));
        line.unwrap_or_else(|| panic!("no {series} in\n{text}")).parse().unwrap()
    }

    /// Turns of 1 ms each, with so many heartbeats in each.
    fn turns(published: &Published, heartbeats_of_turns: &[u64]) {
        let mut counters = ShardCounters::default();
        for heartbeats in heartbeats_of_turns {
            counters.heartbeats += heartbeats;
            let ended_ns = NOW_NS + 1_000_000;
            let times = TurnTimes { woken_ns: NOW_NS, answered_ns: ended_ns, ended_ns, busy: true };
            counters
                .finish_turn(times, Counts { sessions: 4, locks_held: 1, waiters: 2, ..Counts::default() });
        }
        counters.publish(published, NOW_NS);
    }

    #[test]
    fn every_label_value_is_there_from_the_start_with_zero() {
        let text = Exposition::new(sources(2)).render();
        for reason in Reason::ALL {
            assert_eq!(
                value(&text, &format!("monolock_releases_total{{reason=\"{}\"}}", reason.as_str())),
                0.0
            );
        }
        for code in CODES {
            assert_eq!(value(&text, &format!("monolock_protocol_errors_total{{code=\"{code}\"}}")), 0.0);
        }
        for name in ["monolock_wait_seconds", "monolock_hold_seconds", "monolock_handover_seconds"] {
            assert_eq!(value(&text, &format!("{name}_count")), 0.0);
        }
        for part in Part::ALL {
            for result in ["success", "failure"] {
                let labels = format!("part=\"{}\",result=\"{result}\"", part.as_str());
                assert_eq!(value(&text, &format!("monolock_reloads_total{{{labels}}}")), 0.0);
            }
        }
        assert_eq!(value(&text, "monolock_shard_loop_lag_seconds_count{shard=\"1\"}"), 0.0);
        assert!(text.contains("monolock_build_info{version=\""));
    }

    #[test]
    fn the_numbers_of_all_shards_and_of_the_intake_are_added() {
        let sources = sources(2);
        turns(&sources.shards[0], &[2]);
        turns(&sources.shards[1], &[3, 4]);
        sources.intake.accepted();
        sources.intake.accept_failed();
        sources.intake.protocol_error(ErrorCode::NOT_ACQUIRE);
        let text = Exposition::new(sources).render();
        assert_eq!(value(&text, "monolock_connections_active"), 8.0);
        assert_eq!(value(&text, "monolock_locks_held"), 2.0);
        assert_eq!(value(&text, "monolock_waiters"), 4.0);
        assert_eq!(value(&text, "monolock_heartbeats_total"), 9.0);
        assert_eq!(value(&text, "monolock_connections_accepted_total"), 1.0);
        assert_eq!(value(&text, "monolock_accept_errors_total"), 1.0);
        assert_eq!(value(&text, "monolock_protocol_errors_total{code=\"0x11\"}"), 1.0);
        assert_eq!(value(&text, "monolock_heartbeat_service_seconds_count"), 9.0);
        assert_eq!(value(&text, "monolock_shard_loop_lag_seconds_count{shard=\"1\"}"), 2.0);
    }
}
