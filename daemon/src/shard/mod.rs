//! The shards: one pinned thread each, with a ring, a lock table, and all sessions of the locks whose names
//! fall to it.
//!
//! A connection reaches its shard once, through the inbox, and stays. Nothing else crosses between shards, so
//! a heartbeat touches one core, one ring and one session.

mod hand_over;
mod owners;
mod questions;
pub(crate) mod seen;
mod trail;
mod view;
mod wire;
mod worker;

use std::io;
use std::sync::{Arc, mpsc};

use reactor::Waker;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

use crate::metrics::Published;
use crate::vital;
pub(crate) use hand_over::{HandOver, Secured};
use owners::Owners;
pub(crate) use questions::{NoAnswer, Questions};
pub(crate) use worker::Settings;
use worker::Worker;

/// The way to the shards, for the intake.
#[derive(Clone)]
pub(crate) struct Shards {
    owners: Owners,
    doors: Vec<Door>,
}

#[derive(Clone)]
struct Door {
    inbox: mpsc::Sender<HandOver>,
    waker: Waker,
}

/// The running shard threads.
pub(crate) struct Threads {
    threads: Vec<vital::Thread>,
    wakers: Wakers,
}

/// What makes every shard look at once: at the gate, and at the token ceiling.
#[derive(Clone)]
pub(crate) struct Wakers(Vec<Waker>);

/// Why the shards did not start.
#[derive(Debug, thiserror::Error)]
pub(crate) enum StartError {
    #[error(transparent)]
    Ring(#[from] reactor::Unavailable),
    #[error("cannot start a shard's thread: {0}")]
    Thread(#[from] io::Error),
}

/// The CPUs that this process may run on.
pub(crate) fn usable_cpus() -> Vec<usize> {
    // Fails only for a machine with more CPUs than the set has bits; then threads float.
    let allowed = sched_getaffinity(None).unwrap_or_else(|_| CpuSet::new());
    (0..CpuSet::MAX_CPU).filter(|&cpu| allowed.is_set(cpu)).collect()
}

/// Starts one thread for each of `published`, pinned to the usable CPUs in turn.
pub(crate) fn start(
    settings: &Settings,
    audit: Option<&audit::Recorder>,
    published: &[Arc<Published>],
) -> Result<(Shards, Questions, Threads), StartError> {
    let cpus = usable_cpus();
    let owners = Owners::new(published.len());
    let mut doors = Vec::new();
    let mut questions = Questions::new(owners.clone());
    let mut threads = Vec::new();
    for (index, published) in published.iter().enumerate() {
        let cpu = cpus.get(index % cpus.len().max(1)).copied();
        let (inbox, take) = mpsc::channel();
        let (ask, asked) = questions::inbox();
        let (ready, is_ready) = mpsc::channel();
        let (settings, audit, published) = (settings.clone(), audit.cloned(), Arc::clone(published));
        let thread = vital::start(format!("shard-{index}"), move || {
            if let Some(cpu) = cpu {
                pin_to(cpu);
            }
            match Worker::new(index, settings, take, asked, audit, published) {
                Ok(worker) => {
                    ready.send(Ok(worker.waker())).expect("the starter waits for this");
                    worker.run();
                }
                Err(error) => ready.send(Err(error)).expect("the starter waits for this"),
            }
        })?;
        let waker = is_ready.recv().expect("the thread reports before it ends")?;
        questions.add(ask, waker.clone());
        doors.push(Door { inbox, waker });
        threads.push(thread);
    }
    let wakers = Wakers(doors.iter().map(|door| door.waker.clone()).collect());
    Ok((Shards { owners, doors }, questions, Threads { threads, wakers }))
}

fn pin_to(cpu: usize) {
    let mut set = CpuSet::new();
    set.set(cpu);
    // A CPU that went away since it was listed: the thread floats, which is slower and as correct.
    let _ = sched_setaffinity(None, &set);
}

impl Shards {
    /// Hands a connection to the shard that owns its lock's name.
    pub(crate) fn hand_over(&self, connection: HandOver) {
        let door = &self.doors[self.owners.of(connection.acquire.name.as_str())];
        // A shard outlives every intake thread.
        door.inbox.send(connection).expect("the shard takes connections as long as an intake can send them");
        door.waker.wake();
    }
}

impl Wakers {
    pub(crate) fn wake(&self) {
        for waker in &self.0 {
            waker.wake();
        }
    }
}

impl Threads {
    pub(crate) fn wakers(&self) -> Wakers {
        self.wakers.clone()
    }

    /// Makes every shard look at the gate now.
    pub(crate) fn wake(&self) {
        self.wakers.wake();
    }

    /// Waits until every shard has ended its sessions. Only after the gate was shut and the last [`Shards`]
    /// dropped.
    pub(crate) async fn ended(self) {
        self.wake();
        for thread in self.threads {
            thread.ended().await;
        }
    }
}
