//! Restarts alone: many claims of one process, and how fast all of them are queued again.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use client::{Connection, Error, Event, boottime_ns, request};
use rustix::process::Signal;
use soak::logs::names::lock_name;
use soak::report;
use testkit::process::{self, Server, Start};
use tokio::runtime::Builder;
use tokio::sync::Notify;
use tokio::time::sleep;

use crate::options::Options;
use crate::pauses::Pauses;
use crate::run::END_MAX;
use crate::verdict::Verdict;

/// Nothing may listen for longer than this, for the demand below to hold.
const GAP_MAX: Duration = Duration::from_millis(200);

/// All claims are to be queued again this long after the new server listens.
const RETURN_MAX: Duration = Duration::from_secs(3);

/// How long the crowd may take before it is given up.
const QUEUED_MAX: Duration = Duration::from_secs(30);

/// A claim was answered: which one, and when.
type Answered = (usize, u64);

pub(super) fn run(options: &Options, program: &Path) -> Result<Verdict> {
    process::raise_nofile()?;
    let address = process::fixed_address()?;
    let start = || Server::start_at(&Start::new(program, options.shards), address);
    let mut server = start()?;
    let (answers, answered) = mpsc::channel();
    let ends = Arc::new(Notify::new());
    let crowd = spawn(options, address, answers, Arc::clone(&ends))?;
    let all = usize::try_from(options.clients)?;
    collect(&answered, all, 0).context("before the first restart")?;
    println!("{all} claims on {} locks, in one process", options.locks);
    let mut missed = Vec::new();
    for (how, signal) in [("SIGTERM", Signal::TERM), ("SIGKILL", Signal::KILL)] {
        let begin_ns = boottime_ns();
        server.signal(signal)?;
        server.wait_for_end(END_MAX)?;
        server = start()?;
        let listening_ns = boottime_ns();
        let returns = collect(&answered, all, begin_ns).with_context(|| format!("after {how}"))?;
        let mut after_ns: Vec<_> =
            returns.iter().map(|at_ns| Some(at_ns.saturating_sub(listening_ns))).collect();
        after_ns.sort_unstable();
        let gap_ns = listening_ns - begin_ns;
        println!("{}", report::restart(how, gap_ns, &after_ns));
        let last = Duration::from_nanos(after_ns.last().copied().flatten().unwrap_or_default());
        if Duration::from_nanos(gap_ns) <= GAP_MAX && last > RETURN_MAX {
            missed.push(format!("after {how} the last claim was queued {last:?} after the listening"));
        }
    }
    ends.notify_one();
    crowd.join().expect("the crowd does not panic")?;
    Ok(if missed.is_empty() { Verdict::Met } else { Verdict::Missed(missed.join("; ")) })
}

/// When each claim was answered for the first time since then.
fn collect(answered: &Receiver<Answered>, all: usize, since_ns: u64) -> Result<Vec<u64>> {
    let deadline = Instant::now() + QUEUED_MAX;
    let mut first = vec![None; all];
    let mut missing = all;
    while missing > 0 {
        let left = deadline.saturating_duration_since(Instant::now());
        let (claim, at_ns) = answered
            .recv_timeout(left)
            .ok()
            .with_context(|| format!("{missing} of {all} claims are not queued"))?;
        if first[claim].is_none() && at_ns >= since_ns {
            first[claim] = Some(at_ns);
            missing -= 1;
        }
    }
    Ok(first.into_iter().flatten().collect())
}

/// The claims, on a thread of their own.
fn spawn(
    options: &Options,
    address: SocketAddr,
    answers: Sender<Answered>,
    ends: Arc<Notify>,
) -> Result<thread::JoinHandle<Result<()>>> {
    let runtime = Builder::new_current_thread().enable_all().build()?;
    let (clients, locks, lease) = (usize::try_from(options.clients)?, options.locks, options.lease_max);
    ensure!(!lease.is_zero(), "--lease-max 0ms is no lease");
    Ok(thread::spawn(move || {
        runtime.block_on(async {
            for claim in 0..clients {
                let lock = u32::try_from(claim)? % locks;
                tokio::spawn(keep_claiming(address.to_string(), lock, lease, claim, answers.clone()));
            }
            ends.notified().await;
            Ok(())
        })
    }))
}

/// Claims a lock and stays, for ever anew.
async fn keep_claiming(address: String, lock: u32, lease: Duration, claim: usize, answers: Sender<Answered>) {
    let mut pauses = Pauses::new();
    loop {
        let error = claim_once(&address, lock, lease, claim, &answers, &mut pauses).await;
        sleep(pauses.after(&error).mul_f64(fastrand::f64())).await;
    }
}

/// Until the claim is lost. Nobody hears of an answer after the last restart.
async fn claim_once(
    address: &str,
    lock: u32,
    lease: Duration,
    claim: usize,
    answers: &Sender<Answered>,
    pauses: &mut Pauses,
) -> Error {
    let acquire = match request(&lock_name(lock), lease) {
        Ok(acquire) => acquire,
        Err(error) => return error,
    };
    let mut connection = match Connection::open(address, acquire).await {
        Ok(connection) => connection,
        Err(error) => return error,
    };
    loop {
        match connection.next_event().await {
            Event::Lost(loss) => return Error::Lost(loss),
            Event::Waiting | Event::Acquired(_) => {
                *pauses = Pauses::new();
                let _ = answers.send((claim, boottime_ns()));
            }
        }
    }
}
