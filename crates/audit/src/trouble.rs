//! When to say in the diagnostic log that the audit log suffers, and when that it is well again.

use std::time::Duration;

use tokio::time::Instant;

/// The least time between two lines about the same trouble.
pub(super) const REPEAT: Duration = Duration::from_secs(10);

/// Something to say; `lost` counts the events that are missing since all was last said to be well.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Notice {
    /// Writing fails.
    Fails { lost: u64 },
    /// Writing works again, after it was said to fail.
    WorksAgain { lost: u64 },
    /// The log was too slow, or failed for a moment.
    Behind { lost: u64 },
}

/// Judges what was said and what is worth saying.
#[derive(Debug, Default)]
pub(super) struct Trouble {
    /// It was said that writing fails.
    failing: bool,
    said: Option<Instant>,
    /// The count of dropped events when all was last said to be well.
    dropped: u64,
}

impl Trouble {
    /// A write failed; `dropped` events are missing since the start.
    pub(super) fn failed(&mut self, now: Instant, dropped: u64) -> Option<Notice> {
        if !self.is_time(now) {
            return None;
        }
        self.failing = true;
        self.said = Some(now);
        Some(Notice::Fails { lost: dropped - self.dropped })
    }

    /// A write worked.
    pub(super) fn worked(&mut self, now: Instant, dropped: u64) -> Option<Notice> {
        let lost = dropped - self.dropped;
        let notice = if self.failing {
            Notice::WorksAgain { lost }
        } else if lost > 0 && self.is_time(now) {
            Notice::Behind { lost }
        } else {
            return None;
        };
        *self = Self { failing: false, said: Some(now), dropped };
        Some(notice)
    }

    fn is_time(&self, now: Instant) -> bool {
        self.said.is_none_or(|said| now.duration_since(said) >= REPEAT)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_is_said_when_it_begins_every_ten_seconds_and_when_it_ends() {
        let start = Instant::now();
        let at = |ms| start + Duration::from_millis(ms);
        let mut trouble = Trouble::default();
        assert_eq!(trouble.worked(at(0), 0), None);
        assert_eq!(trouble.failed(at(1), 0), Some(Notice::Fails { lost: 0 }));
        assert_eq!(trouble.failed(at(10_000), 5), None);
        assert_eq!(trouble.failed(at(10_001), 7), Some(Notice::Fails { lost: 7 }));
        assert_eq!(trouble.worked(at(10_002), 9), Some(Notice::WorksAgain { lost: 9 }));
        assert_eq!(trouble.worked(at(60_000), 9), None);
        assert_eq!(trouble.failed(at(60_001), 10), Some(Notice::Fails { lost: 1 }));
    }

    #[test]
    fn a_disk_that_fails_and_works_in_turn_fills_no_log() {
        let start = Instant::now();
        let mut trouble = Trouble::default();
        let mut said = 0;
        for ms in (0..60_000).step_by(200) {
            let now = start + Duration::from_millis(ms);
            said += usize::from(trouble.failed(now, ms).is_some());
            said += usize::from(trouble.worked(now, ms).is_some());
        }
        assert_eq!(said, 2 * 6);
    }

    #[test]
    fn losses_without_a_failure_are_said_at_most_every_ten_seconds() {
        let start = Instant::now();
        let at = |ms| start + Duration::from_millis(ms);
        let mut trouble = Trouble::default();
        assert_eq!(trouble.worked(at(0), 3), Some(Notice::Behind { lost: 3 }));
        assert_eq!(trouble.worked(at(9_999), 8), None);
        assert_eq!(trouble.worked(at(10_000), 9), Some(Notice::Behind { lost: 6 }));
    }
}
