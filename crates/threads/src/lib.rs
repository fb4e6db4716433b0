//! Threads for a process that may reach the limit of them.
//!
//! Where a unit (TasksMax), a user (RLIMIT_NPROC) or the machine has no more threads, none can be started:
//! work that must go on then has its thread from the start. This crate says what to look at when one cannot
//! be started, and gives work that may wait (for disks, for shards) a fixed number of threads and a bounded
//! line before them. It never starts a thread later, and never lets a job's panic cost one.
//!
//! ```
//! # let runtime = threads::runtime::current_thread().unwrap();
//! # runtime.block_on(async {
//! let workers = threads::Workers::start("worker", 1, 4)?;
//! assert_eq!(workers.run(|| 6 * 7).await, Ok(42));
//! # std::io::Result::Ok(())
//! # }).unwrap();
//! ```
#![forbid(unsafe_code)]

pub mod runtime;

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{self, Receiver, SyncSender, TrySendError};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};

use tokio::runtime::Handle;
use tokio::sync::oneshot;

/// Starts a named thread.
///
/// # Errors
///
/// Where there are no more threads; the error says what to look at.
pub fn start(name: impl Into<String>, body: impl FnOnce() + Send + 'static) -> io::Result<JoinHandle<()>> {
    thread::Builder::new().name(name.into()).spawn(body).map_err(|error| match error.kind() {
        io::ErrorKind::WouldBlock => {
            let limits =
                "too many threads or processes (TasksMax= of the unit, ulimit -u), or too little memory";
            io::Error::new(error.kind(), format!("{error}: {limits}"))
        }
        _ => error,
    })
}

type Job = Box<dyn FnOnce() + Send>;

/// Threads that wait, for disks or for shards, in the place of the control thread.
#[derive(Debug, Clone)]
pub struct Workers(SyncSender<Job>);

/// Why there is no result.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum NotDone {
    /// Too many jobs wait for a thread.
    #[error("too many requests at once")]
    Busy,
    /// The job did; the log says where.
    #[error("an error of the server itself, which its log tells of")]
    Panicked,
}

impl Workers {
    /// Starts `count` threads in the context of the current runtime, so that jobs may spawn tasks there.
    /// `waiting_max` jobs may wait for a thread.
    ///
    /// # Errors
    ///
    /// As [`start`].
    pub fn start(name: &str, count: usize, waiting_max: usize) -> io::Result<Self> {
        let (queue, jobs) = mpsc::sync_channel(waiting_max);
        let jobs = Arc::new(Mutex::new(jobs));
        for _ in 0..count {
            let (jobs, runtime) = (Arc::clone(&jobs), Handle::current());
            start(name, move || {
                let _context = runtime.enter();
                work(&jobs);
            })?;
        }
        Ok(Self(queue))
    }

    /// Runs a job on one of the threads. It is done also when nobody waits for it any more.
    ///
    /// # Errors
    ///
    /// When too many jobs wait already, or the job panics.
    pub async fn run<T: Send + 'static>(
        &self,
        job: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, NotDone> {
        let (done, is_done) = oneshot::channel();
        // Whoever asked may have gone.
        let job = Box::new(move || drop(done.send(job())));
        self.0.try_send(job).map_err(|error| match error {
            TrySendError::Full(_) => NotDone::Busy,
            TrySendError::Disconnected(_) => unreachable!("the threads end after the last sender"),
        })?;
        is_done.await.map_err(|_| NotDone::Panicked)
    }
}

fn work(jobs: &Mutex<Receiver<Job>>) {
    loop {
        // One of the idle threads waits for a job, and the others for their turn to.
        let job = jobs.lock().unwrap_or_else(PoisonError::into_inner).recv();
        let Ok(job) = job else { return };
        // What panicked is dropped, and the thread is there for the next.
        let _ = catch_unwind(AssertUnwindSafe(job));
    }
}
