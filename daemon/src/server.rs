//! The server's life on the control thread: start in the order that opens the port last, signals, and shutdown in the
//! order that promotes nobody.

use cli::exit;
use std::cell::RefCell;
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::Duration;

use rustix::process::Signal as RawSignal;
use tokio::runtime::Runtime;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::Semaphore;
use tokio::task::JoinHandle;
use tracing::field::display;
use tracing::{info, warn};

use crate::admin::{self, Admin};
use crate::capacity::{self, Capacity, TooFewDescriptors};
use crate::gate::Gate;
use crate::intake::{self, Intake};
use crate::listener;
use crate::metrics::{IntakeCounters, Published, Sources};
use crate::ops::{self, OpsState};
use crate::reload::{Files, LoadError};
use crate::settings::ServeSettings;
use crate::shard::{self, StartError};
use crate::systemd::Manager;
use crate::vital;
use threads::Workers;
use threads::runtime;

/// How long the ops endpoints outlast the last session, so that a load balancer sees their 503.
const OPS_OUTLAST: Duration = Duration::from_secs(1);

/// How long shutdown waits for the audit log's disk.
const AUDIT_FLUSH_MAX: Duration = Duration::from_secs(1);

/// Descriptors of a shard: its ring and its waker.
const DESCRIPTORS_A_SHARD: usize = 2;

/// Descriptors of an intake thread: its ring, its runtime's epoll, eventfd and signal pipe, and a duplicate of each of usually one
/// or two listeners.
const DESCRIPTORS_AN_INTAKE: usize = 6;

/// Why the server did not start.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ServeError {
    #[error(transparent)]
    Ring(#[from] reactor::Unavailable),
    #[error(transparent)]
    Files(#[from] LoadError),
    #[error("-audit-log {0}")]
    Audit(#[from] audit::StartError),
    #[error("{0}")]
    Capacity(TooFewDescriptors),
    #[error(transparent)]
    Listen(#[from] listener::BindError),
    #[error(transparent)]
    Admin(#[from] admin::StartError),
    #[error("cannot start {what}: {error}")]
    System { what: &'static str, error: std::io::Error },
}

impl ServeError {
    /// The exit status that tells a supervisor whose matter this is.
    pub(crate) fn exit_status(&self) -> u8 {
        match self {
            // Neither missing nor forbidden: descriptors, for one.
            Self::Ring(reactor::Unavailable::Other { .. }) => exit::OS_ERROR,
            Self::Ring(_) => exit::UNAVAILABLE,
            Self::Files(_) | Self::Audit(audit::StartError::Open(_)) => exit::CONFIG,
            Self::Audit(audit::StartError::Thread { .. })
            | Self::Capacity(_)
            | Self::Listen(_)
            | Self::Admin(_)
            | Self::System { .. } => exit::OS_ERROR,
        }
    }
}

impl From<StartError> for ServeError {
    fn from(error: StartError) -> Self {
        match error {
            StartError::Ring(unavailable) => Self::Ring(unavailable),
            StartError::Thread(error) => Self::System { what: "a shard's thread", error },
        }
    }
}

/// How a server ended that had started, or was told to end while it did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ended {
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
            signals::unblock(&[RawSignal::TERM, RawSignal::INT, RawSignal::HUP, RawSignal::XFSZ])?;
            signals::write_in_the_background()?;
            Ok(handlers)
        };
        let (signals, hangup, _file_size) =
            handled().map_err(|error| ServeError::System { what: "signal handling", error })?;
        Ok(Self { runtime, signals, hangup, _file_size })
    }

    /// Runs the server until a signal ends it.
    pub(crate) fn serve(self, settings: &ServeSettings) -> Result<Ended, ServeError> {
        let _ends_the_process = vital::this_thread();
        let descriptors = capacity::raise_descriptor_limit();
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
) -> Result<Ended, ServeError> {
    let manager = Manager::start()
        .map_err(|error| ServeError::System { what: "the thread that tells the service manager", error })?;
    let mut running = tokio::select! {
        running = Running::start(settings, descriptors, hangup, &manager) => running?,
        signal = signals.next_to_end() => {
            info!(signal, "ending before the start was complete");
            return Ok(Ended::InOrder);
        }
    };
    let signal = tokio::select! {
        signal = signals.next_to_end() => signal,
        ended = &mut running.ops => panic!("the ops endpoints ended: {ended:?}"),
        ended = &mut running.admin.task => panic!("the admin API ended: {ended:?}"),
        ended = &mut running.reloads => panic!("reloading ended: {ended:?}"),
    };
    info!(signal, "shutting down");
    manager.stopping();
    tokio::select! {
        () = running.stop() => Ok(Ended::InOrder),
        signal = signals.second_to_end() => {
            warn!(signal, "second signal: ending at once");
            Ok(Ended::AtOnce)
        }
    }
}

/// A server whose port is open.
struct Running {
    gate: Arc<Gate>,
    shards: shard::Threads,
    intake: Intake,
    ops: JoinHandle<()>,
    admin: Admin,
    has_ops: bool,
    state: OpsState,
    reloads: JoinHandle<()>,
    audit: Option<Arc<audit::Log>>,
}

impl Running {
    async fn start(
        settings: &ServeSettings,
        descriptors: usize,
        hangup: Signal,
        manager: &Manager,
    ) -> Result<Self, ServeError> {
        let mut files = Files::load(settings)?;
        let (audit, recorder) =
            settings.audit_log.as_deref().map(|to| audit::start(&to.into())).transpose()?.unzip();
        let audit = audit.map(Arc::new);
        files.set_audit(audit.clone());
        let gate = Arc::new(Gate::standalone());
        let shard_count = shard_count(settings.shards);
        let intake_count = intake_count(shard_count);
        let capacity = capacity(descriptors, shard_count).map_err(ServeError::Capacity)?;
        let published: Vec<Arc<Published>> = (0..shard_count).map(|_| Arc::default()).collect();
        let shard_settings = shard::Settings {
            io_timeout: settings.io_timeout,
            capacity: Arc::clone(&capacity),
            gate: Arc::clone(&gate),
            tokens: Arc::default(),
        };
        let (shards, questions, shard_threads) =
            shard::start(&shard_settings, recorder.as_ref(), &published)?;

        let counters = Arc::new(IntakeCounters::default());
        let sources = Sources {
            shards: published,
            intake: Arc::clone(&counters),
            reloads: files.status(),
            audit_dropped: audit.as_deref().map(audit::Log::dropped),
        };
        let state = OpsState::new(sources)
            .map_err(|error| ServeError::System { what: "the thread that writes metrics out", error })?;
        let ops_listeners = match &settings.ops_listen {
            Some(address) => listener::bind_all(address, "-ops-listen").await?,
            None => Vec::new(),
        };
        let ops_addresses =
            settings.ops_listen.as_ref().map(|_| display(listener::addresses(&ops_listeners)));
        let ops = ops::spawn(ops_listeners, state.clone());
        let admin = admin::start(settings, questions).await?;
        let reloader = Workers::start("reload", 1, 1)
            .map_err(|error| ServeError::System { what: "the thread that reloads files", error })?;

        let places = capacity.places();
        let draining = Arc::new(Semaphore::new(intake::DRAINING_MAX));
        let context = intake::Context {
            io_timeout: settings.io_timeout,
            admission: files.admission(),
            audit: RefCell::new(recorder),
            pending_max: intake::PENDING_MAX / intake_count,
            capacity,
            counters,
            shards,
            draining,
            lines: intake::Lines::default(),
        };
        let intake = intake::prepare(intake_count, context)
            .map_err(|error| ServeError::System { what: "an intake thread's ring", error })?;
        let listeners = listener::bind_all(&settings.listen, "-listen").await?;
        let listening = listener::addresses(&listeners);
        let intake = intake.start(listeners);
        state.set_serving();
        info!(
            address = %listening,
            ops = ops_addresses,
            admin = admin.address.as_ref().map(display),
            shards = shard_count,
            connections_max = places,
            "listening"
        );
        manager.ready();
        let reloads = tokio::spawn(reload_at(hangup, files, reloader, manager.clone()));
        let has_ops = settings.ops_listen.is_some();
        Ok(Self { gate, shards: shard_threads, intake, ops, admin, has_ops, state, reloads, audit })
    }

    /// Closes the gate first, so that no session that is then ended promotes a waiter.
    async fn stop(self) {
        self.state.set_shutting_down();
        self.reloads.abort();
        self.gate.shut_down();
        self.shards.wake();
        self.intake.stop().await;
        self.shards.ended().await;
        info!("every session is ended");
        let flush = async {
            if let Some(audit) = self.audit {
                audit.finish(AUDIT_FLUSH_MAX).await;
            }
        };
        let outlast = tokio::time::sleep(if self.has_ops { OPS_OUTLAST } else { Duration::ZERO });
        tokio::join!(flush, outlast);
    }
}

/// Reloads the files at each SIGHUP. Signals during a reload make one more.
async fn reload_at(mut hangup: Signal, files: Files, reloader: Workers, manager: Manager) {
    let mut files = files;
    while hangup.recv().await.is_some() {
        manager.reloading();
        // Disks may be slow, and this thread answers probes.
        let reloading = reloader.run(move || {
            files.reload();
            files
        });
        files = reloading.await.expect("a reload does not panic");
        manager.ready();
    }
}

/// How many shards there are: one for each usable CPU, unless their number is set.
pub(crate) fn shard_count(setting: Option<NonZeroUsize>) -> usize {
    setting.map_or_else(|| shard::usable_cpus().len().max(1), NonZeroUsize::get)
}

fn intake_count(shards: usize) -> usize {
    (shards / 2).max(1)
}

/// The connections that fit besides what is open and what these shards and their intake will open.
pub(crate) fn capacity(descriptors: usize, shards: usize) -> Result<Arc<Capacity>, TooFewDescriptors> {
    let to_open = shards * DESCRIPTORS_A_SHARD + intake_count(shards) * DESCRIPTORS_AN_INTAKE;
    Capacity::new(descriptors, open_descriptors() + to_open)
}

fn open_descriptors() -> usize {
    std::fs::read_dir("/proc/self/fd").map_or(0, Iterator::count)
}

/// How long after the first signal another one counts as the second. Whoever signals a process and then its
/// group (timeout(1), a container's init) takes microseconds; who loses patience takes longer, and asks
/// again.
const SECOND_SIGNAL_AFTER: Duration = Duration::from_millis(250);

/// The signals that end a server.
struct Signals {
    terminate: Signal,
    interrupt: Signal,
}

impl Signals {
    fn new() -> std::io::Result<Self> {
        Ok(Self { terminate: signal(SignalKind::terminate())?, interrupt: signal(SignalKind::interrupt())? })
    }

    /// The next signal that asks the server to end.
    async fn next_to_end(&mut self) -> &'static str {
        tokio::select! {
            _ = self.terminate.recv() => "SIGTERM",
            _ = self.interrupt.recv() => "SIGINT",
        }
    }

    /// The next one after the first and all that came along with it.
    async fn second_to_end(&mut self) -> &'static str {
        tokio::time::sleep(SECOND_SIGNAL_AFTER).await;
        // A slow machine may show only now what came together.
        loop {
            tokio::select! {
                biased;
                _ = self.next_to_end() => {}
                () = std::future::ready(()) => break,
            }
        }
        self.next_to_end().await
    }
}
