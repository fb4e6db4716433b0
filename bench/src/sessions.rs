//! A full server: thousands of sessions queue on few locks, none may be lost, and every queue is handed over
//! in order.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use protocol::{Lease, Token};
use testkit::process::{self, Server, Start};

use crate::clock::{NS_PER_S, as_ns, now_ns};
use crate::load::{ANSWER_MAX, Fleet, Happened, What};
use crate::pulse::Pulse;
use crate::stats::Latencies;
use crate::usage::{CpuTime, anonymous_bytes};
use crate::{Verdict, numbered_name};

/// Heartbeats come this many times a lease.
const BEATS_PER_LEASE: u64 = 4;

/// Faults that are printed; the rest is only counted.
const FAULTS_SHOWN_MAX: u64 = 10;

/// Sessions that queue, heartbeat and hand over: no false expiry, strict order.
#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// Sessions in all.
    #[arg(long, default_value_t = 9000, value_parser = clap::value_parser!(u32).range(1..))]
    connections: u32,
    /// Shards of the server.
    #[arg(long, default_value_t = 4)]
    shards: usize,
    /// Lease of every session; heartbeats come four times as often.
    #[arg(long, default_value = "2s", value_parser = crate::clock::parse_duration)]
    lease: Duration,
    /// How many seconds all of them stay before the holders leave.
    #[arg(long, default_value_t = 60, value_parser = clap::value_parser!(u32).range(1..=86_400))]
    seconds: u32,
    /// Locks that they share.
    #[arg(long, default_value_t = 90, value_parser = clap::value_parser!(u32).range(1..))]
    locks: u32,
}

/// Measures and prints.
pub(crate) fn run(options: &Options, program: &Path) -> Result<Verdict> {
    let limit = process::raise_nofile()?;
    let connections = usize::try_from(options.connections)?;
    ensure!(u64::from(options.connections) < limit, "the hard limit of open files is {limit}");
    let Some(lease) = Lease::from_duration(options.lease) else { bail!("--lease 0ms is no lease") };
    let mut server = Server::start(&Start::new(program, options.shards))?;
    let empty_bytes = anonymous_bytes(server.pid())?;
    let mut crowd = Crowd::new(server.address(), usize::try_from(options.locks)?, lease)?;

    let start_ns = now_ns();
    crowd.join(connections, lease)?;
    let joined_ns = now_ns() - start_ns;
    println!(
        "{connections} sessions on {} locks joined in {:.2} s ({:.0}/s), one ACQUIRE at a time for each lock",
        options.locks,
        joined_ns as f64 / 1e9,
        connections as f64 * 1e9 / joined_ns as f64
    );
    crowd.report("heartbeats meanwhile", &mut server)?;

    let before = CpuTime::of(server.pid())?;
    let stay_ns = u64::from(options.seconds) * NS_PER_S;
    let end_ns = now_ns() + stay_ns;
    while now_ns() < end_ns {
        crowd.turn(end_ns)?;
    }
    let cpu_ns = CpuTime::of(server.pid())?.since(&before).run_ns;
    println!(
        "{} s with all of them: {:.1}% of a core, {:.0} heartbeats/s, {:.0} bytes of memory a session",
        options.seconds,
        cpu_ns as f64 * 100.0 / stay_ns as f64,
        crowd.latencies.len() as f64 / f64::from(options.seconds),
        anonymous_bytes(server.pid())?.saturating_sub(empty_bytes) as f64 / connections as f64
    );
    crowd.report("heartbeats meanwhile", &mut server)?;

    let start_ns = now_ns();
    crowd.hand_over_all()?;
    println!(
        "{} hand-overs in {:.2} s, one after the other: {}",
        crowd.handovers.len(),
        (now_ns() - start_ns) as f64 / 1e9,
        crowd.handovers
    );
    crowd.report("heartbeats meanwhile", &mut server)?;
    crowd.verdict(connections)
}

/// One lock as this side knows it.
#[derive(Default)]
struct Lock {
    holder: Option<usize>,
    /// Those who were told WAITING, in the order in which they were told.
    queue: VecDeque<usize>,
    token: Option<Token>,
}

/// A hand-over that is awaited.
#[derive(Clone, Copy)]
struct Leaving {
    lock: usize,
    at_ns: u64,
}

struct Crowd {
    fleet: Fleet,
    pulse: Pulse,
    locks: Vec<Lock>,
    happened: Vec<Happened>,
    /// Sessions whose ACQUIRE was answered.
    answered: Vec<bool>,
    /// Every token of the run.
    tokens: Vec<Token>,
    leaving: Option<Leaving>,
    latencies: Latencies,
    handovers: Latencies,
    faults: u64,
}

impl Crowd {
    fn new(server: SocketAddr, locks: usize, lease: Lease) -> Result<Self> {
        Ok(Self {
            fleet: Fleet::new(server)?,
            pulse: Pulse::new(lease.as_ns() / BEATS_PER_LEASE),
            locks: (0..locks).map(|_| Lock::default()).collect(),
            happened: Vec::new(),
            answered: Vec::new(),
            tokens: Vec::new(),
            leaving: None,
            latencies: Latencies::new(),
            handovers: Latencies::new(),
            faults: 0,
        })
    }

    /// Joins everyone, the `n`th on lock `n % locks`. A lock has at most one ACQUIRE without an answer, so
    /// that the order of the answers is the order of its queue.
    fn join(&mut self, connections: usize, lease: Lease) -> Result<()> {
        let locks = self.locks.len();
        for n in 0..connections {
            if let Some(before) = n.checked_sub(locks) {
                self.turn_until(|crowd| crowd.answered[before])?;
            }
            self.fleet.join(numbered_name("sessions", n % locks), lease)?;
            self.answered.push(false);
            self.turn(0)?;
        }
        for n in connections.saturating_sub(locks)..connections {
            self.turn_until(|crowd| crowd.answered[n])?;
        }
        Ok(())
    }

    /// Sends due heartbeats and takes what came, until `until_ns` at most.
    fn turn(&mut self, until_ns: u64) -> Result<()> {
        let next_ns = self.pulse.beat(&mut self.fleet)?.min(until_ns);
        let mut happened = std::mem::take(&mut self.happened);
        self.fleet.poll(next_ns.saturating_sub(now_ns()), &mut happened)?;
        for Happened { index, at_ns, what } in &happened {
            self.apply(*index, *at_ns, what);
        }
        self.happened = happened;
        Ok(())
    }

    fn turn_until(&mut self, done: impl Fn(&Self) -> bool) -> Result<()> {
        let deadline_ns = now_ns() + as_ns(ANSWER_MAX);
        while !done(self) {
            ensure!(now_ns() < deadline_ns, "no answer within {ANSWER_MAX:?}; {} faults so far", self.faults);
            self.turn(deadline_ns)?;
        }
        Ok(())
    }

    fn apply(&mut self, index: usize, at_ns: u64, what: &What) {
        let lock = index % self.locks.len();
        match what {
            What::Beat { rtt_ns } => self.latencies.record(*rtt_ns),
            What::Queued => {
                self.answered[index] = true;
                self.pulse.add(index);
                self.locks[lock].queue.push_back(index);
            }
            What::Granted(token) => self.granted(index, *token, at_ns),
            What::Ended(end) => {
                self.answered[index] = true;
                self.fault(&format!("session {index} of lock {lock}: {end}"));
            }
        }
    }

    fn granted(&mut self, index: usize, token: Token, at_ns: u64) {
        self.tokens.push(token);
        let number = index % self.locks.len();
        let lock = &mut self.locks[number];
        if lock.token.is_some_and(|before| before >= token) {
            let before = lock.token.replace(token);
            self.fault(&format!("lock {number}: token {token} after {before:?}"));
        } else {
            lock.token = Some(token);
        }
        let lock = &mut self.locks[number];
        let holder = lock.holder.replace(index);
        if !std::mem::replace(&mut self.answered[index], true) {
            self.pulse.add(index);
            if holder.is_some() || !lock.queue.is_empty() {
                self.fault(&format!("lock {number}: session {index} was granted past its queue"));
            }
            return;
        }
        let first = lock.queue.front().copied();
        lock.queue.retain(|&waiter| waiter != index);
        match self.leaving.take_if(|leaving| leaving.lock == number) {
            Some(left) if first == Some(index) => self.handovers.record(at_ns.saturating_sub(left.at_ns)),
            Some(_) => self.fault(&format!("lock {number}: session {index} was granted, not {first:?}")),
            None => self.fault(&format!("lock {number}: granted to {index} although {holder:?} stays")),
        }
    }

    /// The holders leave, one after the other, lock by lock, until nobody is left.
    fn hand_over_all(&mut self) -> Result<()> {
        let mut open = true;
        while open {
            open = false;
            for lock in 0..self.locks.len() {
                let Some(holder) = self.locks[lock].holder.take() else { continue };
                open = true;
                let has_queue = !self.locks[lock].queue.is_empty();
                self.leaving = has_queue.then(|| Leaving { lock, at_ns: now_ns() });
                self.fleet.close(holder);
                self.turn_until(|crowd| crowd.leaving.is_none())?;
            }
        }
        Ok(())
    }

    fn fault(&mut self, what: &str) {
        self.faults += 1;
        if self.faults <= FAULTS_SHOWN_MAX {
            println!("FAULT {what}");
        }
    }

    /// Prints the latencies since the last report.
    fn report(&mut self, what: &str, server: &mut Server) -> Result<()> {
        server.check_alive()?;
        let latencies = std::mem::replace(&mut self.latencies, Latencies::new());
        let late_us = std::mem::take(&mut self.pulse.late_ns_max) / 1000;
        let skipped = std::mem::take(&mut self.pulse.skipped);
        println!(
            "  {what}: {latencies}; this side at most {late_us} µs late, {skipped} answers overdue at the next beat"
        );
        Ok(())
    }

    fn verdict(mut self, connections: usize) -> Result<Verdict> {
        self.tokens.sort_unstable();
        let repeated = self.tokens.windows(2).filter(|pair| pair[0] == pair[1]).count();
        let grants = self.tokens.len();
        println!("{grants} grants, {repeated} tokens repeated, {} faults", self.faults);
        let missing = connections.checked_sub(grants).context("more grants than sessions")?;
        Ok(if self.faults == 0 && repeated == 0 && missing == 0 {
            Verdict::Met
        } else {
            Verdict::Missed(format!(
                "{} faults, {repeated} repeated tokens, {missing} sessions that were never granted",
                self.faults
            ))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A crowd of four on two locks: sessions 0 and 2 on lock 0, 1 and 3 on lock 1.
    fn crowd() -> Crowd {
        let lease = Lease::from_ms(1000).unwrap();
        let mut crowd = Crowd::new(([127, 0, 0, 1], 1).into(), 2, lease).unwrap();
        crowd.answered = vec![false; 6];
        crowd
    }

    fn faults(events: &[(usize, What)], leaving: Option<usize>) -> u64 {
        let mut crowd = crowd();
        for (at, (index, what)) in events.iter().enumerate() {
            if at + 1 == events.len() {
                crowd.leaving = leaving.map(|lock| Leaving { lock, at_ns: 0 });
            }
            crowd.apply(*index, 1, what);
        }
        crowd.faults
    }

    #[test]
    fn a_queue_that_is_handed_over_in_order_has_no_fault() {
        let events = [
            (0, What::Granted(Token(1))),
            (1, What::Granted(Token(2))),
            (2, What::Queued),
            (4, What::Queued),
            (2, What::Granted(Token(3))),
        ];
        assert_eq!(faults(&events, Some(0)), 0);
    }

    #[test]
    fn a_grant_while_the_holder_stays_is_a_fault() {
        let events = [(0, What::Granted(Token(1))), (2, What::Queued), (2, What::Granted(Token(2)))];
        assert_eq!(faults(&events, None), 1);
        assert_eq!(faults(&events, Some(1)), 1, "another lock's holder left");
        assert_eq!(faults(&[(0, What::Granted(Token(1))), (2, What::Granted(Token(2)))], None), 1);
    }

    #[test]
    fn a_grant_that_passes_over_the_head_of_the_queue_is_a_fault() {
        let queued = [(0, What::Granted(Token(1))), (2, What::Queued), (4, What::Queued)];
        let events: Vec<_> = queued.into_iter().chain([(4, What::Granted(Token(2)))]).collect();
        assert_eq!(faults(&events, Some(0)), 1);
    }

    #[test]
    fn a_token_that_does_not_grow_is_a_fault() {
        let events = [(0, What::Granted(Token(2))), (2, What::Queued), (2, What::Granted(Token(2)))];
        assert_eq!(faults(&events, Some(0)), 1);
    }

    #[test]
    fn a_session_that_ends_by_itself_is_a_fault() {
        let events = [(0, What::Granted(Token(1))), (0, What::Ended(crate::load::End::Closed))];
        assert_eq!(faults(&events, None), 1);
    }
}
