//! A shard's own counters, and the copy of them that others may read.

use std::sync::atomic::{AtomicU64, Ordering, fence};

use locks::{Counts, Reason};
use protocol::ErrorCode;

use super::cells::{CELLS, Cells};
use super::names::{Count, Level, Quantity};

/// How far the published numbers may lag a shard's own: a fifth of the 100 ms that metrics may lag the truth,
/// and so seldom that copying costs nothing.
const PUBLISH_INTERVAL_NS: u64 = 20_000_000;

/// Attempts to read a shard's numbers while it writes. The writer is inside for under a microsecond, unless
/// it was preempted there: then waiting is of no use.
const READ_ATTEMPTS: usize = 8;

/// When the parts of a shard's turn were done. CLOCK_MONOTONIC, ns.
#[derive(Debug, Clone, Copy)]
pub(crate) struct TurnTimes {
    /// The wait returned.
    pub(crate) woken_ns: u64,
    /// Answers were with the kernel.
    pub(crate) answered_ns: u64,
    /// Leases were looked at too, and what came of it was with the kernel.
    pub(crate) ended_ns: u64,
    /// Anything came.
    pub(crate) busy: bool,
}

/// What a shard counts, in integers that only it touches: no atomic, no shared cache line, no string.
#[derive(Debug, Default)]
pub(crate) struct ShardCounters {
    /// Heartbeats received since the start.
    pub(crate) heartbeats: u64,
    /// Grants of this turn that followed a release in it.
    pub(crate) hand_overs_this_turn: u64,
    heartbeats_before_turn: u64,
    cells: Cells,
    /// Something has been counted that is not yet published.
    unpublished: bool,
    turn_ended_ns: u64,
    published_ns: u64,
}

impl ShardCounters {
    /// A claim was granted after `wait_ns`.
    pub(crate) fn granted(&mut self, wait_ns: u64) {
        *self.cells.count_mut(Count::Acquires) += 1;
        self.cells.observe(Quantity::Wait, wait_ns, 1);
    }

    /// An ownership ended after `held_ns`.
    pub(crate) fn released(&mut self, reason: Reason, held_ns: u64) {
        *self.cells.releases_mut(reason) += 1;
        self.cells.observe(Quantity::Hold, held_ns, 1);
    }

    /// An ERROR was sent.
    pub(crate) fn protocol_error(&mut self, code: ErrorCode) {
        *self.cells.errors_mut(code) += 1;
    }

    /// Accounts for a turn.
    pub(crate) fn finish_turn(&mut self, times: TurnTimes, counts: Counts) {
        let TurnTimes { woken_ns, answered_ns, ended_ns, busy } = times;
        let heartbeats = self.heartbeats - self.heartbeats_before_turn;
        if heartbeats > 0 {
            self.cells.observe(Quantity::HeartbeatService, answered_ns.saturating_sub(woken_ns), heartbeats);
            *self.cells.count_mut(Count::Heartbeats) = self.heartbeats;
            self.heartbeats_before_turn = self.heartbeats;
        }
        let turn_ns = ended_ns.saturating_sub(woken_ns);
        if self.hand_overs_this_turn > 0 {
            self.cells.observe(Quantity::Handover, turn_ns, self.hand_overs_this_turn);
            self.hand_overs_this_turn = 0;
        }
        if busy {
            self.cells.observe(Quantity::LoopLag, turn_ns, 1);
        }
        *self.cells.level_mut(Level::Connections) = (counts.sessions - counts.reserved) as u64;
        *self.cells.level_mut(Level::LocksHeld) = counts.locks_held as u64;
        *self.cells.level_mut(Level::Waiters) = counts.waiters as u64;
        self.unpublished = true;
        self.turn_ended_ns = ended_ns;
    }

    /// Publishes the turn that [`finish_turn`](Self::finish_turn) closed: its time always, the numbers when
    /// they are due.
    pub(crate) fn publish_if_due(&mut self, published: &Published) {
        if self.turn_ended_ns.saturating_sub(self.published_ns) >= PUBLISH_INTERVAL_NS {
            self.publish(published, self.turn_ended_ns);
        } else {
            published.beat(self.turn_ended_ns);
        }
    }

    /// When the shard must be awake to publish, CLOCK_MONOTONIC ns; `None` when all is published.
    pub(crate) fn publication_due_ns(&self) -> Option<u64> {
        self.unpublished.then_some(self.published_ns + PUBLISH_INTERVAL_NS)
    }

    /// Publishes all numbers now.
    pub(crate) fn publish(&mut self, published: &Published, now_ns: u64) {
        published.write(&self.cells);
        published.beat(now_ns);
        self.published_ns = now_ns;
        self.unpublished = false;
    }
}

/// What one shard lets others see. Only that shard writes it; alignment keeps it off other shards' cache
/// lines (128: the adjacent-line prefetcher fetches pairs).
#[derive(Debug)]
#[repr(align(128))]
pub(crate) struct Published {
    /// End of the last turn, CLOCK_MONOTONIC ns.
    beat_ns: AtomicU64,
    /// Odd while the cells are being written.
    version: AtomicU64,
    cells: [AtomicU64; CELLS],
}

impl Default for Published {
    fn default() -> Self {
        Self {
            beat_ns: AtomicU64::new(0),
            version: AtomicU64::new(0),
            cells: std::array::from_fn(|_| AtomicU64::new(0)),
        }
    }
}

impl Published {
    /// End of the shard's last turn, CLOCK_MONOTONIC ns; 0 before the first.
    pub(crate) fn beat_ns(&self) -> u64 {
        self.beat_ns.load(Ordering::Relaxed)
    }

    fn beat(&self, now_ns: u64) {
        self.beat_ns.store(now_ns, Ordering::Relaxed);
    }

    fn write(&self, cells: &Cells) {
        let version = self.version.load(Ordering::Relaxed);
        debug_assert!(version.is_multiple_of(2), "only the owning shard writes");
        self.version.store(version + 1, Ordering::Relaxed);
        fence(Ordering::Release);
        for (cell, value) in self.cells.iter().zip(&cells.0) {
            cell.store(*value, Ordering::Relaxed);
        }
        self.version.store(version + 2, Ordering::Release);
    }

    /// The numbers of one publication; `None` when the shard was always found writing: keep the previous
    /// ones.
    pub(crate) fn read(&self) -> Option<Cells> {
        for _ in 0..READ_ATTEMPTS {
            let version = self.version.load(Ordering::Acquire);
            let cells = Cells(std::array::from_fn(|index| self.cells[index].load(Ordering::Relaxed)));
            fence(Ordering::Acquire);
            if version.is_multiple_of(2) && self.version.load(Ordering::Relaxed) == version {
                return Some(cells);
            }
            std::hint::spin_loop();
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicBool;
    use std::thread;

    use super::super::cells::Bucket;
    use super::*;

    const NOW_NS: u64 = 1_000_000_000_000;

    fn counts(sessions: usize, locks_held: usize, waiters: usize) -> Counts {
        Counts { sessions, locks_held, waiters, ..Counts::default() }
    }

    /// A turn that began now.
    fn times(answered_ns: u64, ended_ns: u64, busy: bool) -> TurnTimes {
        let (answered_ns, ended_ns) = (NOW_NS + answered_ns, NOW_NS + ended_ns);
        TurnTimes { woken_ns: NOW_NS, answered_ns, ended_ns, busy }
    }

    #[test]
    fn what_a_shard_counts_is_what_others_read() {
        let published = Published::default();
        let mut counters = ShardCounters::default();
        counters.granted(7);
        counters.released(Reason::Expired, 9);
        counters.protocol_error(ErrorCode::UNKNOWN_TYPE);
        counters.heartbeats += 3;
        counters.hand_overs_this_turn += 1;
        counters.finish_turn(times(100, 150, true), Counts { reserved: 1, ..counts(6, 2, 3) });
        counters.publish(&published, NOW_NS + 150);

        let cells = published.read().unwrap();
        assert_eq!(cells.level(Level::Connections), 5);
        assert_eq!(cells.level(Level::LocksHeld), 2);
        assert_eq!(cells.level(Level::Waiters), 3);
        assert_eq!(cells.count(Count::Acquires), 1);
        assert_eq!(cells.count(Count::Heartbeats), 3);
        assert_eq!(cells.releases(Reason::Expired), 1);
        assert_eq!(cells.errors(ErrorCode::UNKNOWN_TYPE), 1);
        assert_eq!(cells.bucket(Quantity::Wait, 0), Bucket { count: 1, sum_ns: 7 });
        assert_eq!(cells.bucket(Quantity::Hold, 0), Bucket { count: 1, sum_ns: 9 });
        assert_eq!(cells.bucket(Quantity::HeartbeatService, 0), Bucket { count: 3, sum_ns: 300 });
        assert_eq!(cells.bucket(Quantity::Handover, 0), Bucket { count: 1, sum_ns: 150 });
        assert_eq!(cells.bucket(Quantity::LoopLag, 0), Bucket { count: 1, sum_ns: 150 });
        assert_eq!(published.beat_ns(), NOW_NS + 150);
    }

    #[test]
    fn a_turn_to_which_nothing_came_adds_no_sample() {
        let mut counters = ShardCounters { heartbeats: 2, hand_overs_this_turn: 1, ..Default::default() };
        counters.finish_turn(times(0, 0, true), counts(1, 1, 0));
        counters.finish_turn(times(0, 0, false), counts(1, 1, 0));
        assert_eq!(counters.cells.bucket(Quantity::HeartbeatService, 0).count, 2);
        assert_eq!(counters.cells.bucket(Quantity::Handover, 0).count, 1);
        assert_eq!(counters.cells.bucket(Quantity::LoopLag, 0).count, 1);
    }

    #[test]
    fn numbers_are_published_at_most_every_20_ms_and_the_beat_on_every_turn() {
        let published = Published::default();
        let mut counters = ShardCounters::default();
        counters.publish(&published, NOW_NS);
        assert_eq!(counters.publication_due_ns(), None);

        counters.heartbeats = 1;
        counters.finish_turn(times(0, PUBLISH_INTERVAL_NS - 1, true), counts(1, 0, 0));
        counters.publish_if_due(&published);
        assert_eq!(published.read().unwrap().count(Count::Heartbeats), 0);
        assert_eq!(published.beat_ns(), NOW_NS + PUBLISH_INTERVAL_NS - 1);
        assert_eq!(counters.publication_due_ns(), Some(NOW_NS + PUBLISH_INTERVAL_NS));

        counters.finish_turn(times(0, PUBLISH_INTERVAL_NS, true), counts(1, 0, 0));
        counters.publish_if_due(&published);
        assert_eq!(published.read().unwrap().count(Count::Heartbeats), 1);
        assert_eq!(counters.publication_due_ns(), None, "an idle shard sleeps long");
    }

    #[test]
    fn a_reader_never_sees_half_of_a_publication() {
        let published = Published::default();
        let stop = AtomicBool::new(false);
        thread::scope(|scope| {
            scope.spawn(|| {
                let mut cells = Cells::default();
                while !stop.load(Ordering::Relaxed) {
                    cells.0.iter_mut().for_each(|cell| *cell += 1);
                    published.write(&cells);
                }
            });
            let mut reads = 0;
            while reads < 1_000 {
                if let Some(Cells(cells)) = published.read() {
                    reads += 1;
                    if cells.iter().any(|&cell| cell != cells[0]) {
                        stop.store(true, Ordering::Relaxed);
                        panic!("numbers of two publications: {cells:?}");
                    }
                }
            }
            stop.store(true, Ordering::Relaxed);
        });
    }
}
