//! From published numbers to the Prometheus text format.

use locks::Reason;
use metrics::{Counter, Gauge, Label};
use metrics_exporter_prometheus::{PrometheusBuilder, PrometheusHandle, PrometheusRecorder};
use metrics_process::Collector;
use protocol::ErrorCode;

use super::histogram::write_histograms;
use super::node::NodeSeries;
use super::register::{register_counter, register_gauge};
use super::sources::Sources;
use super::watch::Look;
use crate::checks::Check;
use crate::metrics::cells::Cells;
use crate::metrics::names::{CODES, Count, Level};
use crate::reload::Part;
use audit::Standing;

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
        read: |sources| sources.audit.as_ref().map_or(0, Standing::dropped_total),
    },
    Total {
        name: "monolock_log_lines_lost_total",
        help: "Diagnostic log lines lost because standard error took no more or failed.",
        read: |_| logging::lines_lost_total(),
    },
];

/// A value of one moment, without labels.
struct Now {
    name: &'static str,
    help: &'static str,
    /// `None`: this server has no such part, and then no such series, or cannot tell.
    read: fn(&Look) -> Option<f64>,
}

/// What readiness is judged by.
const NOW: [Now; 13] = [
    Now {
        name: "monolock_ready",
        help: "Whether this server should receive traffic: 1 as long as /readyz is 200.",
        read: |look| truth(look.verdict.is_ready()),
    },
    Now {
        name: "monolock_gate_open",
        help: "Whether this server may grant and confirm.",
        read: |look| truth(look.vitals.gate.is_open()),
    },
    Now {
        name: "monolock_heartbeat_service_p99_seconds",
        help: "99th percentile of monolock_heartbeat_service_seconds over the last 10 s; 0 with less than 100 heartbeats.",
        read: |look| Some(seconds(look.vitals.p99_ns.unwrap_or(0))),
    },
    Now {
        name: "monolock_heartbeat_service_p99_limit_seconds",
        help: "Above this, monolock_heartbeat_service_p99_seconds is worth a warning.",
        read: |look| Some(look.p99_max.as_secs_f64()),
    },
    Now {
        name: "monolock_connection_places",
        help: "Connections that fit into the limit of open files.",
        read: |look| Some(look.vitals.places.all as f64),
    },
    Now {
        name: "monolock_connection_places_taken",
        help: "Places of monolock_connection_places that are taken.",
        read: |look| Some(look.vitals.places.taken as f64),
    },
    Now {
        name: "monolock_descriptor_table_full",
        help: "Whether the system gives this process no open file more.",
        read: |look| truth(look.vitals.table_full),
    },
    Now {
        name: "monolock_clock_synchronised",
        help: "Whether the kernel knows of somebody who keeps the wall clock right.",
        read: |look| look.vitals.clock_synchronised.and_then(truth),
    },
    Now {
        name: "monolock_audit_write_failing",
        help: "Whether the last write of the audit log failed.",
        read: |look| look.vitals.audit.and_then(|log| truth(log.fails)),
    },
    Now {
        name: "monolock_token_ceiling_reached",
        help: "Whether a claim waits for the token ceiling to rise.",
        read: |look| look.vitals.ceiling.and_then(|ceiling| truth(ceiling.reached)),
    },
    Now {
        name: "monolock_ha_agent_connected",
        help: "Whether the agent is connected.",
        read: |look| look.vitals.agent_connected.and_then(truth),
    },
    Now {
        name: "monolock_ha_fence_pending",
        help: "Whether this node wants to be active and may not yet.",
        read: |look| look.vitals.fence_pending.and_then(truth),
    },
    Now {
        name: "monolock_isolated",
        help: "Whether no other host is heard any more.",
        read: |look| look.vitals.isolated.and_then(truth),
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
    /// Registered when there is a value.
    now: Vec<(&'static Now, Option<Gauge>)>,
    /// In the order of [`Check::ALL`].
    failing: Vec<Gauge>,
    stalls: Vec<Gauge>,
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
            now: NOW.iter().map(|now| (now, None)).collect(),
            failing: Check::ALL.map(|check| register_failing(&recorder, check)).into(),
            stalls: (0..sources.shards.len()).map(|shard| register_stall(&recorder, shard)).collect(),
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

    /// The text format, current as of now; what readiness is judged by as of `look`.
    pub(super) fn render(&mut self, look: &Look) -> String {
        for (now, gauge) in &mut self.now {
            if let Some(value) = (now.read)(look) {
                let register = || register_gauge(&self.recorder, now.name, now.help, Vec::new());
                gauge.get_or_insert_with(register).set(value);
            }
        }
        for (gauge, failing_ns) in self.failing.iter().zip(look.verdict.failing_ns) {
            gauge.set(seconds(failing_ns));
        }
        for (gauge, stall_ns) in self.stalls.iter().zip(&look.vitals.stalls_ns) {
            gauge.set(seconds(stall_ns.unwrap_or(0)));
        }
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

fn register_failing(recorder: &PrometheusRecorder, check: Check) -> Gauge {
    let help = "For how long a check of /readyz has gone wrong, warnings included; 0 = fine.";
    register_gauge(recorder, "monolock_ready_failing_seconds", help, vec![Label::new("check", check.name())])
}

fn register_stall(recorder: &PrometheusRecorder, shard: usize) -> Gauge {
    let help = "Time since the last turn of a shard's loop; 0.2 is usual for one without work.";
    let labels = vec![Label::new("shard", shard.to_string())];
    register_gauge(recorder, "monolock_shard_stall_seconds", help, labels)
}

fn truth(is_so: bool) -> Option<f64> {
    Some(f64::from(u8::from(is_so)))
}

fn seconds(ns: u64) -> f64 {
    ns as f64 / 1e9
}

fn register_build_info(recorder: &PrometheusRecorder) {
    let labels =
        vec![Label::new("version", env!("CARGO_PKG_VERSION")), Label::new("commit", env!("MONOLOCK_COMMIT"))];
    let help = "The running program; the value is always 1.";
    register_gauge(recorder, "monolock_build_info", help, labels).set(1.0);
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use locks::Counts;

    use super::*;
    use crate::metrics::Published;
    use crate::metrics::{ShardCounters, TurnTimes};
    use crate::ops::phase::Phase;
    use crate::ops::sources::Ceiling;
    use crate::ops::sources::Reports;
    use crate::ops::tests::ready_settings;
    use crate::ops::watch::Watch;

    const NOW_NS: u64 = 1_000_000_000_000;

    fn sources(shards: usize) -> Sources {
        let shards = (0..shards).map(|_| Arc::new(Published::default())).collect();
        Sources { shards, ..Sources::of_a_test() }
    }

    fn rendered(sources: Sources) -> String {
        let look = Watch::new(sources.clone(), ready_settings()).look(Phase::Serving);
        Exposition::new(sources).render(&look)
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
        let text = rendered(sources(2));
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
        for check in Check::ALL {
            let failing =
                value(&text, &format!("monolock_ready_failing_seconds{{check=\"{}\"}}", check.name()));
            // Shards that have not turned yet are not fine, and the clock is this machine's own matter.
            assert_eq!(failing > 0.0, check == Check::Shards || check == Check::Clock && failing > 0.0);
        }
        assert!(text.contains("monolock_build_info{version=\""));
        assert!(!text.contains("monolock_isolated"), "nobody tells whether it is");
    }

    #[test]
    fn the_numbers_of_all_shards_and_of_the_intake_are_added() {
        let sources = sources(2);
        turns(&sources.shards[0], &[2]);
        turns(&sources.shards[1], &[3, 4]);
        sources.intake.accepted();
        sources.intake.accept_failed();
        sources.intake.protocol_error(ErrorCode::NOT_ACQUIRE);
        let text = rendered(sources);
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
    #[test]
    fn what_is_judged_is_what_is_exported() {
        let sources = Sources {
            reports: Reports {
                ceiling: Some(Arc::new(|| Ceiling { token: 7, reached: true })),
                agent: Some(Arc::new(|| false)),
                fence: Some(Arc::new(|| true)),
                gives_address: None,
                isolated: Some(Arc::new(|| true)),
            },
            ..sources(1)
        };
        let beat_ns = crate::clock::monotonic_ns() - 3_000_000_000;
        ShardCounters::default().publish(&sources.shards[0], beat_ns);
        let _places: Vec<_> = (0..8).map(|_| sources.capacity.take().unwrap()).collect();
        let text = rendered(sources);
        assert_eq!(value(&text, "monolock_ready"), 0.0);
        assert_eq!(value(&text, "monolock_gate_open"), 1.0);
        let stall = value(&text, "monolock_shard_stall_seconds{shard=\"0\"}");
        assert!((3.0..4.0).contains(&stall), "{stall}");
        let failing =
            |check: &str| value(&text, &format!("monolock_ready_failing_seconds{{check=\"{check}\"}}"));
        assert!((2.0..3.0).contains(&failing("shards")), "a second is allowed");
        for check in ["ceiling", "agent", "fence", "descriptors", "isolated"] {
            assert!(failing(check) > 0.0, "{check}");
        }
        for check in ["serving", "p99", "audit"] {
            assert_eq!(failing(check), 0.0, "{check}");
        }
        assert_eq!(value(&text, "monolock_connection_places"), 8.0);
        assert_eq!(value(&text, "monolock_connection_places_taken"), 8.0);
        assert_eq!(value(&text, "monolock_token_ceiling_reached"), 1.0);
        assert_eq!(value(&text, "monolock_ha_agent_connected"), 0.0);
        assert_eq!(value(&text, "monolock_ha_fence_pending"), 1.0);
        assert_eq!(value(&text, "monolock_isolated"), 1.0);
        assert_eq!(value(&text, "monolock_heartbeat_service_p99_limit_seconds"), 0.005);
    }
}
