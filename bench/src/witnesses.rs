//! Sessions that behave, and what they feel of what else a server does.

use std::mem;
use std::net::SocketAddr;
use std::thread;
use std::time::Duration;

use anyhow::Result;
use protocol::Lease;

use crate::clock::{as_ns, now_ns};
use crate::load::{Fleet, Happened, What};
use crate::numbered_name;
use crate::pulse::Pulse;
use crate::stats::Latencies;
use crate::tls::Dialer;

/// Their lease: many intervals, so that only a server that lost its grip closes one.
pub(crate) const LEASE_MS: u32 = 5000;

/// So many sessions, and how often each sends a heartbeat.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Rhythm {
    pub(crate) sessions: u32,
    pub(crate) interval: Duration,
}

pub(crate) struct Witnesses {
    fleet: Fleet,
    pulse: Pulse,
    happened: Vec<Happened>,
    latencies: Latencies,
    /// Those that the server ended, and how.
    pub(crate) ended: Vec<String>,
}

/// What witnesses felt in one phase.
pub(crate) struct Felt {
    pub(crate) latencies: Latencies,
    /// Heartbeats that were due while the one before had no answer.
    pub(crate) overdue: u64,
    /// How late this tool was itself at worst, µs.
    pub(crate) own_late_us: u64,
}

impl Witnesses {
    /// Joins them, each on a lock of its own; over TLS if there is a dialer.
    pub(crate) fn join(server: SocketAddr, dialer: Option<Dialer>, rhythm: Rhythm) -> Result<Self> {
        let Rhythm { sessions, interval } = rhythm;
        let mut fleet = Fleet::over(server, dialer)?;
        let mut pulse = Pulse::new(as_ns(interval));
        let lease = Lease::from_ms(LEASE_MS).expect("a positive constant");
        let count = usize::try_from(sessions)?;
        fleet.join_all(count, lease, |n| numbered_name("well-behaved", n))?;
        for index in 0..count {
            pulse.add(index);
            // Spread over the interval, as independent clients are.
            thread::sleep(interval / sessions);
        }
        Ok(Self { fleet, pulse, happened: Vec::new(), latencies: Latencies::new(), ended: Vec::new() })
    }

    /// Heartbeats until `done`, which is asked at least once an interval.
    pub(crate) fn watch(&mut self, done: impl Fn(u64) -> bool) -> Result<()> {
        while !done(now_ns()) {
            let next_ns = self.pulse.beat(&mut self.fleet)?;
            self.fleet.poll(next_ns.saturating_sub(now_ns()), &mut self.happened)?;
            for Happened { index, what, .. } in &self.happened {
                match what {
                    What::Beat { rtt_ns } => self.latencies.record(*rtt_ns),
                    What::Queued | What::Granted(_) => {}
                    What::Ended(end) => self.ended.push(format!("{index}: {end}")),
                }
            }
        }
        Ok(())
    }

    /// What they felt since the last time that this was asked.
    pub(crate) fn take_felt(&mut self) -> Felt {
        Felt {
            latencies: mem::replace(&mut self.latencies, Latencies::new()),
            overdue: mem::take(&mut self.pulse.skipped),
            own_late_us: mem::take(&mut self.pulse.late_ns_max) / 1000,
        }
    }
}
