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
    /// Start the command, within [`Watch::start_until_ns`].
    Start(Token),
    /// Send this to the group, or to the command that is being started.
    Forward(Signal),
    /// Ask the group to end; do not start the command any more.
    Terminate,
    /// End the group, or the command that is being started.
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
    /// The command is being started: it may run, or not.
    Starting(Token),
    /// The same, but the claim is lost. When to kill what there is, and the status if it never runs.
    CallingOff { kill_ns: Option<u64>, code: u8 },
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
            Phase::Queued | Phase::Starting(_) | Phase::Running => None,
            Phase::CallingOff { kill_ns, .. } => kill_ns,
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
                self.phase = Phase::Starting(token);
                Step::Start(token)
            }
            Event::Lost(loss) => self.lost(now_ns, &loss, confirmed_ns),
        }
    }

    /// When the command must not be started any more under a claim that was last confirmed then.
    pub(crate) fn start_until_ns(&self, confirmed_ns: u64) -> u64 {
        confirmed_ns + self.lease.as_ns() * client::GIVE_UP_TENTHS / 10
    }

    /// The command was started.
    pub(crate) fn started(&mut self, now_ns: u64, is_held: bool, confirmed_ns: u64) -> Step {
        match self.phase {
            Phase::Starting(_) if is_held => {
                self.phase = Phase::Running;
                Step::Wait
            }
            Phase::Starting(_) | Phase::CallingOff { .. } => self.stop(now_ns, confirmed_ns, status::LOST),
            _ => unreachable!("only what is being started has started"),
        }
    }

    /// It was too late to start the command.
    pub(crate) fn not_started(&mut self, is_held: bool) -> Step {
        match self.phase {
            // Confirmed anew while the start was on its way.
            Phase::Starting(token) if is_held => Step::Start(token),
            Phase::Starting(_) => {
                // How it was lost is the next event.
                self.phase = Phase::Queued;
                Step::Wait
            }
            Phase::CallingOff { code, .. } => Step::Finish(code),
            _ => unreachable!("only what is being started is late"),
        }
    }

    /// A signal came for `monolock run`.
    pub(crate) fn signal(&mut self, signal: Signal) -> Step {
        match self.phase {
            Phase::Queued => Step::Finish(status::of_signal(signal)),
            Phase::Starting(_) | Phase::Running | Phase::Stopping { .. } => Step::Forward(signal),
            Phase::CallingOff { .. } | Phase::Killed { .. } => Step::Wait,
        }
    }

    /// The command ended, with this status; others of its group may be left.
    pub(crate) fn ended(&mut self, now_ns: u64, code: u8, is_held: bool, confirmed_ns: u64) -> Step {
        match self.phase {
            Phase::Queued | Phase::Starting(_) | Phase::CallingOff { .. } => {
                unreachable!("nothing ends before it has started")
            }
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
            Phase::Queued | Phase::Starting(_) | Phase::CallingOff { .. } | Phase::Running => {
                unreachable!("a group is gone after its leader ended")
            }
            Phase::Stopping { code, .. } | Phase::Killed { code, .. } => Step::Finish(code),
        }
    }

    /// Looks at the time. Harmless when early.
    pub(crate) fn alarm(&mut self, now_ns: u64) -> Step {
        match self.phase {
            Phase::CallingOff { kill_ns: Some(kill_ns), code } if now_ns >= kill_ns => {
                // Nobody leaves before it is known whether there is a group.
                self.phase = Phase::CallingOff { kill_ns: None, code };
                Step::Kill
            }
            Phase::Stopping { kill_ns, code } if now_ns >= kill_ns => self.kill(now_ns, code),
            Phase::Killed { leave_ns, code } if now_ns >= leave_ns => Step::Finish(code),
            _ => Step::Wait,
        }
    }

    fn lost(&mut self, now_ns: u64, loss: &Loss, confirmed_ns: u64) -> Step {
        match self.phase {
            Phase::Queued => Step::Finish(status::of_loss_while_waiting(loss)),
            Phase::Starting(_) => {
                let code = status::of_loss_while_waiting(loss);
                self.phase = Phase::CallingOff { kill_ns: Some(self.kill_ns(confirmed_ns)), code };
                let step = self.alarm(now_ns);
                if step == Step::Wait { Step::Terminate } else { step }
            }
            Phase::Running => self.stop(now_ns, confirmed_ns, status::LOST),
            // The command itself ended under the lock; only what it left behind has less time now.
            Phase::Stopping { kill_ns, code } => {
                let kill_ns = kill_ns.min(self.kill_ns(confirmed_ns));
                self.phase = Phase::Stopping { kill_ns, code };
                self.alarm(now_ns)
            }
            Phase::CallingOff { .. } => unreachable!("a claim is lost once"),
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

    fn starting(lease_ms: u32) -> Watch {
        let mut watch = queued(lease_ms);
        assert_eq!(watch.event(0, Event::Acquired(TOKEN), true, 0), Step::Start(TOKEN));
        watch
    }

    fn running(lease_ms: u32) -> Watch {
        let mut watch = starting(lease_ms);
        assert_eq!(watch.started(0, true, 0), Step::Wait);
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
    fn a_command_whose_claim_is_lost_before_it_has_started_is_stopped_like_one_that_runs() {
        let mut watch = starting(10_000);
        assert_eq!(watch.event(8000 * MS, timeout(), false, 0), Step::Terminate);
        assert_eq!(watch.signal(Signal::TERM), Step::Wait);
        assert_eq!(watch.started(8001 * MS, false, 0), Step::Terminate);
        assert_eq!(watch.alarm(8950 * MS), Step::Kill);
        assert_eq!(watch.gone(), Step::Finish(status::LOST));

        // The loss is not told yet.
        let mut watch = starting(10_000);
        assert_eq!(watch.started(8950 * MS, false, 0), Step::Kill);
        assert_eq!(watch.event(8950 * MS, timeout(), false, 0), Step::Wait);
        assert_eq!(watch.gone(), Step::Finish(status::LOST));
    }

    #[test]
    fn a_start_that_hangs_beyond_its_claim_is_killed_once_and_not_left_before_it_ends() {
        let mut watch = starting(10_000);
        assert_eq!(watch.event(8000 * MS, timeout(), false, 0), Step::Terminate);
        assert_eq!(watch.wake_ns(), Some(8950 * MS));
        assert_eq!(watch.alarm(8950 * MS), Step::Kill);
        assert_eq!(watch.wake_ns(), None);
        assert_eq!(watch.started(60_000 * MS, false, 0), Step::Kill);
        assert_eq!(watch.gone(), Step::Finish(status::LOST));

        let mut watch = starting(10_000);
        assert_eq!(watch.event(9000 * MS, timeout(), false, 0), Step::Kill);
        assert_eq!(watch.wake_ns(), None);
    }

    #[test]
    fn a_command_that_never_started_leaves_the_status_of_a_claim_lost_while_waiting() {
        let mut watch = starting(10_000);
        assert_eq!(watch.event(8000 * MS, timeout(), false, 0), Step::Terminate);
        assert_eq!(watch.not_started(false), Step::Finish(status::UNREACHABLE));

        let mut watch = starting(10_000);
        assert_eq!(watch.not_started(false), Step::Wait);
        assert_eq!(watch.event(8000 * MS, timeout(), false, 0), Step::Finish(status::UNREACHABLE));
    }

    #[test]
    fn a_start_that_was_late_is_tried_again_under_a_claim_confirmed_since() {
        let mut watch = starting(10_000);
        assert_eq!(watch.start_until_ns(5 * MS), 8005 * MS);
        assert_eq!(watch.not_started(true), Step::Start(TOKEN));
        assert_eq!(watch.signal(Signal::USR1), Step::Forward(Signal::USR1));
        assert_eq!(watch.started(8005 * MS, true, 5 * MS), Step::Wait);
        assert_eq!(watch.event(9000 * MS, timeout(), false, 8001 * MS), Step::Terminate);
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
