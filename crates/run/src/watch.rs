//! What `monolock run` does next, and until when: decided without clock, process or socket.
//!
//! Times are nanoseconds of CLOCK_BOOTTIME.

use client::Loss;
use protocol::Lease;
use rustix::process::Signal;

use super::order::Deadlines;
use super::status;

/// The group is dead this many tenths of the lease after the last confirmation. The specification's number:
/// the last tenth is for clocks that run apart.
const DEAD_TENTHS: u64 = 9;

/// SIGKILL is sent this much before the group has to be dead, at most: what a loaded machine takes to wake us
/// up and to end a process.
const KILL_MARGIN_NS_MAX: u64 = 50_000_000;

/// The same as a part of the lease, for short leases: a hundredth, a tenth of the time between SIGTERM and
/// death.
const KILL_MARGIN_DIVISOR: u64 = 100;

/// What the command leaves in its group may take this long to end by SIGTERM while the lock is still held:
/// long enough for a shell's background job, short enough for whoever waits for the lock. A group that lost
/// its guardian has as long.
const LEFT_OVER_NS_MAX: u64 = 1_000_000_000;

/// How long a killed group may take to be gone. What is left then is stuck in the kernel, belongs to somebody
/// whom we may not signal, or is a zombie that nobody reaps; waiting on would not help.
pub(super) const KILLED_NS_MAX: u64 = 1_000_000_000;

/// What to do now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Step {
    /// Nothing.
    Wait,
    /// Send this to the group.
    Forward(Signal),
    /// Ask the group to end.
    Terminate,
    /// End the group.
    Kill,
    /// Leave, with this exit status.
    Finish(u8),
}

/// The course of one command under one claim.
#[derive(Debug)]
pub(crate) struct Watch {
    lease: Lease,
    /// The time between SIGTERM and SIGKILL after a loss, where the lease allows it.
    kill_after_ns: u64,
    /// The claim is lost.
    is_lost: bool,
    course: Course,
}

#[derive(Debug, Clone, Copy)]
enum Course {
    /// The command runs, or is about to.
    Running,
    /// The group was asked to end.
    Stopping { kill_ns: u64, outcome: Outcome },
    /// The group was killed.
    Killed { leave_ns: u64, outcome: Outcome },
}

/// What the exit status will tell.
#[derive(Debug, Clone, Copy)]
enum Outcome {
    Status(u8),
    /// The claim was lost under the command. If that never began, it was lost while waiting, and this is
    /// told.
    Lost {
        before_begun: u8,
    },
}

impl Watch {
    /// Begins with a lock that is held, and a command that is about to run.
    pub(crate) fn new(lease: Lease, kill_after_ns: Option<u64>) -> Self {
        let kill_after_ns = kill_after_ns.unwrap_or(u64::MAX);
        Self { lease, kill_after_ns, is_lost: false, course: Course::Running }
    }

    /// Whether the loss of the claim has been told.
    pub(crate) fn is_lost(&self) -> bool {
        self.is_lost
    }

    /// When to call [`Watch::alarm`].
    pub(crate) fn wake_ns(&self) -> Option<u64> {
        match self.course {
            Course::Running => None,
            Course::Stopping { kill_ns, .. } => Some(kill_ns),
            Course::Killed { leave_ns, .. } => Some(leave_ns),
        }
    }

    /// Until when the guardian may let the group go on, under a claim that was last confirmed then.
    pub(crate) fn deadlines(&self, confirmed_ns: u64) -> Deadlines {
        let limit_ns = self.kill_limit_ns(confirmed_ns);
        if !self.is_lost {
            let ask_ns = confirmed_ns + self.lease.as_ns() * client::GIVE_UP_TENTHS / 10;
            return Deadlines { ask_ns, kill_ns: limit_ns.min(ask_ns.saturating_add(self.kill_after_ns)) };
        }
        let kill_ns = match self.course {
            Course::Stopping { kill_ns, .. } => kill_ns.min(limit_ns),
            _ => limit_ns,
        };
        Deadlines { ask_ns: u64::MAX, kill_ns }
    }

    /// A signal came for `monolock run`.
    pub(crate) fn signal(&mut self, signal: Signal) -> Step {
        match self.course {
            Course::Running | Course::Stopping { .. } => Step::Forward(signal),
            Course::Killed { .. } => Step::Wait,
        }
    }

    /// The front was killed: so is the command.
    pub(crate) fn deserted(&mut self, now_ns: u64) -> Step {
        let killed = status::of_signal(Signal::KILL);
        match self.course {
            Course::Running => self.kill(now_ns, Outcome::Status(killed)),
            Course::Stopping { outcome, .. } => self.kill(now_ns, outcome),
            Course::Killed { .. } => Step::Wait,
        }
    }

    /// The command ended, with this status; others of its group may be left.
    pub(crate) fn ended(&mut self, now_ns: u64, code: u8, is_held: bool, confirmed_ns: u64) -> Step {
        match self.course {
            Course::Running if is_held => {
                let kill_ns = now_ns + LEFT_OVER_NS_MAX;
                self.course = Course::Stopping { kill_ns, outcome: Outcome::Status(code) };
                Step::Terminate
            }
            // How the claim was lost is the next event. Time alone has ended it so far.
            Course::Running => self.lose(now_ns, confirmed_ns, status::UNREACHABLE),
            Course::Stopping { .. } | Course::Killed { .. } => Step::Wait,
        }
    }

    /// The guardian is gone: the command does not run without it.
    pub(crate) fn unguarded(&mut self, now_ns: u64) -> Step {
        match self.course {
            Course::Running => {
                let kill_ns = now_ns + LEFT_OVER_NS_MAX.min(self.kill_after_ns);
                self.course = Course::Stopping { kill_ns, outcome: Outcome::Status(status::UNGUARDED) };
                Step::Terminate
            }
            Course::Stopping { .. } | Course::Killed { .. } => Step::Wait,
        }
    }

    /// The guardian had to stop the group by itself: for the command, the claim was lost. Whether the command
    /// had ended before that, nobody knows.
    pub(crate) fn overruled(&mut self, now_ns: u64) -> Step {
        match self.course {
            Course::Running | Course::Stopping { .. } | Course::Killed { .. } => {
                self.kill(now_ns, Outcome::Lost { before_begun: status::UNREACHABLE })
            }
        }
    }

    /// Nobody is left in the group, and the command had begun or not.
    pub(crate) fn gone(&mut self, has_begun: bool) -> Step {
        match self.course {
            Course::Running => unreachable!("a group is gone after its leader ended"),
            Course::Stopping { outcome, .. } | Course::Killed { outcome, .. } => {
                Step::Finish(outcome.status(has_begun))
            }
        }
    }

    /// Looks at the time. Harmless when early.
    pub(crate) fn alarm(&mut self, now_ns: u64) -> Step {
        match self.course {
            Course::Stopping { kill_ns, outcome } if now_ns >= kill_ns => self.kill(now_ns, outcome),
            Course::Killed { leave_ns, outcome } if now_ns >= leave_ns => Step::Finish(outcome.status(true)),
            _ => Step::Wait,
        }
    }

    /// The claim is lost, which was last confirmed as of `confirmed_ns`.
    pub(crate) fn lost(&mut self, now_ns: u64, loss: &Loss, confirmed_ns: u64) -> Step {
        let before_begun = status::of_loss_while_waiting(loss);
        self.is_lost = true;
        match self.course {
            Course::Running => self.lose(now_ns, confirmed_ns, before_begun),
            // The command itself ended under the lock; only what it left behind has less time now.
            Course::Stopping { kill_ns, outcome } => {
                let kill_ns = kill_ns.min(self.kill_limit_ns(confirmed_ns));
                self.course = Course::Stopping { kill_ns, outcome };
                self.alarm(now_ns)
            }
            Course::Killed { .. } => Step::Wait,
        }
    }

    fn lose(&mut self, now_ns: u64, confirmed_ns: u64, before_begun: u8) -> Step {
        let outcome = Outcome::Lost { before_begun };
        let kill_ns = self.kill_limit_ns(confirmed_ns).min(now_ns.saturating_add(self.kill_after_ns));
        if now_ns >= kill_ns {
            return self.kill(now_ns, outcome);
        }
        self.course = Course::Stopping { kill_ns, outcome };
        Step::Terminate
    }

    fn kill(&mut self, now_ns: u64, outcome: Outcome) -> Step {
        self.course = Course::Killed { leave_ns: now_ns + KILLED_NS_MAX, outcome };
        Step::Kill
    }

    /// When SIGKILL is due at the latest for a claim that was last confirmed then.
    fn kill_limit_ns(&self, confirmed_ns: u64) -> u64 {
        let lease_ns = self.lease.as_ns();
        let margin_ns = (lease_ns / KILL_MARGIN_DIVISOR).min(KILL_MARGIN_NS_MAX);
        confirmed_ns + lease_ns * DEAD_TENTHS / 10 - margin_ns
    }
}

impl Outcome {
    fn status(self, has_begun: bool) -> u8 {
        match self {
            Self::Status(code) => code,
            Self::Lost { .. } if has_begun => status::LOST,
            Self::Lost { before_begun } => before_begun,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    use client::Closed;
    use protocol::ErrorCode;

    const MS: u64 = 1_000_000;
    const TIMEOUT: Loss = Loss::HeartbeatTimeout;

    fn running(lease_ms: u32) -> Watch {
        Watch::new(Lease::from_ms(lease_ms).unwrap(), None)
    }

    #[test]
    fn a_signal_is_forwarded_to_a_running_command() {
        assert_eq!(running(10_000).signal(Signal::TERM), Step::Forward(Signal::TERM));
    }

    #[test]
    fn a_lost_claim_asks_the_group_to_end_and_kills_it_in_time_to_be_dead_at_nine_tenths() {
        let mut watch = running(10_000);
        let confirmed_ns = 3000 * MS;
        assert_eq!(watch.lost(11_000 * MS, &TIMEOUT, confirmed_ns), Step::Terminate);
        let kill_ns = 3000 * MS + 8950 * MS;
        assert_eq!(watch.wake_ns(), Some(kill_ns));
        assert_eq!(watch.alarm(kill_ns - 1), Step::Wait);
        assert_eq!(watch.alarm(kill_ns), Step::Kill);
        assert_eq!(watch.gone(true), Step::Finish(status::LOST));
    }

    #[test]
    fn a_command_that_never_began_leaves_the_status_of_a_claim_lost_while_waiting() {
        let standby = Loss::Server { code: ErrorCode::STANDBY, reason: String::new() };
        let mut watch = running(10_000);
        assert_eq!(watch.lost(8000 * MS, &standby, 0), Step::Terminate);
        assert_eq!(watch.gone(false), Step::Finish(status::NOT_ACQUIRED));

        // The loss is not told yet.
        let mut watch = running(10_000);
        assert_eq!(watch.ended(8950 * MS, 143, false, 0), Step::Kill);
        assert_eq!(watch.lost(8950 * MS, &TIMEOUT, 0), Step::Wait);
        assert_eq!(watch.gone(false), Step::Finish(status::UNREACHABLE));
    }

    #[test]
    fn the_time_after_sigterm_is_the_callers_where_the_lease_allows_it() {
        let lease = Lease::from_ms(10_000).unwrap();
        let watch = |kill_after_ms| Watch::new(lease, Some(kill_after_ms * MS));
        for (kill_after_ms, kill_ms) in [(100, 1100), (7950, 8950), (7951, 8950), (u64::MAX / MS, 8950)] {
            let mut watch = watch(kill_after_ms);
            assert_eq!(watch.lost(1000 * MS, &TIMEOUT, 0), Step::Terminate);
            assert_eq!(watch.wake_ns(), Some(kill_ms * MS), "{kill_after_ms}");
            assert_eq!(watch.deadlines(0), Deadlines { ask_ns: u64::MAX, kill_ns: kill_ms * MS });
        }
        assert_eq!(watch(0).lost(1000 * MS, &TIMEOUT, 0), Step::Kill);
        assert_eq!(watch(100).deadlines(5), Deadlines { ask_ns: 8000 * MS + 5, kill_ns: 8100 * MS + 5 });
    }

    #[test]
    fn the_guardian_has_the_deadlines_of_the_claim_until_it_is_lost_and_then_those_of_the_loss() {
        let mut watch = running(10_000);
        let held = Deadlines { ask_ns: 8001 * MS, kill_ns: 8951 * MS };
        assert_eq!(watch.deadlines(MS), held);
        // What is left over has its second, and the claim has to be confirmed all the same.
        assert_eq!(watch.ended(2 * MS, 0, true, MS), Step::Terminate);
        assert_eq!(watch.deadlines(MS), held);
        assert_eq!(watch.lost(3 * MS, &TIMEOUT, MS), Step::Wait);
        assert_eq!(watch.deadlines(MS), Deadlines { ask_ns: u64::MAX, kill_ns: 1002 * MS });
    }

    #[test]
    fn a_command_without_its_guardian_is_stopped_within_a_second() {
        let mut watch = running(10_000);
        assert_eq!(watch.unguarded(500 * MS), Step::Terminate);
        assert_eq!(watch.ended(600 * MS, 0, true, 0), Step::Wait);
        assert_eq!(watch.alarm(1500 * MS), Step::Kill);
        assert_eq!(watch.gone(true), Step::Finish(status::UNGUARDED));
    }

    #[test]
    fn a_command_whose_front_was_killed_is_killed_and_what_is_stopped_already_keeps_its_status() {
        let mut watch = running(10_000);
        assert_eq!(watch.deserted(500 * MS), Step::Kill);
        assert_eq!(watch.ended(500 * MS, 137, true, 0), Step::Wait);
        assert_eq!(watch.gone(true), Step::Finish(137));

        let mut watch = running(10_000);
        assert_eq!(watch.ended(500 * MS, 3, true, 0), Step::Terminate);
        assert_eq!(watch.deserted(600 * MS), Step::Kill);
        assert_eq!(watch.gone(true), Step::Finish(3));
    }

    #[test]
    fn a_group_that_the_guardian_stopped_by_itself_has_lost_its_claim() {
        let mut watch = running(10_000);
        assert_eq!(watch.overruled(500 * MS), Step::Kill);
        assert_eq!(watch.ended(500 * MS, 0, true, 0), Step::Wait);
        assert_eq!(watch.gone(true), Step::Finish(status::LOST));

        let mut watch = running(10_000);
        assert_eq!(watch.ended(500 * MS, 3, true, 0), Step::Terminate);
        assert_eq!(watch.overruled(600 * MS), Step::Kill);
        assert_eq!(watch.gone(true), Step::Finish(status::LOST));
    }

    #[test]
    fn sigkill_comes_after_sigterm_and_before_nine_tenths_whatever_the_lease() {
        for lease_ms in [1, 7, 100, 1000, 10_000, u32::MAX] {
            let watch = running(lease_ms);
            let lease_ns = u64::from(lease_ms) * MS;
            let kill_ns = watch.kill_limit_ns(100);
            assert!(kill_ns > 100 + lease_ns * client::GIVE_UP_TENTHS / 10, "{lease_ms}");
            assert!(kill_ns < 100 + lease_ns * 9 / 10, "{lease_ms}");
        }
    }

    #[test]
    fn a_loss_found_too_late_for_sigterm_kills_at_once() {
        let mut watch = running(10_000);
        assert_eq!(watch.lost(60_000 * MS, &TIMEOUT, 0), Step::Kill);
        assert_eq!(watch.gone(true), Step::Finish(status::LOST));
    }

    #[test]
    fn a_group_that_outlives_its_sigkill_is_not_waited_for_without_end() {
        let mut watch = running(10_000);
        assert_eq!(watch.lost(8950 * MS, &TIMEOUT, 0), Step::Kill);
        assert_eq!(watch.signal(Signal::TERM), Step::Wait);
        assert_eq!(watch.ended(9000 * MS, 137, false, 0), Step::Wait);
        assert_eq!(watch.alarm(9950 * MS - 1), Step::Wait);
        assert_eq!(watch.alarm(9950 * MS), Step::Finish(status::LOST));
    }

    #[test]
    fn a_command_that_ends_under_the_lock_gives_its_status_once_its_group_is_gone() {
        let mut watch = running(10_000);
        assert_eq!(watch.ended(500 * MS, 3, true, 0), Step::Terminate);
        assert_eq!(watch.gone(true), Step::Finish(3));
    }

    #[test]
    fn what_a_command_leaves_running_is_killed_after_a_second() {
        let mut watch = running(10_000);
        assert_eq!(watch.ended(500 * MS, 3, true, 0), Step::Terminate);
        assert_eq!(watch.alarm(1500 * MS - 1), Step::Wait);
        assert_eq!(watch.alarm(1500 * MS), Step::Kill);
        assert_eq!(watch.gone(true), Step::Finish(3));
    }

    #[test]
    fn a_claim_lost_with_only_left_overs_running_shortens_their_time_and_keeps_the_status() {
        let mut watch = running(1000);
        assert_eq!(watch.ended(700 * MS, 3, true, 0), Step::Terminate);
        let closed = Loss::ConnectionClosed(Closed::ByServer);
        assert_eq!(watch.lost(800 * MS, &closed, 0), Step::Wait);
        assert_eq!(watch.wake_ns(), Some(890 * MS));
        assert_eq!(watch.alarm(890 * MS), Step::Kill);
        assert_eq!(watch.gone(true), Step::Finish(3));
    }

    #[test]
    fn a_command_that_ends_after_its_claim_is_lost_does_not_count_as_done() {
        let mut watch = running(1000);
        assert_eq!(watch.ended(850 * MS, 0, false, 0), Step::Terminate);
        assert_eq!(watch.gone(true), Step::Finish(status::LOST));

        let mut watch = running(1000);
        assert_eq!(watch.lost(800 * MS, &TIMEOUT, 0), Step::Terminate);
        assert_eq!(watch.ended(810 * MS, 0, false, 0), Step::Wait);
        assert_eq!(watch.gone(true), Step::Finish(status::LOST));
    }
}
