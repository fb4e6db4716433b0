//! The server's life on the control thread, from the first look at its signals to its end.
//!
//! | file | what |
//! | --- | --- |
//! | `mod.rs` | what is there before the first thread; waiting for the signal that ends the server |
//! | `start.rs` | the start: what may fail comes first, and the port opens last |
//! | `stop.rs` | the shutdown: the gate is shut first, so that nobody is promoted |
//! | `size.rs`, `error.rs` | how many threads and connections; why it does not start |

mod error;
mod size;
mod start;
mod stop;

use rustix::process::Signal as RawSignal;
use service::{Manager, Signals};
use threads::runtime;
use tokio::runtime::Runtime;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::task::JoinError;
use tracing::{info, warn};

pub(crate) use error::ServeError;
pub(crate) use size::{capacity, shard_count};

use crate::settings::ServeSettings;
use crate::{capacity as descriptors, ha, vital};

/// How a server ended that had started, or was told to end while it did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Shutdown {
    /// Every client was told.
    InOrder,
    /// A second signal did not let it.
    AtOnce,
}

/// What is there before the first thread: a runtime, and handlers of the signals that the server relies on.
///
/// They are the server's commands: it takes them also where its parent has ignored or blocked them, as nohup
/// does with SIGHUP.
pub(crate) struct Control {
    runtime: Runtime,
    signals: Signals,
    hangup: Signal,
    /// A log that may not grow any more (RLIMIT_FSIZE) is an error for its writer, as a full disk is, and not
    /// the server's end.
    _file_size: Signal,
}

impl Control {
    /// Comes before the first thread, which would keep the parent's mask of signals.
    pub(crate) fn new() -> Result<Self, ServeError> {
        let runtime = runtime::current_thread()
            .map_err(|error| ServeError::System { what: "the control thread's runtime", error })?;
        let handled = || {
            let _context = runtime.enter();
            let handlers = (Signals::new()?, signal(SignalKind::hangup())?, handler(RawSignal::XFSZ)?);
            inherited::unblock(&[RawSignal::TERM, RawSignal::INT, RawSignal::HUP, RawSignal::XFSZ])?;
            inherited::write_in_the_background()?;
            Ok(handlers)
        };
        let (signals, hangup, _file_size) =
            handled().map_err(|error| ServeError::System { what: "signal handling", error })?;
        Ok(Self { runtime, signals, hangup, _file_size })
    }

    /// Runs the server until a signal ends it.
    pub(crate) fn serve(self, settings: &ServeSettings) -> Result<Shutdown, ServeError> {
        let _ends_the_process = vital::this_thread();
        let descriptors = descriptors::raise_descriptor_limit();
        if !reactor::probe()?.min_wait {
            info!(
                "this kernel has no minimum wait for io_uring (Linux 6.12 has): more CPU time at some 10000 heartbeats a second"
            );
        }
        let Self { runtime, signals, hangup, _file_size } = self;
        runtime.block_on(control(settings, descriptors, signals, hangup))
    }
}

fn handler(of: RawSignal) -> std::io::Result<Signal> {
    signal(SignalKind::from_raw(of.as_raw()))
}

async fn control(
    settings: &ServeSettings,
    descriptors: usize,
    mut signals: Signals,
    hangup: Signal,
) -> Result<Shutdown, ServeError> {
    let manager = Manager::start()
        .map_err(|error| ServeError::System { what: "the thread that tells the service manager", error })?;
    let mut running = tokio::select! {
        running = start::start(settings, descriptors, hangup, &manager) => running?,
        signal = signals.next_to_end() => {
            info!(signal, "ending before the start was complete");
            return Ok(Shutdown::InOrder);
        }
    };
    let signal = tokio::select! {
        signal = signals.next_to_end() => signal,
        ended = &mut running.ops => panic!("the ops endpoints ended: {ended:?}"),
        ended = &mut running.admin.task => panic!("the admin API ended: {ended:?}"),
        ended = node_ended(&mut running.node) => panic!("the node ended: {ended:?}"),
        ended = &mut running.reloads => panic!("reloading ended: {ended:?}"),
    };
    info!(signal, "shutting down");
    manager.stopping();
    tokio::select! {
        () = running.stop() => Ok(Shutdown::InOrder),
        signal = signals.second_to_end() => {
            warn!(signal, "second signal: ending at once");
            Ok(Shutdown::AtOnce)
        }
    }
}

/// Never, as long as all is well; without a standby there is nothing that could end.
async fn node_ended(node: &mut Option<ha::Running>) -> Result<(), JoinError> {
    match node {
        None => std::future::pending().await,
        Some(node) => {
            let [driver, ear] = &mut node.tasks;
            tokio::select! {
                ended = driver => ended,
                ended = ear => ended,
            }
        }
    }
}
