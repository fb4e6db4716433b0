//! Whether this instance should receive traffic, judged from what others published.

use std::sync::atomic::{AtomicU8, Ordering};

/// How long a shard's loop may go without a turn before it counts as hung. Five of the longest sleeps of a
/// healthy one.
const STALL_NS_MAX: u64 = 1_000_000_000;

const NS_PER_MS: u64 = 1_000_000;

/// Where the process stands in its life. Never goes back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Phase {
    Starting,
    Serving,
    ShuttingDown,
}

/// The phase, for one writer and many readers.
#[derive(Debug, Default)]
pub(super) struct Lifecycle(AtomicU8);

impl Lifecycle {
    pub(super) fn advance(&self, phase: Phase) {
        self.0.fetch_max(phase as u8, Ordering::Relaxed);
    }

    pub(super) fn phase(&self) -> Phase {
        match self.0.load(Ordering::Relaxed) {
            0 => Phase::Starting,
            1 => Phase::Serving,
            _ => Phase::ShuttingDown,
        }
    }
}

/// Why the instance should receive no traffic, one line for each failing check; empty when it should.
/// `beats_ns` are the ends of the shards' last turns. Times are CLOCK_MONOTONIC.
pub(super) fn failing_checks(now_ns: u64, phase: Phase, beats_ns: impl Iterator<Item = u64>) -> Vec<String> {
    let mut failing = Vec::new();
    match phase {
        // Shards that have not turned yet, or never will again, are part of these.
        Phase::Starting => return vec!["starting".into()],
        Phase::ShuttingDown => return vec!["shutting down".into()],
        Phase::Serving => {}
    }
    for (shard, beat_ns) in beats_ns.enumerate() {
        let stalled_ns = now_ns.saturating_sub(beat_ns);
        if beat_ns == 0 {
            failing.push(format!("shard {shard}: no turn yet"));
        } else if stalled_ns > STALL_NS_MAX {
            failing.push(format!("shard {shard}: no turn for {} ms", stalled_ns / NS_PER_MS));
        }
    }
    failing
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW_NS: u64 = 100_000_000_000;

    #[test]
    fn ready_is_who_serves_and_whose_shards_all_turn() {
        let beats = || [NOW_NS, NOW_NS - STALL_NS_MAX, NOW_NS + 1].into_iter();
        assert!(failing_checks(NOW_NS, Phase::Serving, beats()).is_empty());
        assert_eq!(failing_checks(NOW_NS, Phase::Starting, beats()), ["starting"]);
        assert_eq!(failing_checks(NOW_NS, Phase::ShuttingDown, beats()), ["shutting down"]);
    }

    #[test]
    fn each_stalled_shard_has_its_line() {
        let beats = [0, NOW_NS, NOW_NS - 1_532_000_000, NOW_NS - STALL_NS_MAX - 1];
        let failing = failing_checks(NOW_NS, Phase::Serving, beats.into_iter());
        let expected =
            ["shard 0: no turn yet", "shard 2: no turn for 1532 ms", "shard 3: no turn for 1000 ms"];
        assert_eq!(failing, expected);
    }

    #[test]
    fn a_life_does_not_go_backwards() {
        let life = Lifecycle::default();
        assert_eq!(life.phase(), Phase::Starting);
        life.advance(Phase::ShuttingDown);
        life.advance(Phase::Serving);
        assert_eq!(life.phase(), Phase::ShuttingDown);
    }
}
