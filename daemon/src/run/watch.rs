//! What `monolock run` does next, and until when: decided without clock, process or socket.
//!
//! Times are nanoseconds of CLOCK_BOOTTIME.

use client::{Event, Loss};
use protocol::{Lease, Token};
use rustix::process::Signal;

use super::status;

/// The group is dead this many tenths of the lease after the last confirmation. The specification's number: the last
/// tenth is for clocks that run apart.
const DEAD_TENTHS: u64 = 9;

/// SIGKILL is sent this much before the group has to be dead, at most: what a loaded machine takes to wake us up and
/// to end a process.
const KILL_MARGIN_NS_MAX: u64 = 50_000_000;

/// The same as a part of the lease, for short leases: a hundredth, a tenth of the time between SIGTERM and death.
const KILL_MARGIN_DIVISOR: u64 = 100;

/// What the command leaves in its group may take this long to end by SIGTERM while the lock is still held: long
/// enough for a shell's background job, short enough for whoever waits for the lock.
const LEFT_OVER_NS_MAX: u64 = 1_000_000_000;

/// How long a killed group may take to be gone. What is left then is stuck in the kernel, belongs to somebody whom
/// we may not signal, or is a zombie that nobody reaps; waiting on would not help.
const KILLED_NS_MAX: u64 = 1_000_000_000;

/// What to do now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Step {
    /// Nothing.
    Wait,
    /// Start the command.
    Start(Token),
    /// Send this to the group.
    Forward(Signal),
    /// Ask the group to end.
    Terminate,
    /// End the group.
    Kill,
    /// Leave, with this exit status.
    Finish(u8),
}

/// The life of one command under one claim.
#[derive(Debug)]
pub(crate) struct Watch {
    lease: Lease,
    phase: Phase,
}

#[derive(Debug, Clone, Copy)]
enum Phase {
    /// The lock is not held yet.
    Queued,
    /// The command runs.
    Running,
    /// The group was asked to end.
    Stopping { kill_ns: u64, code: u8 },
    /// The group was killed.
    Killed { leave_ns: u64, code: u8 },
}

impl Watch {
    pub(crate) fn new(lease: Lease) -> Self {
        Self { lease, phase: Phase::Queued }
    }

    /// When to call [`Watch::alarm`].
    pub(crate) fn wake_ns(&self) -> Option<u64> {
        match self.phase {
            Phase::Queued | Phase::Running => None,
            Phase::Stopping { kill_ns, .. } => Some(kill_ns),
            Phase::Killed { leave_ns, .. } => Some(leave_ns),
        }
    }

    /// Something happened to the claim, which was last confirmed as of `confirmed_ns`.
    pub(crate) fn event(&mut self, now_ns: u64, event: Event, is_held: bool, confirmed_ns: u64) -> Step {
        match event {
            Event::Waiting => Step::Wait,
            // Granted, and lost already: that is the next event.
            Event::Acquired(_) if !is_held => Step::Wait,
            Event::Acquired(token) => {
                self.phase = Phase::Running;
                Step::Start(token)
            }
            Event::Lost(loss) => self.lost(now_ns, &loss, confirmed_ns),
        }
    }

    /// A signal came for `monolock run`.
    pub(crate) fn signal(&mut self, signal: Signal) -> Step {
        match self.phase {
            Phase::Queued => Step::Finish(status::of_signal(signal)),
            Phase::Running | Phase::Stopping { .. } => Step::Forward(signal),
            Phase::Killed { .. } => Step::Wait,
        }
    }

    /// The command ended, with this status; others of its group may be left.
    pub(crate) fn ended(&mut self, now_ns: u64, code: u8, is_held: bool, confirmed_ns: u64) -> Step {
        match self.phase {
            Phase::Queued => unreachable!("nothing runs before the lock is held"),
            Phase::Running if is_held => {
                self.phase = Phase::Stopping { kill_ns: now_ns + LEFT_OVER_NS_MAX, code };
                Step::Terminate
            }
            Phase::Running => self.stop(now_ns, confirmed_ns, status::LOST),
            Phase::Stopping { .. } | Phase::Killed { .. } => Step::Wait,
        }
    }

    /// Nobody is left in the group.
    pub(crate) fn gone(&mut self) -> Step {
        match self.phase {
            Phase::Queued | Phase::Running => unreachable!("a group is gone after its leader ended"),
            Phase::Stopping { code, .. } | Phase::Killed { code, .. } => Step::Finish(code),
        }
    }

    /// Looks at the time. Harmless when early.
    pub(crate) fn alarm(&mut self, now_ns: u64) -> Step {
        match self.phase {
            Phase::Stopping { kill_ns, code } if now_ns >= kill_ns => self.kill(now_ns, code),
            Phase::Killed { leave_ns, code } if now_ns >= leave_ns => Step::Finish(code),
            _ => Step::Wait,
        }
    }

    fn lost(&mut self, now_ns: u64, loss: &Loss, confirmed_ns: u64) -> Step {
        match self.phase {
            Phase::Queued => Step::Finish(status::of_loss_while_waiting(loss)),
            Phase::Running => self.stop(now_ns, confirmed_ns, status::LOST),
            // The command itself ended under the lock; only what it left behind has less time now.
            Phase::Stopping { kill_ns, code } => {
                let kill_ns = kill_ns.min(self.kill_ns(confirmed_ns));
                self.phase = Phase::Stopping { kill_ns, code };
                self.alarm(now_ns)
            }
            Phase::Killed { .. } => Step::Wait,
        }
    }

    fn stop(&mut self, now_ns: u64, confirmed_ns: u64, code: u8) -> Step {
        let kill_ns = self.kill_ns(confirmed_ns);
        if now_ns >= kill_ns {
            return self.kill(now_ns, code);
        }
        self.phase = Phase::Stopping { kill_ns, code };
        Step::Terminate
    }

    fn kill(&mut self, now_ns: u64, code: u8) -> Step {
        self.phase = Phase::Killed { leave_ns: now_ns + KILLED_NS_MAX, code };
        Step::Kill
    }

    /// When SIGKILL is due for a claim that was last confirmed then.
    fn kill_ns(&self, confirmed_ns: u64) -> u64 {
        let lease_ns = self.lease.as_ns();
        let margin_ns = (lease_ns / KILL_MARGIN_DIVISOR).min(KILL_MARGIN_NS_MAX);
        confirmed_ns + lease_ns * DEAD_TENTHS / 10 - margin_ns
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    use client::Closed;
    use protocol::ErrorCode;

    const MS: u64 = 1_000_000;
    const TOKEN: Token = Token(5);

    fn queued(lease_ms: u32) -> Watch {
        Watch::new(Lease::from_ms(lease_ms).unwrap())
    }

    fn running(lease_ms: u32) -> Watch {
        let mut watch = queued(lease_ms);
        assert_eq!(watch.event(0, Event::Acquired(TOKEN), true, 0), Step::Start(TOKEN));
        watch
    }

    fn timeout() -> Event {
        Event::Lost(Loss::HeartbeatTimeout)
    }

    #[test]
    fn the_command_starts_when_the_lock_is_held_and_not_before() {
        let mut watch = queued(10_000);
        assert_eq!(watch.event(0, Event::Waiting, false, 0), Step::Wait);
        assert_eq!(watch.event(1, Event::Acquired(TOKEN), true, 0), Step::Start(TOKEN));
        assert_eq!(watch.wake_ns(), None);
    }

    #[test]
    fn a_grant_that_is_over_before_anybody_acts_on_it_starts_nothing() {
        let mut watch = queued(10_000);
        assert_eq!(watch.event(8000 * MS, Event::Acquired(TOKEN), false, 0), Step::Wait);
        assert_eq!(watch.event(8000 * MS, timeout(), false, 0), Step::Finish(status::UNREACHABLE));
    }

    #[test]
    fn a_signal_ends_the_wait_and_is_forwarded_to_a_running_command() {
        assert_eq!(queued(10_000).signal(Signal::TERM), Step::Finish(143));
        assert_eq!(running(10_000).signal(Signal::TERM), Step::Forward(Signal::TERM));
    }

    #[test]
    fn a_claim_lost_while_waiting_ends_the_wait_by_its_cause() {
        let loss = Loss::Server { code: ErrorCode::NOT_AUTHORIZED, reason: String::new() };
        assert_eq!(queued(10_000).event(0, Event::Lost(loss), false, 0), Step::Finish(status::REFUSED));
        assert_eq!(queued(10_000).event(0, timeout(), false, 0), Step::Finish(status::UNREACHABLE));
    }

    #[test]
    fn a_lost_claim_asks_the_group_to_end_and_kills_it_in_time_to_be_dead_at_nine_tenths() {
        let mut watch = running(10_000);
        let confirmed_ns = 3000 * MS;
        assert_eq!(watch.event(11_000 * MS, timeout(), false, confirmed_ns), Step::Terminate);
        let kill_ns = 3000 * MS + 8950 * MS;
        assert_eq!(watch.wake_ns(), Some(kill_ns));
        assert_eq!(watch.alarm(kill_ns - 1), Step::Wait);
        assert_eq!(watch.alarm(kill_ns), Step::Kill);
        assert_eq!(watch.gone(), Step::Finish(status::LOST));
    }

    #[test]
    fn sigkill_comes_after_sigterm_and_before_nine_tenths_whatever_the_lease() {
        for lease_ms in [1, 7, 100, 1000, 10_000, u32::MAX] {
            let watch = queued(lease_ms);
            let lease_ns = u64::from(lease_ms) * MS;
            let kill_ns = watch.kill_ns(100);
            assert!(kill_ns > 100 + lease_ns * client::GIVE_UP_TENTHS / 10, "{lease_ms}");
            assert!(kill_ns < 100 + lease_ns * 9 / 10, "{lease_ms}");
        }
    }

    #[test]
    fn a_loss_found_too_late_for_sigterm_kills_at_once() {
        let mut watch = running(10_000);
        assert_eq!(watch.event(60_000 * MS, timeout(), false, 0), Step::Kill);
        assert_eq!(watch.gone(), Step::Finish(status::LOST));
    }

    #[test]
    fn a_group_that_outlives_its_sigkill_is_not_waited_for_without_end() {
        let mut watch = running(10_000);
        assert_eq!(watch.event(8950 * MS, timeout(), false, 0), Step::Kill);
        assert_eq!(watch.signal(Signal::TERM), Step::Wait);
        assert_eq!(watch.ended(9000 * MS, 137, false, 0), Step::Wait);
        assert_eq!(watch.alarm(9950 * MS - 1), Step::Wait);
        assert_eq!(watch.alarm(9950 * MS), Step::Finish(status::LOST));
    }

    #[test]
    fn a_command_that_ends_under_the_lock_gives_its_status_once_its_group_is_gone() {
        let mut watch = running(10_000);
        assert_eq!(watch.ended(500 * MS, 3, true, 0), Step::Terminate);
        assert_eq!(watch.gone(), Step::Finish(3));
    }

    #[test]
    fn what_a_command_leaves_running_is_killed_after_a_second() {
        let mut watch = running(10_000);
        assert_eq!(watch.ended(500 * MS, 3, true, 0), Step::Terminate);
        assert_eq!(watch.alarm(1500 * MS - 1), Step::Wait);
        assert_eq!(watch.alarm(1500 * MS), Step::Kill);
        assert_eq!(watch.gone(), Step::Finish(3));
    }

    #[test]
    fn a_claim_lost_with_only_left_overs_running_shortens_their_time_and_keeps_the_status() {
        let mut watch = running(1000);
        assert_eq!(watch.ended(700 * MS, 3, true, 0), Step::Terminate);
        let closed = Event::Lost(Loss::ConnectionClosed(Closed::ByServer));
        assert_eq!(watch.event(800 * MS, closed, false, 0), Step::Wait);
        assert_eq!(watch.wake_ns(), Some(890 * MS));
        assert_eq!(watch.alarm(890 * MS), Step::Kill);
        assert_eq!(watch.gone(), Step::Finish(3));
    }

    #[test]
    fn a_command_that_ends_after_its_claim_is_lost_does_not_count_as_done() {
        let mut watch = running(1000);
        assert_eq!(watch.ended(850 * MS, 0, false, 0), Step::Terminate);
        assert_eq!(watch.gone(), Step::Finish(status::LOST));

        let mut watch = running(1000);
        assert_eq!(watch.event(800 * MS, timeout(), false, 0), Step::Terminate);
        assert_eq!(watch.ended(810 * MS, 0, false, 0), Step::Wait);
        assert_eq!(watch.gone(), Step::Finish(status::LOST));
    }
}
