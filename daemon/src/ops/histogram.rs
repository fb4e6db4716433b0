//! Histograms in the Prometheus text format.
//!
//! The recorder of `metrics-exporter-prometheus` takes histogram samples one by one. The shards have counted
//! theirs into buckets already, a million a second at times; those buckets are written out as they stand.

use std::fmt::{self, Write};

use crate::metrics::cells::Cells;
use crate::metrics::names::{BUCKETS, Quantity};

const NS_PER_S: f64 = 1e9;

/// Appends every histogram: one series each, or one a shard.
pub(super) fn write_histograms(text: &mut String, all: &Cells, shards: &[Cells]) {
    for quantity in Quantity::ALL {
        write_family(text, quantity, all, shards).expect("a String takes everything");
    }
}

fn write_family(text: &mut String, quantity: Quantity, all: &Cells, shards: &[Cells]) -> fmt::Result {
    let name = quantity.name();
    writeln!(text, "# HELP {name} {}", quantity.help())?;
    writeln!(text, "# TYPE {name} histogram")?;
    if quantity.is_per_shard() {
        for (shard, cells) in shards.iter().enumerate() {
            write_series(text, quantity, &format!("shard=\"{shard}\""), cells)?;
        }
    } else {
        write_series(text, quantity, "", all)?;
    }
    writeln!(text)
}

fn write_series(text: &mut String, quantity: Quantity, label: &str, cells: &Cells) -> fmt::Result {
    let name = quantity.name();
    let comma = if label.is_empty() { "" } else { "," };
    let braced = if label.is_empty() { String::new() } else { format!("{{{label}}}") };
    let bounds_ns = quantity.bounds_ns();
    let (mut count, mut sum_ns) = (0_u64, 0_u64);
    for index in 0..BUCKETS {
        let bucket = cells.bucket(quantity, index);
        count += bucket.count;
        sum_ns = sum_ns.saturating_add(bucket.sum_ns);
        match bounds_ns.get(index) {
            Some(&bound_ns) => {
                writeln!(text, "{name}_bucket{{{label}{comma}le=\"{}\"}} {count}", seconds(bound_ns))?;
            }
            None => writeln!(text, "{name}_bucket{{{label}{comma}le=\"+Inf\"}} {count}")?,
        }
    }
    writeln!(text, "{name}_sum{braced} {}", seconds(sum_ns))?;
    writeln!(text, "{name}_count{braced} {count}")
}

fn seconds(ns: u64) -> f64 {
    ns as f64 / NS_PER_S
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_are_cumulative_and_the_sum_is_exact() {
        let mut cells = Cells::default();
        for wait_ns in [0, 100_000, 100_001, 999_999, 7_200_000_000_000] {
            cells.observe(Quantity::Wait, wait_ns, 1);
        }
        cells.observe(Quantity::Wait, 300_000, 2);
        let mut text = String::new();
        write_histograms(&mut text, &cells, &[]);
        let lines: Vec<&str> = text.lines().filter(|line| line.contains("monolock_wait_seconds")).collect();
        assert_eq!(lines[1], "# TYPE monolock_wait_seconds histogram");
        assert_eq!(lines[2], "monolock_wait_seconds_bucket{le=\"0.0001\"} 2");
        assert_eq!(lines[3], "monolock_wait_seconds_bucket{le=\"0.001\"} 6");
        assert_eq!(lines[2 + BUCKETS - 2], "monolock_wait_seconds_bucket{le=\"3600\"} 6");
        assert_eq!(lines[2 + BUCKETS - 1], "monolock_wait_seconds_bucket{le=\"+Inf\"} 7");
        assert_eq!(lines[2 + BUCKETS], "monolock_wait_seconds_sum 7200.0018");
        assert_eq!(lines[2 + BUCKETS + 1], "monolock_wait_seconds_count 7");
    }

    #[test]
    fn a_quantity_of_each_shard_has_a_series_of_each_shard() {
        let mut shards = [Cells::default(), Cells::default()];
        shards[1].observe(Quantity::LoopLag, 1, 3);
        let mut text = String::new();
        write_histograms(&mut text, &Cells::default(), &shards);
        let count = |shard| format!("\nmonolock_shard_loop_lag_seconds_count{{shard=\"{shard}\"}} ");
        assert!(text.contains(&(count(0) + "0\n")) && text.contains(&(count(1) + "3\n")), "{text}");
        assert!(
            text.contains("monolock_shard_loop_lag_seconds_bucket{shard=\"1\",le=\"+Inf\"} 3\n"),
            "{text}"
        );
    }
}
