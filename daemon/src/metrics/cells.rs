//! All numbers of a shard in one flat array, so that they are copied, compared and added as a whole.

use locks::Reason;
use protocol::ErrorCode;

use super::names::{BUCKETS, CODES, Count, Level, Quantity, code_index, reason_index};

const COUNTS_AT: usize = Level::ALL.len();
const RELEASES_AT: usize = COUNTS_AT + Count::ALL.len();
const CODES_AT: usize = RELEASES_AT + Reason::ALL.len();
const BUCKETS_AT: usize = CODES_AT + CODES.len();
/// Numbers of a bucket: how many samples, and their sum in ns.
const PER_BUCKET: usize = 2;

/// How many numbers a shard has.
pub(crate) const CELLS: usize = BUCKETS_AT + Quantity::ALL.len() * BUCKETS * PER_BUCKET;

/// The numbers of one shard, or the sum of several shards' numbers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Cells(pub(crate) [u64; CELLS]);

/// The samples of one bucket.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Bucket {
    pub(crate) count: u64,
    pub(crate) sum_ns: u64,
}

impl Default for Cells {
    fn default() -> Self {
        Self([0; CELLS])
    }
}

impl Cells {
    pub(crate) fn level(&self, level: Level) -> u64 {
        self.0[level as usize]
    }

    pub(crate) fn level_mut(&mut self, level: Level) -> &mut u64 {
        &mut self.0[level as usize]
    }

    pub(crate) fn count(&self, count: Count) -> u64 {
        self.0[COUNTS_AT + count as usize]
    }

    pub(crate) fn count_mut(&mut self, count: Count) -> &mut u64 {
        &mut self.0[COUNTS_AT + count as usize]
    }

    pub(crate) fn releases(&self, reason: Reason) -> u64 {
        self.0[RELEASES_AT + reason_index(reason)]
    }

    pub(crate) fn releases_mut(&mut self, reason: Reason) -> &mut u64 {
        &mut self.0[RELEASES_AT + reason_index(reason)]
    }

    pub(crate) fn errors(&self, code: ErrorCode) -> u64 {
        self.0[CODES_AT + code_index(code)]
    }

    pub(crate) fn errors_mut(&mut self, code: ErrorCode) -> &mut u64 {
        &mut self.0[CODES_AT + code_index(code)]
    }

    /// Bucket `index` of a histogram; the last one is without bound.
    pub(crate) fn bucket(&self, quantity: Quantity, index: usize) -> Bucket {
        let at = bucket_at(quantity, index);
        Bucket { count: self.0[at], sum_ns: self.0[at + 1] }
    }

    /// Counts `samples` samples of `ns` each.
    pub(crate) fn observe(&mut self, quantity: Quantity, ns: u64, samples: u64) {
        let at = bucket_at(quantity, quantity.bounds_ns().partition_point(|&bound_ns| bound_ns < ns));
        self.0[at] += samples;
        // 584 years of summed waiting may be reached by many waiters; a sum that stands still is better than
        // a panic.
        self.0[at + 1] = self.0[at + 1].saturating_add(ns.saturating_mul(samples));
    }

    /// Adds another shard's numbers.
    pub(crate) fn merge(&mut self, other: &Self) {
        for (mine, theirs) in self.0.iter_mut().zip(&other.0) {
            *mine = mine.saturating_add(*theirs);
        }
    }
}

fn bucket_at(quantity: Quantity, index: usize) -> usize {
    BUCKETS_AT + (quantity as usize * BUCKETS + index) * PER_BUCKET
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_two_numbers_share_a_cell() {
        let mut cells = Cells::default();
        for level in Level::ALL {
            *cells.level_mut(level) += 1;
        }
        for count in Count::ALL {
            *cells.count_mut(count) += 1;
        }
        for reason in Reason::ALL {
            *cells.releases_mut(reason) += 1;
        }
        for code in CODES {
            *cells.errors_mut(code) += 1;
        }
        for quantity in Quantity::ALL {
            cells.observe(quantity, 1, 1);
            for bound_ns in &quantity.bounds_ns()[1..] {
                cells.observe(quantity, *bound_ns, 1);
            }
            cells.observe(quantity, u64::MAX, 1);
            for index in 0..BUCKETS {
                assert_eq!(cells.bucket(quantity, index).count, 1);
            }
        }
        let sums = Quantity::ALL.len() * BUCKETS;
        let ones = cells.0.iter().filter(|&&cell| cell == 1).count();
        // The sum of the first bucket, one sample of 1 ns, is 1 too.
        assert_eq!(ones, CELLS - sums + Quantity::ALL.len());
    }

    #[test]
    fn a_bound_belongs_to_its_bucket() {
        let mut cells = Cells::default();
        let bound_ns = Quantity::Wait.bounds_ns()[3];
        cells.observe(Quantity::Wait, bound_ns, 2);
        cells.observe(Quantity::Wait, bound_ns + 1, 3);
        assert_eq!(cells.bucket(Quantity::Wait, 3), Bucket { count: 2, sum_ns: 2 * bound_ns });
        assert_eq!(cells.bucket(Quantity::Wait, 4), Bucket { count: 3, sum_ns: 3 * (bound_ns + 1) });
    }

    #[test]
    fn merging_adds_every_number() {
        let mut one = Cells::default();
        one.observe(Quantity::Hold, 5, 1);
        *one.level_mut(Level::Waiters) = 2;
        let mut both = one.clone();
        both.merge(&one);
        assert_eq!(both.bucket(Quantity::Hold, 0), Bucket { count: 2, sum_ns: 10 });
        assert_eq!(both.level(Level::Waiters), 4);
    }
}
