//! What the guardian does next, and until when: decided without clock, process or pipe.
//!
//! Times are nanoseconds of CLOCK_BOOTTIME.

use super::order::{Deadlines, Order};
use super::watch::KILLED_NS_MAX;

/// `monolock run` asks the group to end as soon as its claim is lost. The guardian does it after this part of
/// the time that is left then: a group that both asked would be asked twice.
const HEAD_START_DIVISOR: u64 = 4;

/// What to do now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Act {
    /// Nothing.
    Wait,
    /// Let the command start.
    LetGo,
    /// Ask the group to end.
    Ask,
    /// End the group.
    Kill,
    /// Leave.
    Leave(Verdict),
}

/// How the guardian leaves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// The group ended without it, or was stopped by `monolock run` too.
    Idle,
    /// It had to stop the group by itself.
    Acted,
}

/// The decisions over one group.
#[derive(Debug)]
pub(crate) struct Vigil {
    deadlines: Deadlines,
    progress: Progress,
    let_go: bool,
    verdict: Verdict,
}

#[derive(Debug, Clone, Copy)]
enum Progress {
    /// Nothing is known yet, and nothing runs.
    Unasked,
    Watching,
    /// The group was asked to end, and nothing changes that any more.
    Asked,
    Killed {
        leave_ns: u64,
    },
    Over,
}

impl Vigil {
    pub(crate) fn new() -> Self {
        let never = Deadlines { ask_ns: u64::MAX, kill_ns: u64::MAX };
        Self { deadlines: never, progress: Progress::Unasked, let_go: false, verdict: Verdict::Idle }
    }

    /// `monolock run` gives an order.
    pub(crate) fn order(&mut self, order: Order) {
        match (order, self.progress) {
            (Order::Farewell, _) => self.progress = Progress::Over,
            (Order::Watch(deadlines), Progress::Unasked | Progress::Watching) => {
                self.deadlines = deadlines;
                self.progress = Progress::Watching;
            }
            // Too late for more time.
            (Order::Watch(Deadlines { kill_ns, .. }), Progress::Asked) => {
                self.deadlines.kill_ns = self.deadlines.kill_ns.min(kill_ns);
            }
            (Order::Watch(_), Progress::Killed { .. } | Progress::Over) => {}
        }
    }

    /// `monolock run` is gone without a farewell: the server passes the lock on already.
    pub(crate) fn deserted(&mut self) {
        match self.progress {
            Progress::Unasked => self.progress = Progress::Over,
            Progress::Watching | Progress::Asked => self.deadlines.kill_ns = 0,
            Progress::Killed { .. } | Progress::Over => {}
        }
    }

    /// Nobody is left in the group.
    pub(crate) fn gone(&mut self) {
        self.progress = Progress::Over;
    }

    /// What is to be done; ask again after it was done.
    pub(crate) fn next(&mut self, now_ns: u64) -> Act {
        match self.progress {
            Progress::Watching | Progress::Asked if now_ns >= self.deadlines.kill_ns => {
                if self.deadlines.ask_ns != u64::MAX {
                    self.verdict = Verdict::Acted;
                }
                self.progress = Progress::Killed { leave_ns: now_ns.saturating_add(KILLED_NS_MAX) };
                Act::Kill
            }
            Progress::Watching if now_ns >= self.ask_ns() => {
                self.verdict = Verdict::Acted;
                self.progress = Progress::Asked;
                Act::Ask
            }
            Progress::Watching if !self.let_go && now_ns < self.deadlines.ask_ns => {
                self.let_go = true;
                Act::LetGo
            }
            Progress::Killed { leave_ns } if now_ns >= leave_ns => Act::Leave(self.verdict),
            Progress::Over => Act::Leave(self.verdict),
            Progress::Unasked | Progress::Watching | Progress::Asked | Progress::Killed { .. } => Act::Wait,
        }
    }

    /// When to ask again at the latest.
    pub(crate) fn wake_ns(&self) -> u64 {
        match self.progress {
            Progress::Unasked => u64::MAX,
            Progress::Watching => self.ask_ns().min(self.deadlines.kill_ns),
            Progress::Asked => self.deadlines.kill_ns,
            Progress::Killed { leave_ns } => leave_ns,
            Progress::Over => 0,
        }
    }

    /// Whether the group was killed.
    pub(crate) fn has_killed(&self) -> bool {
        matches!(self.progress, Progress::Killed { .. })
    }

    fn ask_ns(&self) -> u64 {
        let Deadlines { ask_ns, kill_ns } = self.deadlines;
        ask_ns.saturating_add(kill_ns.saturating_sub(ask_ns) / HEAD_START_DIVISOR)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn watch(ask_ns: u64, kill_ns: u64) -> Order {
        Order::Watch(Deadlines { ask_ns, kill_ns })
    }

    fn watching(ask_ns: u64, kill_ns: u64) -> Vigil {
        let mut vigil = Vigil::new();
        vigil.order(watch(ask_ns, kill_ns));
        assert_eq!(vigil.next(0), Act::LetGo);
        assert_eq!(vigil.next(0), Act::Wait);
        vigil
    }

    #[test]
    fn nothing_starts_before_a_deadline_is_known_or_after_it() {
        let mut vigil = Vigil::new();
        assert_eq!((vigil.next(0), vigil.wake_ns()), (Act::Wait, u64::MAX));
        vigil.order(watch(80, 92));
        assert_eq!(vigil.next(80), Act::Wait);
        vigil.order(watch(90, 102));
        assert_eq!(vigil.next(81), Act::LetGo);
    }

    #[test]
    fn a_group_without_more_time_is_asked_after_a_head_start_and_then_killed() {
        let mut vigil = watching(80, 92);
        assert_eq!(vigil.wake_ns(), 83);
        assert_eq!(vigil.next(82), Act::Wait);
        assert_eq!(vigil.next(83), Act::Ask);
        assert_eq!((vigil.next(91), vigil.wake_ns()), (Act::Wait, 92));
        assert_eq!(vigil.next(92), Act::Kill);
        assert_eq!(vigil.wake_ns(), 92 + KILLED_NS_MAX);
        assert!(vigil.has_killed());
        vigil.gone();
        assert_eq!(vigil.next(93), Act::Leave(Verdict::Acted));
    }

    #[test]
    fn more_time_is_given_in_time_or_not_at_all() {
        let mut vigil = watching(80, 92);
        vigil.order(watch(105, 117));
        assert_eq!((vigil.next(83), vigil.wake_ns()), (Act::Wait, 108));
        assert_eq!(vigil.next(108), Act::Ask);
        vigil.order(watch(130, 142));
        assert_eq!(vigil.wake_ns(), 117);
        vigil.order(watch(u64::MAX, 110));
        assert_eq!(vigil.next(110), Act::Kill);
    }

    #[test]
    fn a_guardian_that_wakes_up_late_kills_without_asking() {
        assert_eq!(watching(80, 92).next(92), Act::Kill);
    }

    #[test]
    fn a_group_that_monolock_run_has_asked_is_not_asked_again() {
        let mut vigil = watching(80, 92);
        vigil.order(watch(u64::MAX, 90));
        assert_eq!(vigil.wake_ns(), 90);
        assert_eq!(vigil.next(89), Act::Wait);
        assert_eq!(vigil.next(90), Act::Kill);
        vigil.gone();
        assert_eq!(vigil.next(91), Act::Leave(Verdict::Idle));
    }

    #[test]
    fn a_group_that_is_deserted_is_killed_at_once_unless_it_never_was_one() {
        let mut vigil = watching(80, 92);
        vigil.deserted();
        assert_eq!(vigil.wake_ns(), 0);
        assert_eq!(vigil.next(1), Act::Kill);
        assert_eq!(vigil.next(1), Act::Wait);
        assert_eq!(vigil.next(1 + KILLED_NS_MAX), Act::Leave(Verdict::Acted));

        let mut vigil = Vigil::new();
        vigil.deserted();
        assert_eq!(vigil.next(1), Act::Leave(Verdict::Idle));
    }

    #[test]
    fn a_farewell_ends_the_watch_and_tells_whether_it_came_to_something() {
        let mut vigil = watching(80, 92);
        vigil.order(Order::Farewell);
        vigil.deserted();
        assert_eq!((vigil.next(200), vigil.wake_ns()), (Act::Leave(Verdict::Idle), 0));

        let mut vigil = watching(80, 92);
        assert_eq!(vigil.next(83), Act::Ask);
        vigil.order(Order::Farewell);
        assert_eq!(vigil.next(84), Act::Leave(Verdict::Acted));
    }
}
