//! From published numbers to the Prometheus text format.

use std::sync::Arc;

use locks::Reason;
use metrics::{Counter, Gauge, Histogram, Key, KeyName, Label, Level as Verbosity, Metadata, Recorder};
use metrics_exporter_prometheus::{Matcher, PrometheusBuilder, PrometheusHandle, PrometheusRecorder};
use metrics_process::Collector;
use protocol::ErrorCode;

use super::cells::{Bucket, Cells};
use super::names::{BUCKETS, CODES, Count, Level, Quantity};
use super::{IntakeCounters, Published};
use crate::logging;

const METADATA: Metadata<'static> = Metadata::new("monolock", Verbosity::INFO, None);

/// Samples that the recorder may hold before they are folded into its histograms: 16 bytes each, so 256 KiB at most.
const SAMPLES_HELD_MAX: u64 = 16_384;

const NS_PER_S: f64 = 1e9;

/// Where the numbers come from.
#[derive(Debug, Clone)]
pub(crate) struct Sources {
    pub(crate) shards: Vec<Arc<Published>>,
    pub(crate) intake: Arc<IntakeCounters>,
}

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
    accepted: Counter,
    accept_errors: Counter,
    log_lines_lost: Counter,
    series: Vec<Series>,
}

/// One histogram of the exposition, and how far it has been fed.
struct Series {
    quantity: Quantity,
    /// The shard that it shows; all of them together when `None`.
    shard: Option<usize>,
    histogram: Histogram,
    fed: [Bucket; BUCKETS],
}

impl Exposition {
    /// Registers every series, so that all of them are there from the first scrape on, with 0.
    pub(crate) fn new(sources: Sources) -> Self {
        let recorder = Quantity::ALL
            .iter()
            .fold(PrometheusBuilder::new(), |builder, quantity| {
                let bounds = quantity.bounds_ns().map(seconds);
                builder
                    .set_buckets_for_metric(Matcher::Full(quantity.name().into()), &bounds)
                    .expect("a histogram has bounds")
            })
            .build_recorder();
        let process = Collector::default();
        metrics::with_local_recorder(&recorder, || process.describe());

        let series = Quantity::ALL
            .into_iter()
            .flat_map(|quantity| register_series(&recorder, quantity, sources.shards.len()))
            .collect();
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
            accepted: register_counter(
                &recorder,
                "monolock_connections_accepted_total",
                "Connections accepted.",
                Vec::new(),
            ),
            accept_errors: register_counter(
                &recorder,
                "monolock_accept_errors_total",
                "Accepts that failed or found no free descriptor.",
                Vec::new(),
            ),
            log_lines_lost: register_counter(
                &recorder,
                "monolock_log_lines_lost_total",
                "Diagnostic log lines dropped because standard error took no more.",
                Vec::new(),
            ),
            series,
            handle: recorder.handle(),
            recorder,
            process,
            sources,
        }
    }

    /// Takes over what was published since the last step. To be called about once a second, so that the work of a
    /// step stays small, whether anybody scrapes or not.
    pub(crate) fn step(&mut self) {
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
        self.accepted.absolute(self.sources.intake.accepted_total());
        self.accept_errors.absolute(self.sources.intake.accept_errors_total());
        self.log_lines_lost.absolute(logging::lines_lost_total());
        for series in &mut self.series {
            let cells = series.shard.map_or(&all, |shard| &self.shards[shard]);
            series.feed(cells, &self.handle);
        }
        self.handle.run_upkeep();
    }

    /// The text format, current as of now.
    pub(crate) fn render(&mut self) -> String {
        self.step();
        metrics::with_local_recorder(&self.recorder, || self.process.collect());
        self.handle.render()
    }
}

impl Series {
    /// Hands the recorder the samples that are new in `cells`. It takes samples only one by one, so this costs some
    /// 50 ns each, on the control thread.
    fn feed(&mut self, cells: &Cells, handle: &PrometheusHandle) {
        let bounds_ns = self.quantity.bounds_ns();
        for (index, fed) in self.fed.iter_mut().enumerate() {
            let seen = cells.bucket(self.quantity, index);
            let above_ns = index.checked_sub(1).map(|below| bounds_ns[below]);
            let mean = mean_of_new(*fed, seen, above_ns, bounds_ns.get(index).copied());
            let mut samples = seen.count.saturating_sub(fed.count);
            while samples > 0 {
                let some = samples.min(SAMPLES_HELD_MAX);
                self.histogram.record_many(mean, usize::try_from(some).expect("16 384 fits"));
                handle.run_upkeep();
                samples -= some;
            }
            *fed = seen;
        }
    }
}

/// The mean, in seconds, of the samples of a bucket that came between `fed` and `seen`: recorded once for each of
/// them it gives the exact sum, and it lies in the bucket, above `above_ns` and at most at `bound_ns`.
fn mean_of_new(fed: Bucket, seen: Bucket, above_ns: Option<u64>, bound_ns: Option<u64>) -> f64 {
    let samples = seen.count.saturating_sub(fed.count).max(1);
    let sum_ns = seen.sum_ns.saturating_sub(fed.sum_ns);
    let least_ns = above_ns.map_or(0.0, |above_ns| (above_ns + 1) as f64);
    let most_ns = bound_ns.map_or(f64::INFINITY, |bound_ns| bound_ns as f64);
    // A saturated sum is the only one outside.
    (sum_ns as f64 / samples as f64).clamp(least_ns, most_ns) / NS_PER_S
}

fn seconds(ns: u64) -> f64 {
    ns as f64 / NS_PER_S
}

fn register_series(recorder: &PrometheusRecorder, quantity: Quantity, shards: usize) -> Vec<Series> {
    recorder.describe_histogram(KeyName::from_const_str(quantity.name()), None, quantity.help().into());
    let series = |shard: Option<usize>| {
        let labels =
            shard.map(|shard| Label::new("shard", shard.to_string())).into_iter().collect::<Vec<_>>();
        let key = Key::from_parts(quantity.name(), labels);
        let histogram = recorder.register_histogram(&key, &METADATA);
        Series { quantity, shard, histogram, fed: Default::default() }
    };
    if quantity.is_per_shard() { (0..shards).map(Some).map(series).collect() } else { vec![series(None)] }
}

fn register_counter(
    recorder: &PrometheusRecorder,
    name: &'static str,
    help: &'static str,
    labels: Vec<Label>,
) -> Counter {
    recorder.describe_counter(KeyName::from_const_str(name), None, help.into());
    recorder.register_counter(&Key::from_parts(name, labels), &METADATA)
}

fn register_gauge(
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

    use super::super::ShardCounters;
    use super::*;

    const NOW_NS: u64 = 1_000_000_000_000;

    fn sources(shards: usize) -> Sources {
        Sources {
            shards: (0..shards).map(|_| Arc::new(Published::default())).collect(),
            intake: Arc::default(),
        }
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
            counters.finish_turn(
                NOW_NS,
                NOW_NS + 1_000_000,
                Counts { sessions: 4, locks_held: 1, waiters: 2, ..Counts::default() },
            );
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

    #[test]
    fn a_histogram_has_the_exact_sum_and_the_right_buckets_however_often_it_is_read() {
        let sources = sources(1);
        let shard = Arc::clone(&sources.shards[0]);
        let mut exposition = Exposition::new(sources);
        let mut counters = ShardCounters::default();
        for wait_ns in [0, 100_000, 100_001, 999_999, 7_200_000_000_000] {
            counters.granted(wait_ns);
            counters.publish(&shard, NOW_NS);
            exposition.step();
        }
        counters.granted(200_000);
        counters.granted(400_000);
        counters.publish(&shard, NOW_NS);
        let text = exposition.render();
        let bucket = |le: &str| value(&text, &format!("monolock_wait_seconds_bucket{{le=\"{le}\"}}"));
        assert_eq!(bucket("0.0001"), 2.0);
        assert_eq!(bucket("0.001"), 6.0);
        assert_eq!(bucket("3600"), 6.0);
        assert_eq!(bucket("+Inf"), 7.0);
        assert!((value(&text, "monolock_wait_seconds_sum") - 7200.0018).abs() < 1e-9);
    }

    #[test]
    fn more_samples_than_the_recorder_may_hold_are_all_counted() {
        let sources = sources(1);
        turns(&sources.shards[0], &[3 * SAMPLES_HELD_MAX + 1]);
        let text = Exposition::new(sources).render();
        assert_eq!(
            value(&text, "monolock_heartbeat_service_seconds_count"),
            (3 * SAMPLES_HELD_MAX + 1) as f64
        );
    }

    #[test]
    fn the_mean_of_new_samples_stays_in_their_bucket() {
        let fed = Bucket { count: 10, sum_ns: u64::MAX - 10 };
        let saturated = Bucket { count: 20, sum_ns: u64::MAX };
        assert_eq!(mean_of_new(fed, saturated, Some(1_000), Some(2_000)), 1_001.0 / NS_PER_S);
        let seen = Bucket { count: 3, sum_ns: 6_000 };
        assert_eq!(mean_of_new(Bucket::default(), seen, Some(1_000), Some(2_000)), seconds(2_000));
    }
}
