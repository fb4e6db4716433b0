//! Series that are registered once, so that all of them are there from the first scrape on.

use metrics::{Counter, Gauge, Histogram, Key, KeyName, Label, Level as Verbosity, Metadata, Recorder};
use metrics_exporter_prometheus::PrometheusRecorder;

pub(super) const METADATA: Metadata<'static> = Metadata::new("monolock", Verbosity::INFO, None);

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

/// For what happens seldom: samples are kept one by one.
pub(super) fn register_summary(
    recorder: &PrometheusRecorder,
    name: &'static str,
    help: &'static str,
) -> Histogram {
    recorder.describe_histogram(KeyName::from_const_str(name), None, help.into());
    recorder.register_histogram(&Key::from_static_name(name), &METADATA)
}
