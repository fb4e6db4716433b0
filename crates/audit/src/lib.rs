//! The audit log: who became, and who ceased to be, the holder of which lock. JSON lines, in a file or on
//! standard output.
//!
//! The threads that decide hand events to a [`Recorder`] and never wait. One thread formats and writes them,
//! and waits for slow disks alone. What does not fit between the two is counted, and a `lost` record stands
//! in its place. A record is whole or it is not there: what a full disk has torn is taken back. The log is
//! never read here, and it holds up no decision: a server that is killed loses what was recorded in the last
//! 10 ms.
//!
//! ```
//! use std::time::Duration;
//!
//! use audit::{Event, Target, What};
//! use protocol::Token;
//!
//! # let folder = std::env::temp_dir();
//! let path = folder.join(format!("audit-example-{}", std::process::id()));
//! let (log, mut recorder) = audit::start(&Target::File(path.clone()))?;
//! recorder.record(Event {
//!     time_unix_ns: 1_700_000_000_000_000_000,
//!     lock: "nightly/report".into(),
//!     identity: None,
//!     peer: "192.0.2.1:40000".parse::<std::net::SocketAddr>()?.into(),
//!     what: What::Granted { token: Token(7), wait_ns: 0 },
//! });
//! # let runtime = threads::runtime::current_thread()?;
//! assert_eq!(runtime.block_on(log.finish(Duration::from_secs(60))), 0);
//! let line = std::fs::read_to_string(&path)?;
//! assert!(line.contains(r#""lock":"nightly/report""#), "{line}");
//! # std::fs::remove_file(path)?;
//! # Ok::<_, Box<dyn std::error::Error>>(())
//! ```
#![forbid(unsafe_code)]

mod batch;
mod destination;
mod line;
mod peer;
mod recorder;
#[cfg(test)]
mod tests;
mod trouble;
mod writer;

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use locks::Reason;
use protocol::Token;
use tokio::sync::mpsc::error::TrySendError;
use tokio::sync::{mpsc, oneshot};
use tokio::time::timeout;
use tracing::error;

use destination::Sink;
use recorder::Backlog;
use writer::{Order, Writer};

pub use destination::IS_A_SOCKET;
pub use peer::Peer;
pub use recorder::{Recorder, Standing};

/// Events that are recorded and not yet written: 13 MB with names and identities of 50 bytes each, and six
/// seconds of a disk that stands still under 10 000 ownership changes a second.
const EVENTS_MAX: u64 = 65_536;

/// Orders that wait for the writer, each with a file that it opened anew. There are more than one only when
/// its disk or its reader stands still, and files must not pile up then.
const ORDERS_MAX: usize = 4;

/// How long a reopen waits for the writer, which may be in the middle of a write of some 50 KB.
const REOPEN_MAX: Duration = Duration::from_secs(1);

/// Something that happened to a lock.
#[derive(Debug, Clone)]
pub struct Event {
    /// When, since the Unix epoch.
    pub time_unix_ns: u64,
    /// Its name.
    pub lock: Arc<str>,
    /// Of the client's certificate; none without mutual TLS.
    pub identity: Option<Arc<str>>,
    /// Whose event it is.
    pub peer: Peer,
    /// What happened.
    pub what: What,
}

/// What happened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum What {
    /// A session became the holder.
    Granted {
        /// Of the new ownership.
        token: Token,
        /// In the queue.
        wait_ns: u64,
    },
    /// An ownership ended.
    Released {
        /// Of the ownership that ended.
        token: Token,
        /// From the grant on.
        held_ns: u64,
        /// Why it ended.
        reason: Reason,
    },
    /// The ACL refused a claim.
    Denied,
    /// The administrator ends an ownership; its `Released` follows.
    ForceRelease {
        /// Of the ownership that is to end.
        token: Token,
    },
    /// The administrator removed a waiter.
    KickWaiter,
}

/// Something that happened to the node, and to no lock.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeEvent {
    /// When, since the Unix epoch.
    pub time_unix_ns: u64,
    /// What happened.
    pub what: NodeWhat,
    /// The term that it is about.
    pub term: Option<String>,
    /// Who or what wanted it.
    pub by: String,
    /// What came of it.
    pub result: String,
}

/// What happened to the node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NodeWhat {
    /// It wanted to be the active one.
    Promoted,
    /// It is the active one no longer.
    Demoted,
    /// A fencer was asked to make sure that the other node can no longer act.
    Fence,
    /// An operator put it under hold, or took it out.
    Hold,
}

impl NodeWhat {
    fn as_str(self) -> &'static str {
        match self {
            Self::Promoted => "promoted",
            Self::Demoted => "demoted",
            Self::Fence => "fence",
            Self::Hold => "hold",
        }
    }
}

/// Where the log goes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Target {
    /// `-`.
    Stdout,
    /// A path.
    File(PathBuf),
}

impl From<&str> for Target {
    fn from(value: &str) -> Self {
        if value == "-" { Self::Stdout } else { Self::File(value.into()) }
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Stdout => f.write_str("-"),
            Self::File(path) => path.display().fmt(f),
        }
    }
}

/// A target that cannot be opened. Its text starts with the target.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("{target}: {problem}")]
pub struct OpenError {
    target: Target,
    problem: String,
}

/// The running log, as the control thread has it. To be finished: when it is dropped the writer stops where
/// it is.
#[derive(Debug)]
pub struct Log {
    target: Target,
    orders: mpsc::Sender<Order<Sink>>,
    backlog: Arc<Backlog>,
}

/// Why the log does not start. Its text starts with the target.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The target is at fault.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// The system has no more threads or descriptors.
    #[error("{target}: cannot start the thread that writes it: {error}")]
    Thread {
        /// What would have been written.
        target: Target,
        /// What the system says.
        error: std::io::Error,
    },
}

/// Opens the target and starts the writer's thread.
///
/// # Errors
///
/// When the target cannot be opened, or the thread not be started.
pub fn start(target: &Target) -> Result<(Log, Recorder), StartError> {
    let destination = destination::open(target)?;
    let (recorder, queue, backlog) = recorder::new(EVENTS_MAX);
    let (orders, take_orders) = mpsc::channel(ORDERS_MAX);
    let writer = Writer::new(target.to_string(), destination, queue, take_orders, Arc::clone(&backlog));
    let no_thread = |error| StartError::Thread { target: target.clone(), error };
    let (ready, is_ready) = std::sync::mpsc::channel();
    // Its panic does not end the process: locks go on, and each event from then on is counted as dropped.
    let body = move || {
        let built = tokio::runtime::Builder::new_current_thread().enable_time().build();
        match built {
            Ok(runtime) => {
                ready.send(Ok(())).expect("the starter waits for this");
                runtime.block_on(writer.run());
            }
            Err(error) => ready.send(Err(error)).expect("the starter waits for this"),
        }
    };
    threads::start("audit", body).map_err(no_thread)?;
    is_ready.recv().expect("the thread reports before it ends").map_err(no_thread)?;
    Ok((Log { target: target.clone(), orders, backlog }, recorder))
}

impl Log {
    /// Opens the file anew, for one that was renamed. From then on nothing is written to the old one, which
    /// may be compressed. Standard output stays. Blocks.
    ///
    /// # Errors
    ///
    /// When the file cannot be opened, or the writer stands still. The old one stays in use.
    pub fn reopen(&self) -> Result<(), OpenError> {
        if self.target == Target::Stdout {
            return Ok(());
        }
        let (taken, is_taken) = std::sync::mpsc::sync_channel(1);
        let order = Order::Reopen(destination::open(&self.target)?, taken);
        let problem = |problem: &str| OpenError { target: self.target.clone(), problem: problem.into() };
        let stands_still = || problem("its disk or its reader stands still");
        match self.orders.try_send(order) {
            Ok(()) => is_taken.recv_timeout(REOPEN_MAX).map_err(|_| stands_still()),
            Err(TrySendError::Full(_)) => Err(stands_still()),
            Err(TrySendError::Closed(_)) => Err(problem("the thread that writes it has ended")),
        }
    }

    /// How it stands, from now on.
    pub fn standing(&self) -> Standing {
        Standing(Arc::clone(&self.backlog))
    }

    /// Takes no more events and waits until those that were recorded are written, at most for `time_max`. How
    /// many are then given up, which counts them as dropped.
    pub async fn finish(&self, time_max: Duration) -> u64 {
        let (done, is_done) = oneshot::channel();
        let finished = async {
            // A writer that is gone does not say that it is done.
            let _ = self.orders.send(Order::Finish(done)).await;
            is_done.await.is_ok()
        };
        if timeout(time_max, finished).await.unwrap_or(false) {
            return 0;
        }
        let unwritten = self.backlog.give_up();
        error!(path = %self.target, lost = unwritten, "the audit log was not written to its end");
        unwritten
    }
}
