//! The intake: connections are accepted, their first frame is read and checked, and they move to the shard
//! that owns their lock's name.
//!
//! Each thread runs tokio-uring and shares the listeners with the others. Set-up is long, bursty,
//! asynchronous work; it never shares a loop with the heartbeats of sessions.

mod accept;
mod pending;
mod setup;
mod socket;
mod stream;

use std::cell::RefCell;
use std::io;
use std::net::TcpListener;
use std::sync::{Arc, mpsc};
use std::time::Duration;

use tokio::sync::{Semaphore, watch};
use tracing::Level;

use crate::addresses;
use crate::capacity::Capacity;
use crate::metrics::IntakeCounters;
use crate::shard::Shards;
use crate::vital;
use acl::Acl;
use logging::seldom::Seldom;

/// Submission entries of an intake ring; one is used for each readiness poll between two submissions.
const RING_ENTRIES: u32 = 1024;

/// Completion entries of an intake ring: so many polls may complete at once before the kernel keeps the rest
/// aside, which is slower and loses nothing.
const RING_COMPLETIONS: u32 = 32_768;

/// Refused connections that drain at a time; a further one is closed as soon as its ERROR is sent. A thousand
/// refused clients a second are served, and refusals never take all places.
pub(crate) const DRAINING_MAX: usize = 1024;

/// Connections in set-up at a time, over all threads: as many as the kernel queues by default
/// (net.core.somaxconn). Each may hold some KB of TLS state, which makes some 40 MB.
pub(crate) const PENDING_MAX: usize = 4096;

/// How often each kind of refusal is logged at info: anybody may cause thousands a second. The others are
/// logged at debug.
const REFUSAL_LOG_INTERVAL: Duration = Duration::from_secs(1);

/// How often it is logged that accepting waits. A server at its limit accepts, and waits again, with every
/// session that leaves.
const WAITS_LOG_INTERVAL: Duration = Duration::from_secs(10);

/// What a connection is accepted under. A reload makes a new one, for the connections after it.
#[derive(Debug, Default)]
pub(crate) struct Admission {
    /// Plain TCP when `None`.
    pub(crate) tls: Option<tls::Config>,
    /// Everybody may have every lock when `None`.
    pub(crate) acl: Option<Arc<Acl>>,
}

/// What every intake thread works with.
#[derive(Clone)]
pub(crate) struct Context {
    pub(crate) io_timeout: Duration,
    pub(crate) admission: watch::Receiver<Arc<Admission>>,
    pub(crate) audit: RefCell<Option<audit::Recorder>>,
    /// Connections in set-up at a time of this thread.
    pub(crate) pending_max: usize,
    pub(crate) capacity: Arc<Capacity>,
    pub(crate) addresses: addresses::Shared,
    pub(crate) counters: Arc<IntakeCounters>,
    pub(crate) shards: Shards,
    /// One permit for each refused connection that drains.
    pub(crate) draining: Arc<Semaphore>,
    pub(crate) lines: Lines,
}

/// The kinds of lines that clients cause.
#[derive(Debug, Clone)]
pub(crate) struct Lines {
    failed_handshake: Seldom,
    no_tls_here: Seldom,
    no_identity: Seldom,
    denied: Seldom,
    accepting_waits: Seldom,
}

impl Default for Lines {
    fn default() -> Self {
        let refusal = |name| Seldom::new(name, Level::INFO, REFUSAL_LOG_INTERVAL);
        Self {
            failed_handshake: refusal("TLS handshake failed"),
            no_tls_here: refusal("the client speaks TLS"),
            no_identity: refusal("the client's certificate gives no identity"),
            denied: refusal("denied by the ACL"),
            accepting_waits: Seldom::new("accepting waits", Level::WARN, WAITS_LOG_INTERVAL),
        }
    }
}

impl Context {
    /// What the next connection is accepted under.
    fn admission(&self) -> Arc<Admission> {
        Arc::clone(&self.admission.borrow())
    }

    fn record(&self, event: audit::Event) {
        if let Some(audit) = &mut *self.audit.borrow_mut() {
            audit.record(event);
        }
    }
}

/// The protocol's listeners, which all intake threads share.
type Listeners = Arc<[TcpListener]>;

/// Intake threads with their rings set up, waiting for the listeners.
pub(crate) struct Prepared {
    threads: Vec<(mpsc::Sender<Listeners>, vital::Thread)>,
    stop: watch::Sender<bool>,
}

/// Intake threads at work.
pub(crate) struct Intake {
    threads: Vec<vital::Thread>,
    listeners: Listeners,
    stop: watch::Sender<bool>,
}

/// Starts `threads` intake threads as far as they can go before the port is open.
pub(crate) fn prepare(threads: usize, context: Context) -> io::Result<Prepared> {
    let (stop, stopped) = watch::channel(false);
    let threads = (0..threads)
        .map(|index| {
            let (listeners, take_listeners) = mpsc::channel();
            let thread = start_thread(index, take_listeners, context.clone(), stopped.clone())?;
            Ok((listeners, thread))
        })
        .collect::<io::Result<_>>()?;
    Ok(Prepared { threads, stop })
}

fn start_thread(
    index: usize,
    listeners: mpsc::Receiver<Listeners>,
    context: Context,
    stopped: watch::Receiver<bool>,
) -> io::Result<vital::Thread> {
    let (ready, is_ready) = mpsc::channel();
    let thread = vital::start(format!("intake-{index}"), move || {
        let mut ring = tokio_uring::uring_builder();
        ring.setup_cqsize(RING_COMPLETIONS);
        let mut builder = tokio_uring::builder();
        builder.entries(RING_ENTRIES).uring_builder(&ring);
        let runtime = match tokio_uring::Runtime::new(&builder) {
            Ok(runtime) => runtime,
            Err(error) => return ready.send(Err(error)).expect("the starter waits for this"),
        };
        ready.send(Ok(())).expect("the starter waits for this");
        // The sender goes away unused when a later step of the start fails.
        if let Ok(listeners) = listeners.recv() {
            runtime.block_on(accept::run(listeners, context, stopped));
        }
    })?;
    is_ready.recv().expect("the thread reports before it ends")?;
    Ok(thread)
}

impl Prepared {
    /// Opens for business: connections are accepted from now on.
    pub(crate) fn start(self, listeners: Vec<TcpListener>) -> Intake {
        let listeners: Listeners = listeners.into();
        let start = |(take, thread): (mpsc::Sender<Listeners>, _)| {
            take.send(Arc::clone(&listeners)).expect("an intake thread waits for its listeners");
            thread
        };
        let threads = self.threads.into_iter().map(start).collect();
        Intake { threads, listeners, stop: self.stop }
    }
}

impl Intake {
    /// Closes the port at once, answers every connection still in set-up with `0x01`, and waits until all
    /// threads are done: about [`reactor::DRAIN_MAX`] at most.
    pub(crate) async fn stop(self) {
        self.stop.send_replace(true);
        for listener in self.listeners.iter() {
            // Ends LISTEN whoever else has the socket open: clients are refused and do not queue at a server
            // that goes.
            let _ = rustix::net::shutdown(listener, rustix::net::Shutdown::Both);
        }
        drop(self.listeners);
        for thread in self.threads {
            thread.ended().await;
        }
    }
}
