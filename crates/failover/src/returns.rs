//! Many clients come back at once, and others have heartbeats meanwhile.

use std::fs;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use anyhow::{Result, ensure};
use client::{CancellationToken, Client, Config, boottime_ns};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::{sleep, timeout};

use crate::net::{Net, Place};

/// Our own clients, each with a lock of its own.
const MANY: usize = 2000;

/// Clients that write the protocol's bytes and measure each answer.
const FEW: usize = 200;

/// Between two heartbeats of one of those.
const BEAT: Duration = Duration::from_millis(50);

/// What is called "during": from the first answer of the new server on.
const DURING: Duration = Duration::from_secs(3);

#[derive(Default)]
struct Seen {
    /// Sent and read.
    beats: Vec<(u64, u64)>,
    /// Grants of the many.
    grants: Vec<u64>,
}

/// Both crowds, in the clients' namespace.
pub(crate) struct Returning {
    seen: Arc<Mutex<Seen>>,
    ends: CancellationToken,
    threads: Vec<JoinHandle<()>>,
}

impl Returning {
    /// Starts both, and waits until all have their locks.
    pub(crate) fn start(net: &Arc<Net>, address: SocketAddr) -> Result<Self> {
        testkit::process::raise_nofile()?;
        let (seen, ends) = (Arc::<Mutex<Seen>>::default(), CancellationToken::new());
        let mut threads = Vec::new();
        for are_many in [true, false] {
            let (net, seen, ends) = (Arc::clone(net), Arc::clone(&seen), ends.clone());
            threads.push(thread::spawn(move || {
                net.enter(Place::Clients).expect("the clients' namespace");
                let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
                runtime.expect("a runtime").block_on(async {
                    if are_many { many(address, seen, ends).await } else { few(address, seen, ends).await }
                });
            }));
        }
        let returning = Self { seen, ends, threads };
        let deadline_ns = boottime_ns() + 30_000_000_000;
        while returning.seen.lock().unwrap_or_else(PoisonError::into_inner).grants.len() < MANY {
            ensure!(boottime_ns() < deadline_ns, "not all clients got their locks");
            thread::sleep(Duration::from_millis(10));
        }
        // What "before" is taken from.
        thread::sleep(DURING);
        Ok(returning)
    }

    /// Waits until all are back; the figures, of what happened at `from_ns`.
    pub(crate) fn finish(mut self, from_ns: u64) -> Result<String> {
        let deadline_ns = boottime_ns() + 30_000_000_000;
        let back = loop {
            let seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
            let back: Vec<u64> = seen.grants.iter().copied().filter(|at_ns| *at_ns > from_ns).collect();
            drop(seen);
            if back.len() >= MANY {
                break back;
            }
            ensure!(boottime_ns() < deadline_ns, "{} of {MANY} clients are back", back.len());
            thread::sleep(Duration::from_millis(10));
        };
        let load = fs::read_to_string("/proc/loadavg")?;
        self.ends.cancel();
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
        let seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        let first_ns = seen.beats.iter().filter(|beat| beat.0 > from_ns).map(|beat| beat.1).min();
        let first_ns = first_ns.unwrap_or(u64::MAX);
        let during_ns = u64::try_from(DURING.as_nanos())?;
        let before = times(&seen.beats, from_ns.saturating_sub(during_ns)..from_ns);
        let during = times(&seen.beats, first_ns..first_ns.saturating_add(during_ns));
        let mut back: Vec<u64> = back.iter().map(|at_ns| at_ns - from_ns).collect();
        back.sort_unstable();
        Ok(format!(
            "heartbeats of {FEW}: before p50 {} p99 {}, during p50 {} p99 {} worst {}; {MANY} back after p50 {} p99 {} \
             last {}; load {}",
            at(&before, 50),
            at(&before, 99),
            at(&during, 50),
            at(&during, 99),
            at(&during, 100),
            at(&back, 50),
            at(&back, 99),
            at(&back, 100),
            load.split(' ').next().unwrap_or_default(),
        ))
    }
}

impl Drop for Returning {
    fn drop(&mut self) {
        self.ends.cancel();
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

/// Round-trip times of what was sent in a span, sorted.
fn times(beats: &[(u64, u64)], span: std::ops::Range<u64>) -> Vec<u64> {
    let mut times: Vec<u64> =
        beats.iter().filter(|beat| span.contains(&beat.0)).map(|beat| beat.1 - beat.0).collect();
    times.sort_unstable();
    times
}

fn at(sorted: &[u64], percent: usize) -> String {
    let index = (sorted.len() * percent / 100).min(sorted.len().saturating_sub(1));
    sorted.get(index).map_or_else(|| "-".into(), |ns| format!("{:.2?}", Duration::from_nanos(*ns)))
}

async fn many(address: SocketAddr, seen: Arc<Mutex<Seen>>, ends: CancellationToken) {
    let mut tasks = Vec::new();
    for number in 0..MANY {
        let (seen, ends) = (Arc::clone(&seen), ends.clone());
        tasks.push(tokio::spawn(async move {
            let client = Client::new(Config::new(address.to_string()));
            let name = format!("many-{number}");
            while !ends.is_cancelled() {
                let work = async |grant: client::Grant| {
                    seen.lock().unwrap_or_else(PoisonError::into_inner).grants.push(boottime_ns());
                    grant.stop().cancelled().await;
                };
                // It ends with its claim, and begins anew.
                let _ = client.run_retry_until(&ends, &name, Duration::from_secs(2), work).await;
            }
        }));
    }
    for task in tasks {
        let _ = task.await;
    }
}

async fn few(address: SocketAddr, seen: Arc<Mutex<Seen>>, ends: CancellationToken) {
    let mut tasks = Vec::new();
    for number in 0..FEW {
        let (seen, ends) = (Arc::clone(&seen), ends.clone());
        tasks.push(tokio::spawn(async move {
            while !ends.is_cancelled() {
                let _ = beat(address, number, &seen, &ends).await;
                sleep(Duration::from_millis(10)).await;
            }
        }));
    }
    for task in tasks {
        let _ = task.await;
    }
}

/// One connection, for as long as it is answered.
async fn beat(
    address: SocketAddr,
    number: usize,
    seen: &Mutex<Seen>,
    ends: &CancellationToken,
) -> std::io::Result<()> {
    let patience = Duration::from_millis(500);
    let mut stream = timeout(patience, TcpStream::connect(address)).await??;
    stream.set_nodelay(true)?;
    let name = format!("few-{number}");
    let mut frame = vec![0x01, 1, 0, 0, 0x07, 0xd0, 0, u8::try_from(name.len()).expect("a short name")];
    frame.extend(name.as_bytes());
    stream.write_all(&frame).await?;
    let mut answer = [0; 9];
    timeout(patience, stream.read_exact(&mut answer)).await??;
    while !ends.is_cancelled() && answer[0] == 0x12 {
        sleep(BEAT).await;
        let sent_ns = boottime_ns();
        stream.write_all(&[0x02]).await?;
        timeout(patience, stream.read_exact(&mut answer)).await??;
        seen.lock().unwrap_or_else(PoisonError::into_inner).beats.push((sent_ns, boottime_ns()));
    }
    Ok(())
}
