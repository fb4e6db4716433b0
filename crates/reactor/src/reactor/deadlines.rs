//! The reactor's own deadlines: output that does not move, and connections that drain.

use std::os::fd::OwnedFd;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec};

use super::{Reactor, monotonic_ns};
use crate::connection::Stage;
use crate::slab::Key;

impl<T> Reactor<T> {
    /// The caller's timeout or the reactor's next deadline, whichever is sooner.
    pub(super) fn sleep_limit(&self, timeout: Option<Duration>) -> Option<Duration> {
        let deadline_ns = [self.stalls.next_ns(), self.drains.next_ns()].into_iter().flatten().min();
        let own = deadline_ns.map(|at_ns| Duration::from_nanos(at_ns.saturating_sub(monotonic_ns())));
        [timeout, own].into_iter().flatten().min()
    }

    /// Acts on deadlines. Called with a drained queue only: a completion in it could be the progress that a
    /// deadline asks for. Progress that did not reach the queue yet is seen by asking the socket.
    pub(super) fn fire_timers(&mut self) {
        if self.drains.next_ns().is_none() && self.stalls.next_ns().is_none() {
            return;
        }
        self.now_ns = monotonic_ns();
        while let Some(key) = self.drains.pop_due(self.now_ns) {
            self.cut_drain(key);
        }
        while let Some(key) = self.stalls.pop_due(self.now_ns) {
            let Some(connection) = self.connections.get_mut(key) else { continue };
            connection.has_stall_timer = false;
            if !connection.is_open() || !connection.is_waiting_to_send() {
                continue;
            }
            if is_writable(&connection.fd) {
                connection.progress_ns = self.now_ns;
            }
            let deadline_ns = connection.progress_ns + self.io_timeout_ns;
            if deadline_ns > self.now_ns {
                connection.has_stall_timer = true;
                self.stalls.push(deadline_ns, key);
            } else {
                connection.stage = Stage::Ended;
                self.timed_out.push(key);
            }
        }
    }

    pub(super) fn cut_drain(&mut self, key: Key) {
        if self.connections.get(key).is_some_and(|connection| connection.stage == Stage::Draining) {
            self.draining -= 1;
            self.start_closing(key);
        }
    }
}

fn is_writable(fd: &OwnedFd) -> bool {
    let mut poll = [PollFd::new(fd, PollFlags::OUT)];
    rustix::event::poll(&mut poll, Some(&Timespec::default())).is_ok_and(|ready| ready > 0)
}
