//! The clock of claims, and waking up by it: CLOCK_BOOTTIME goes on while the machine is suspended.

use std::io;
use std::os::fd::OwnedFd;

use rustix::time::{
    ClockId, Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, clock_gettime,
    timerfd_create, timerfd_settime,
};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

const NS_PER_S: u64 = 1_000_000_000;

/// Nanoseconds of CLOCK_BOOTTIME.
pub fn boottime_ns() -> u64 {
    let now = clock_gettime(ClockId::Boottime);
    let whole_s = u64::try_from(now.tv_sec).expect("CLOCK_BOOTTIME starts at zero");
    let rest_ns = u64::try_from(now.tv_nsec).expect("a normalised timespec");
    whole_s * NS_PER_S + rest_ns
}

/// Wakes a task at a time of CLOCK_BOOTTIME: after a suspend at once, where tokio's own timers, on
/// CLOCK_MONOTONIC, would still wait for what was left.
#[derive(Debug)]
pub struct Alarm(AsyncFd<OwnedFd>);

impl Alarm {
    /// An alarm on the current tokio runtime.
    ///
    /// # Errors
    ///
    /// The process is out of descriptors or memory.
    pub fn new() -> io::Result<Self> {
        let timer = timerfd_create(TimerfdClockId::Boottime, TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC)?;
        #[expect(deprecated, reason = "its successor is unsafe; what it asks for, an OwnedFd guarantees")]
        let timer = AsyncFd::with_interest(timer, Interest::READABLE)?;
        Ok(Self(timer))
    }

    /// Returns once [`boottime_ns`] has reached `deadline_ns`.
    pub async fn wait_until(&mut self, deadline_ns: u64) {
        while boottime_ns() < deadline_ns {
            self.arm(deadline_ns);
            let mut ready = self.0.readable().await.expect("a timer on a running runtime");
            // What an earlier deadline left behind is cleared here, and the loop waits on.
            let _ = ready.try_io(|timer| Ok(rustix::io::read(timer.get_ref(), &mut [0; 8])?));
        }
    }

    fn arm(&self, deadline_ns: u64) {
        let zero = Timespec { tv_sec: 0, tv_nsec: 0 };
        let deadline = Timespec {
            tv_sec: i64::try_from(deadline_ns / NS_PER_S).expect("2⁶⁴ ns are fewer than 2⁶³ s"),
            tv_nsec: i64::try_from(deadline_ns % NS_PER_S).expect("below 10⁹"),
        };
        let once = Itimerspec { it_interval: zero, it_value: deadline };
        timerfd_settime(self.0.get_ref(), TimerfdTimerFlags::ABSTIME, &once).expect("a valid time");
    }
}
