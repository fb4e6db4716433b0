//! Figures with their noise: the spread over slices, and latency percentiles.

use std::fmt;
use std::time::Duration;

use hdrhistogram::Histogram;

use crate::clock::as_ns;

/// The longest latency that is told apart: longer than any deadline in this tool.
const LATENCY_MAX: Duration = Duration::from_secs(600);

/// Three digits: the error of a percentile stays below 0.1%, far below the noise of any machine.
const LATENCY_DIGITS: u8 = 3;

/// Smallest, middle and largest of the same figure from several slices.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Spread {
    pub(crate) min: f64,
    pub(crate) median: f64,
    pub(crate) max: f64,
}

impl Spread {
    /// The spread of `figures`; `None` when there are none.
    pub(crate) fn of(figures: &[f64]) -> Option<Self> {
        let mut sorted = figures.to_vec();
        sorted.sort_by(f64::total_cmp);
        let (&min, &max) = (sorted.first()?, sorted.last()?);
        let upper = sorted.len() / 2;
        let median = if sorted.len() % 2 == 1 {
            sorted[upper]
        } else {
            f64::midpoint(sorted[upper - 1], sorted[upper])
        };
        Some(Self { min, median, max })
    }
}

/// Two decimals, or what the format asks for.
impl fmt::Display for Spread {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let decimals = f.precision().unwrap_or(2);
        let Self { min, median, max } = self;
        write!(f, "min {min:.decimals$}  median {median:.decimals$}  max {max:.decimals$}")
    }
}

/// Latencies of one kind, recorded in nanoseconds.
pub(crate) struct Latencies(Histogram<u64>);

impl Latencies {
    pub(crate) fn new() -> Self {
        let histogram = Histogram::new_with_bounds(1, as_ns(LATENCY_MAX), LATENCY_DIGITS);
        Self(histogram.expect("the bounds are constants and valid"))
    }

    /// Records one latency; allocates nothing.
    pub(crate) fn record(&mut self, ns: u64) {
        self.0.saturating_record(ns);
    }

    pub(crate) fn len(&self) -> u64 {
        self.0.len()
    }

    /// The latency in µs that this share (0 to 1) of them does not exceed.
    pub(crate) fn quantile_us(&self, share: f64) -> f64 {
        self.0.value_at_quantile(share) as f64 / 1e3
    }

    pub(crate) fn max_us(&self) -> f64 {
        self.0.max() as f64 / 1e3
    }
}

/// `p50 … p99 … p99.9 … max …`, in µs.
impl fmt::Display for Latencies {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.len() == 0 {
            return f.write_str("none");
        }
        let [p50, p99, p999] = [0.5, 0.99, 0.999].map(|share| self.quantile_us(share));
        write!(f, "p50 {p50:.0}  p99 {p99:.0}  p99.9 {p999:.0}  max {:.0} µs", self.max_us())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_spread_does_not_depend_on_the_order_of_the_slices() {
        let expected = Some(Spread { min: 0.9, median: 1.1, max: 4.0 });
        assert_eq!(Spread::of(&[1.1, 4.0, 0.9]), expected);
        assert_eq!(Spread::of(&[0.9, 1.1, 4.0]), expected);
    }

    #[test]
    fn the_median_of_an_even_number_of_slices_lies_between_the_middle_two() {
        assert_eq!(Spread::of(&[4.0, 1.0, 2.0, 3.0]).unwrap().median, 2.5);
        assert_eq!(Spread::of(&[7.0]), Some(Spread { min: 7.0, median: 7.0, max: 7.0 }));
        assert_eq!(Spread::of(&[]), None);
    }

    #[test]
    fn percentiles_come_in_microseconds() {
        let mut latencies = Latencies::new();
        (1..=1000).for_each(|us| latencies.record(us * 1000));
        assert!((latencies.quantile_us(0.5) - 500.0).abs() < 1.0);
        assert!((latencies.quantile_us(0.99) - 990.0).abs() < 1.0);
        assert!((latencies.max_us() - 1000.0).abs() < 1.0);
    }
}
