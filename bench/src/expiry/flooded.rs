//! How late locks move on while other clients flood the shard.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use protocol::Lease;

use super::pairs::{Lateness, Pairs};
use crate::attack::{self, Attack, Floods};
use crate::clock::{NS_PER_S, as_ns, now_ns};

/// Pairs that are open at a time: some 200 expiries a second.
const PAIRS: usize = 200;

/// The lease of their holders: a waiter must be in line before it is over, also behind a thousand flooding
/// sessions.
const LEASE_MS: u32 = 1000;

/// How long a crowd may take to be all in line. 5000 pairs take some 3 s on a quiet server.
const CROWD_JOINS_MAX: Duration = Duration::from_secs(15);

/// From the start of a flood to the moment at which a crowd's leases are over together.
const FLOOD_FIRST: Duration = Duration::from_secs(2);

/// A lock that has not moved on so long after its holder's lease is taken for one that never does.
const NEVER: Duration = Duration::from_secs(10);

/// Between two looks at the time.
const TICK_NS: u64 = 10_000_000;

/// One expiry after the other beside a flood, for `seconds`.
pub(super) fn steady(server: SocketAddr, flood: Attack, seconds: u32) -> Result<(Lateness, String)> {
    let lease = Lease::from_ms(LEASE_MS).expect("a positive constant");
    beside(server, flood, || {
        let mut pairs = Pairs::with(server, false)?;
        let end_ns = now_ns() + u64::from(seconds) * NS_PER_S;
        let gap_ns = u64::from(LEASE_MS) * 1_000_000 / PAIRS as u64;
        let mut next_ns = now_ns();
        let mut open = 0;
        loop {
            let now = now_ns();
            if now < end_ns && open < 2 * PAIRS && next_ns <= now {
                pairs.open(lease)?;
                open += 1;
                // Spread over the lease, as independent clients are.
                next_ns = now.max(next_ns + gap_ns);
            } else if now >= end_ns && open == 0 {
                return Ok(pairs.into_lateness());
            }
            ensure!(now < end_ns + as_ns(NEVER), "{} locks do not move on", pairs.waiting());
            open -= pairs.poll(next_ns.saturating_sub(now_ns()).clamp(1, TICK_NS))?;
        }
    })
}

/// The leases of a crowd of holders are over at one moment, beside a flood.
pub(super) fn at_once(server: SocketAddr, flood: Attack, crowd: usize) -> Result<(Lateness, String)> {
    let mut pairs = Pairs::with(server, true)?;
    let over_ns = now_ns() + as_ns(CROWD_JOINS_MAX);
    for _ in 0..crowd {
        let left_ms = over_ns.saturating_sub(now_ns()) / 1_000_000;
        pairs.open(Lease::from_ms(u32::try_from(left_ms)?).context("joining took too long")?)?;
        pairs.poll(1)?;
    }
    while pairs.waiting() < crowd {
        ensure!(now_ns() + as_ns(FLOOD_FIRST) < over_ns, "{} of {crowd} pairs are in line", pairs.waiting());
        pairs.poll(TICK_NS)?;
    }
    thread::sleep(Duration::from_nanos(over_ns.saturating_sub(now_ns() + as_ns(FLOOD_FIRST))));
    beside(server, flood, || {
        while pairs.waiting() > 0 {
            ensure!(now_ns() < over_ns + as_ns(NEVER), "{} locks do not move on", pairs.waiting());
            pairs.poll(TICK_NS)?;
        }
        Ok(pairs.into_lateness())
    })
}

/// Runs `measure` while a flood goes on; returns what the flood did, too.
fn beside<T>(server: SocketAddr, flood: Attack, measure: impl FnOnce() -> Result<T>) -> Result<(T, String)> {
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        let attacker = scope.spawn(|| flood.run(server, &stop));
        let measured = measure();
        stop.store(true, Ordering::Relaxed);
        let story = attacker.join().expect("an attacker does not panic");
        Ok((measured?, story?))
    })
}

/// Sessions with this lease that send without pause and read all answers; none for no sessions.
pub(super) fn flood_of(sessions: usize, lease_ms: u32) -> Attack {
    match sessions {
        0 => Attack::None,
        _ => Attack::Floods(Floods { sessions, lease_ms, half_are_deaf: false }),
    }
}

/// A lease that is over at each look of the shard, while the next heartbeat is always there.
pub(super) const LEASE_SHORT_MS: u32 = 5;

pub(super) use attack::LEASE_MS as LEASE_OF_FLOODS_MS;
