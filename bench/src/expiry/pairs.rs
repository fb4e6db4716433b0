//! Pairs of a holder that falls silent and a waiter, in numbers.

use std::collections::HashMap;
use std::net::SocketAddr;

use anyhow::{Context, Result, bail};
use protocol::Lease;

use crate::clock::now_ns;
use crate::load::{End, Fleet, Happened, What};
use crate::stats::Latencies;
use crate::{LEASE_LONG_MS, numbered_name};

/// How late locks moved on.
pub(super) struct Lateness {
    /// From the end of the holder's lease, counted from when its ACQUIRED was read, to when the waiter's was.
    /// The server heard the holder a moment before the one, and answered the waiter a moment before the
    /// other.
    pub(super) latencies: Latencies,
    /// Waiters that were granted before the holder's lease was over, counted from the send of its ACQUIRE:
    /// early beyond doubt.
    pub(super) early: u32,
    /// Waiters that came when the lock was free again: nothing was measured.
    pub(super) too_slow: u32,
}

/// Pairs on locks of their own.
pub(super) struct Pairs {
    fleet: Fleet,
    /// Begins the names of these locks: those of earlier pairs may not be free yet.
    prefix: String,
    pairs: Vec<Pair>,
    /// Which pair a connection of the fleet belongs to.
    of: HashMap<usize, usize>,
    happened: Vec<Happened>,
    lateness: Lateness,
    /// Waiters that are in line and not granted yet.
    waiting: usize,
    /// Granted waiters go on holding: their ends would be work for the server while others are measured.
    keeps_waiters: bool,
}

struct Pair {
    lease: Lease,
    sent_ns: u64,
    answered_ns: Option<u64>,
    holder: usize,
    waiter: Option<usize>,
    /// The server said WAITING.
    is_in_line: bool,
}

impl Pairs {
    pub(super) fn with(server: SocketAddr, keeps_waiters: bool) -> Result<Self> {
        Ok(Self {
            fleet: Fleet::new(server)?,
            prefix: format!("pair-{}", now_ns()),
            pairs: Vec::new(),
            of: HashMap::new(),
            happened: Vec::new(),
            lateness: Lateness { latencies: Latencies::new(), early: 0, too_slow: 0 },
            waiting: 0,
            keeps_waiters,
        })
    }

    /// A holder that sends nothing after its ACQUIRE; its waiter comes once it holds.
    pub(super) fn open(&mut self, lease: Lease) -> Result<()> {
        let number = self.pairs.len();
        let sent_ns = now_ns();
        let holder = self.fleet.join(numbered_name(&self.prefix, number), lease)?;
        self.of.insert(holder, number);
        self.pairs.push(Pair { lease, sent_ns, answered_ns: None, holder, waiter: None, is_in_line: false });
        Ok(())
    }

    /// Looks at what has happened for at most `timeout_ns`; returns how many pairs have come to their end.
    pub(super) fn poll(&mut self, timeout_ns: u64) -> Result<usize> {
        let mut happened = std::mem::take(&mut self.happened);
        self.fleet.poll(timeout_ns, &mut happened)?;
        let mut done = 0;
        for Happened { index, at_ns, what } in &happened {
            let Some(&number) = self.of.get(index) else { continue };
            done += usize::from(self.took_place(number, *index, *at_ns, what)?);
        }
        self.happened = happened;
        Ok(done)
    }

    /// Whether this was the pair's end.
    fn took_place(&mut self, number: usize, index: usize, at_ns: u64, what: &What) -> Result<bool> {
        let pair = &mut self.pairs[number];
        let is_holder = index == pair.holder;
        match what {
            What::Granted(_) if is_holder => {
                pair.answered_ns = Some(at_ns);
                let lease = Lease::from_ms(LEASE_LONG_MS).expect("a positive constant");
                let waiter = self.fleet.join(numbered_name(&self.prefix, number), lease)?;
                pair.waiter = Some(waiter);
                self.of.insert(waiter, number);
                Ok(false)
            }
            What::Queued if !is_holder => {
                pair.is_in_line = true;
                self.waiting += 1;
                Ok(false)
            }
            What::Granted(_) => {
                let answered_ns = pair.answered_ns.context("a waiter came before its holder held")?;
                if pair.is_in_line {
                    self.waiting -= 1;
                    let late_ns = at_ns.saturating_sub(answered_ns + pair.lease.as_ns());
                    self.lateness.latencies.record(late_ns);
                    self.lateness.early += u32::from(at_ns < pair.sent_ns + pair.lease.as_ns());
                } else {
                    self.lateness.too_slow += 1;
                }
                self.of.remove(&index);
                if !self.keeps_waiters {
                    self.fleet.close(index);
                }
                Ok(true)
            }
            // The server's word for an expiry.
            What::Ended(End::Closed) if is_holder => {
                self.of.remove(&index);
                Ok(false)
            }
            other => bail!("a {} met {other:?}", if is_holder { "holder" } else { "waiter" }),
        }
    }

    /// Waiters that are in line.
    pub(super) fn waiting(&self) -> usize {
        self.waiting
    }

    /// What was measured.
    pub(super) fn into_lateness(self) -> Lateness {
        self.lateness
    }
}
