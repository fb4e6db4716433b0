//! The clients: threads in their own namespace, which hold, ask and write for as long as the lab lives.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use anyhow::Result;
use client::{CancellationToken, Client, Config, Grant, boottime_ns};

use crate::bare;
use crate::history::{Answer, By, History};
use crate::net::{Net, Place};

/// Short enough that heartbeats are many.
pub const LEASE: Duration = Duration::from_secs(2);

/// Between two attempts and between two heartbeats of the bare client: the resolution of what is measured.
const STEP: Duration = Duration::from_millis(5);

/// Bare clients that keep a lock, bare ones that take one anew each time, and ours, by twos at one lock.
const KEEPERS: u32 = 2;
const PROBES: u32 = 2;
const OURS: u32 = 8;

/// The clients of a lab.
pub struct Crowd {
    /// What they saw.
    pub history: Arc<History>,
    ends: Arc<AtomicBool>,
    cancel: CancellationToken,
    threads: Vec<JoinHandle<()>>,
}

#[derive(Clone)]
struct Around {
    address: SocketAddr,
    history: Arc<History>,
    ends: Arc<AtomicBool>,
    cancel: CancellationToken,
    claims: Arc<AtomicU64>,
}

impl Crowd {
    /// Starts them all.
    pub fn start(net: &Arc<Net>, address: SocketAddr) -> Result<Self> {
        let around = Around {
            address,
            history: Arc::default(),
            ends: Arc::default(),
            cancel: CancellationToken::new(),
            claims: Arc::default(),
        };
        let mut threads = Vec::new();
        let mut start = |work: fn(&Around, u32), number: u32| {
            let (around, net) = (around.clone(), Arc::clone(net));
            threads.push(thread::spawn(move || {
                net.enter(Place::Clients).expect("the clients' namespace");
                work(&around, number);
            }));
        };
        (0..KEEPERS).for_each(|number| start(keep, number));
        (0..PROBES).for_each(|number| start(probe, 100 + number));
        (0..OURS).for_each(|number| start(ours, 200 + number / 2));
        let Around { history, ends, cancel, .. } = around;
        Ok(Self { history, ends, cancel, threads })
    }
}

impl Drop for Crowd {
    fn drop(&mut self) {
        self.ends.store(true, Ordering::Relaxed);
        self.cancel.cancel();
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

impl Around {
    fn ends(&self) -> bool {
        self.ends.load(Ordering::Relaxed)
    }

    fn granted(&self, lock: u32, claim: &bare::Claim) -> Answer {
        let number = self.claims.fetch_add(1, Ordering::Relaxed);
        let answer = Answer {
            claim: number,
            lock,
            token: claim.token,
            sent_ns: claim.sent_ns,
            read_ns: claim.read_ns,
            is_grant: true,
            by: By::Bare,
        };
        self.history.answered(answer);
        self.history.write(lock, claim.token);
        answer
    }
}

/// Holds a lock for as long as it can.
fn keep(around: &Around, lock: u32) {
    let name = format!("lock-{lock}");
    while !around.ends() {
        if let Ok(mut claim) = bare::acquire(around.address, &name, LEASE) {
            let grant = around.granted(lock, &claim);
            // By the page it may go on to 0.8 of its lease; it gives up sooner, to be back sooner.
            while let Ok((sent_ns, read_ns)) = claim.heartbeat() {
                around.history.answered(Answer { sent_ns, read_ns, is_grant: false, ..grant });
                around.history.write(lock, claim.token);
                if around.ends() {
                    return;
                }
                thread::sleep(STEP);
            }
        }
        thread::sleep(STEP);
    }
}

/// Takes a lock and lets it go, again and again.
fn probe(around: &Around, lock: u32) {
    let name = format!("lock-{lock}");
    while !around.ends() {
        if let Ok(claim) = bare::acquire(around.address, &name, LEASE) {
            around.granted(lock, &claim);
        }
        thread::sleep(STEP);
    }
}

/// Works under a lock that another one wants too, for a moment each time.
fn ours(around: &Around, lock: u32) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let client =
        Client::new(Config::new(around.address.to_string()).with_dial_timeout(Duration::from_millis(500)));
    let name = format!("lock-{lock}");
    runtime.block_on(async {
        while !around.ends() {
            let begun_ns = boottime_ns();
            let work = async |grant: Grant| {
                let claim = around.claims.fetch_add(1, Ordering::Relaxed);
                let token = grant.token().0;
                around.history.answered(Answer {
                    claim,
                    lock,
                    token,
                    sent_ns: begun_ns,
                    read_ns: boottime_ns(),
                    is_grant: true,
                    by: By::Ours,
                });
                for _ in 0..fastrand::u32(2..20) {
                    if grant.is_held() {
                        around.history.write(lock, token);
                    }
                    tokio::time::sleep(Duration::from_millis(10)).await;
                }
            };
            // Whatever went wrong, it begins anew.
            let _ = client.run_retry_until(&around.cancel, &name, LEASE, work).await;
        }
    });
}
