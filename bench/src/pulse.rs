//! Heartbeats of many sessions at one interval, as conforming clients send them: from send to send.

use std::collections::VecDeque;

use anyhow::Result;

use crate::clock::now_ns;
use crate::load::{Fleet, Sent};

/// Whose heartbeat is due when. One interval for all, so a queue keeps them in order.
pub(crate) struct Pulse {
    interval_ns: u64,
    due: VecDeque<(u64, usize)>,
    /// How late this tool itself was at worst: latencies beyond the server's are not the server's fault.
    pub(crate) late_ns_max: u64,
    /// Heartbeats not sent because the one before was not answered within an interval.
    pub(crate) skipped: u64,
}

impl Pulse {
    pub(crate) fn new(interval_ns: u64) -> Self {
        Self { interval_ns, due: VecDeque::new(), late_ns_max: 0, skipped: 0 }
    }

    /// Adds a session whose last sign of life is now.
    pub(crate) fn add(&mut self, index: usize) {
        self.due.push_back((now_ns() + self.interval_ns, index));
    }

    /// Sends what is due; sessions that are over fall out. Returns when the next one is due.
    pub(crate) fn beat(&mut self, fleet: &mut Fleet) -> Result<u64> {
        loop {
            let now = now_ns();
            let Some(&(due_ns, index)) = self.due.front() else { return Ok(now + self.interval_ns) };
            if due_ns > now {
                return Ok(due_ns);
            }
            self.due.pop_front();
            self.late_ns_max = self.late_ns_max.max(now - due_ns);
            match fleet.heartbeat(index)? {
                Sent::Yes => {}
                Sent::Busy => self.skipped += 1,
                Sent::Gone => continue,
            }
            self.due.push_back((now + self.interval_ns, index));
        }
    }
}
