//! The service time of the heartbeats of the last ten seconds, from what the shards have counted since their
//! start.

use std::collections::VecDeque;

use crate::metrics::cells::{Bucket, Cells};
use crate::metrics::names::{BUCKETS, Quantity};

/// How far back it looks.
const WINDOW_NS: u64 = 10_000_000_000;

/// How often the counts are kept. What lies at the window's far end goes in steps of this.
const STEP_NS: u64 = 500_000_000;

/// Among fewer heartbeats the 99th percentile is the slowest one, which says nothing of the load.
const HEARTBEATS_MIN: u64 = 100;

type Buckets = [Bucket; BUCKETS];

/// The counts of a while ago, so that what came since is their difference to those of now.
#[derive(Debug)]
pub(super) struct Window {
    /// In order of time; together with the step to come none is older than the window.
    kept: VecDeque<(u64, Buckets)>,
    p99_ns: Option<u64>,
}

impl Window {
    pub(super) fn new(now_ns: u64) -> Self {
        Self { kept: VecDeque::from([(now_ns, [Bucket::default(); BUCKETS])]), p99_ns: None }
    }

    /// Whether it is time for [`take`](Self::take).
    pub(super) fn is_due(&self, now_ns: u64) -> bool {
        self.kept.back().is_none_or(|(at_ns, _)| now_ns.saturating_sub(*at_ns) >= STEP_NS)
    }

    /// Takes the counts of all shards. One burst of slow heartbeats is in sight for less than the window, so
    /// that a limit that has to last as long is not met by it.
    pub(super) fn take(&mut self, now_ns: u64, all: &Cells) {
        let now = std::array::from_fn(|index| all.bucket(Quantity::HeartbeatService, index));
        while self.kept.front().is_some_and(|(at_ns, _)| now_ns.saturating_sub(*at_ns) > WINDOW_NS - STEP_NS)
        {
            self.kept.pop_front();
        }
        self.kept.push_back((now_ns, now));
        self.p99_ns = p99_ns(&self.kept[0].1, &now);
    }

    /// The 99th percentile; `None` after too few heartbeats.
    pub(super) fn p99_ns(&self) -> Option<u64> {
        self.p99_ns
    }
}

/// As `histogram_quantile` of Prometheus has it: within a bucket evenly. Where that has no upper bound, the
/// mean of what is in it.
fn p99_ns(from: &Buckets, to: &Buckets) -> Option<u64> {
    let since = |index: usize| Bucket {
        count: to[index].count.saturating_sub(from[index].count),
        sum_ns: to[index].sum_ns.saturating_sub(from[index].sum_ns),
    };
    let all: u64 = (0..BUCKETS).map(|index| since(index).count).sum();
    if all < HEARTBEATS_MIN {
        return None;
    }
    let bounds_ns = Quantity::HeartbeatService.bounds_ns();
    let rank = all as f64 * 0.99;
    let mut below = 0;
    for index in 0..BUCKETS {
        let Bucket { count, sum_ns } = since(index);
        if count > 0 && (below + count) as f64 >= rank {
            let Some(&bound_ns) = bounds_ns.get(index) else { return Some(sum_ns / count) };
            let lower_ns = index.checked_sub(1).map_or(0, |index| bounds_ns[index]);
            let part = (rank - below as f64) / count as f64;
            return Some(lower_ns + ((bound_ns - lower_ns) as f64 * part) as u64);
        }
        below += count;
    }
    unreachable!("the last bucket reaches every rank")
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: u64 = 1_000_000_000;
    const MS: u64 = 1_000_000;

    fn observed(samples: &[(u64, u64)]) -> Cells {
        let mut cells = Cells::default();
        samples.iter().for_each(|&(ns, count)| cells.observe(Quantity::HeartbeatService, ns, count));
        cells
    }

    fn p99_of(samples: &[(u64, u64)]) -> Option<u64> {
        let mut window = Window::new(0);
        window.take(S, &observed(samples));
        window.p99_ns()
    }

    #[test]
    fn the_percentile_is_that_of_its_bucket_and_beyond_all_bounds_the_mean() {
        assert_eq!(
            p99_of(&[(MS, 100)]),
            Some(995 * MS / 1000),
            "99 hundredths of the way through 0.5 to 1 ms"
        );
        // Of 1000 heartbeats 10 may be slower.
        assert!(p99_of(&[(MS, 990), (20 * MS, 10)]).unwrap() <= MS);
        assert!(p99_of(&[(MS, 989), (20 * MS, 11)]).unwrap() > 10 * MS);
        assert_eq!(p99_of(&[(MS, 98), (3 * S, 1), (5 * S, 1)]), Some(4 * S));
    }

    #[test]
    fn a_few_heartbeats_have_no_percentile() {
        assert_eq!(p99_of(&[]), None);
        assert_eq!(p99_of(&[(S, HEARTBEATS_MIN - 1)]), None);
        assert!(p99_of(&[(S, HEARTBEATS_MIN)]).is_some());
    }

    #[test]
    fn a_burst_is_in_sight_for_less_than_the_window() {
        let mut window = Window::new(0);
        let mut cells = observed(&[(MS, 1000)]);
        let mut slow_ns = 0;
        for step in 1..100 {
            let now_ns = step * STEP_NS;
            // Ten heartbeats a step, and once ten that are slow.
            cells.observe(Quantity::HeartbeatService, MS, 10);
            if step == 30 {
                cells.observe(Quantity::HeartbeatService, 20 * MS, 10);
            }
            assert!(window.is_due(now_ns) && !window.is_due(now_ns - 1));
            window.take(now_ns, &cells);
            slow_ns += if window.p99_ns().unwrap() > 5 * MS { STEP_NS } else { 0 };
        }
        assert!((9 * S..WINDOW_NS).contains(&slow_ns), "{slow_ns}");
    }

    #[test]
    fn after_a_pause_nothing_of_before_it_counts() {
        let mut window = Window::new(0);
        let slow = observed(&[(S, 1000)]);
        window.take(S, &slow);
        assert!(window.p99_ns().unwrap() > 100 * MS);
        window.take(60 * S, &slow);
        assert_eq!(window.p99_ns(), None);
    }
}
