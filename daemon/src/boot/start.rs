//! The start, step by step. Each step says what must be there before it; the lock port opens in the last one.

use std::cell::RefCell;
use std::io;
use std::sync::{Arc, PoisonError};

use service::Manager;
use threads::Workers;
use tokio::signal::unix::Signal;
use tokio::sync::Semaphore;
use tokio::task::JoinHandle;
use tracing::{info, warn};

use super::error::ServeError;
use super::size::{capacity, intake_count, shard_count};
use crate::addresses;
use crate::admin::{self, Admin};
use crate::capacity::Capacity;
use crate::checks::Check;
use crate::clock;
use crate::gate::Gate;
use crate::ha::{self, Around, HaMetrics, Prepared, SharedLink};
use crate::intake::{self, Intake};
use crate::listener;
use crate::metrics::{IntakeCounters, Published};
use crate::ops::{self, Ceiling, OpsState, Reports, Sources, Tell};
use crate::reload::Files;
use crate::settings::{Ear, ServeSettings};
use crate::shard::{self, Questions, Shards};
use crate::token_file::TokenFile;
use agent::Standing;

/// A server whose port is open.
pub(super) struct Running {
    pub(super) gate: Arc<Gate>,
    /// One of two, where there is a standby.
    pub(super) node: Option<ha::Running>,
    pub(super) shards: shard::Threads,
    pub(super) intake: Intake,
    pub(super) ops: JoinHandle<()>,
    pub(super) admin: Admin,
    pub(super) has_ops: bool,
    pub(super) state: OpsState,
    pub(super) reloads: JoinHandle<()>,
    pub(super) audit: Option<Arc<audit::Log>>,
}

/// Starts the server. When this returns, clients are served.
pub(super) async fn start(
    settings: &ServeSettings,
    descriptors: usize,
    hangup: Signal,
    manager: &Manager,
) -> Result<Running, ServeError> {
    let (mut files, trail) = read_files(settings)?;
    // The state of a node comes before anything that could act for it.
    let prepared = settings.pair.as_ref().map(Prepared::new).transpose()?;
    let token_file = settings.token_file.as_deref().map(TokenFile::open).transpose()?;
    let tokens = match (&prepared, &token_file) {
        (Some(node), _) => node.tokens(),
        (None, Some(file)) => file.tokens(),
        (None, None) => Arc::default(),
    };
    let shards = start_shards(settings, descriptors, &trail, Arc::clone(&tokens))?;
    // Before the first connection could be on one of them.
    let wakers = shards.threads.wakers();
    addresses::start(Arc::clone(&shards.addresses), move || wakers.wake())
        .map_err(no_thread("the thread that watches addresses"))?;
    if let Some(token_file) = token_file {
        let wakers = shards.threads.wakers();
        token_file
            .keep_ahead(move || wakers.wake())
            .map_err(no_thread("the thread that keeps tokens ready"))?;
    }
    // From here on somebody may look: at a server that is not ready.
    let counters = Arc::<IntakeCounters>::default();
    let metrics = settings.pair.as_ref().map(|_| Arc::<HaMetrics>::default());
    let link = SharedLink::default();
    let sources = Sources {
        shards: shards.published.clone(),
        intake: Arc::clone(&counters),
        reloads: files.status(),
        audit: trail.log.as_deref().map(audit::Log::standing),
        gate: Arc::clone(&shards.gate),
        capacity: Arc::clone(&shards.capacity),
        reports: Reports {
            ceiling: tokens.ceiling().is_some().then(|| ceiling_of(&tokens, &shards.gate)),
            agent: settings.pair.as_ref().filter(|pair| matches!(pair.ear, Ear::Agent(_))).map(|_| {
                let link = Arc::clone(&link);
                let connected = move || {
                    let link = link.lock().unwrap_or_else(PoisonError::into_inner);
                    link.as_ref().is_some_and(|link| matches!(link.standing(), Standing::Connected { .. }))
                };
                Arc::new(connected) as Tell<bool>
            }),
            fence: metrics.clone().map(|node| -> Tell<bool> { Arc::new(move || node.is_fence_pending()) }),
            gives_address: metrics
                .clone()
                .map(|node| -> Tell<bool> { Arc::new(move || node.gives_address()) }),
            ..Reports::default()
        },
        addresses: Arc::clone(&shards.addresses),
        tokens: Some(Arc::clone(&tokens)),
        node: metrics.clone(),
    };
    let ops = start_ops(settings, sources).await?;
    let mut node = None;
    if let (Some(pair), Some(prepared)) = (&settings.pair, prepared) {
        let state = ops.state.clone();
        let around = Around {
            gate: Arc::clone(&shards.gate),
            tokens,
            wakers: shards.threads.wakers(),
            published: shards.published.clone(),
            addresses: Arc::clone(&shards.addresses),
            audit: trail.recorder.clone(),
            metrics: metrics.unwrap_or_default(),
            link,
            is_ready: Box::new(move || state.is_fit()),
        };
        let running = ha::start(settings, pair, prepared, around).await?;
        files.set_node(pair.clone(), running.node.clone());
        node = Some(running);
    }
    let admin = admin::start(settings, shards.questions, node.as_ref().map(|node| node.node.clone())).await?;
    let reloader = Workers::start("reload", 1, 1).map_err(no_thread("the thread that reloads files"))?;

    let threads = intake_count(shards.count);
    let context = intake::Context {
        io_timeout: settings.io_timeout,
        admission: files.admission(),
        audit: RefCell::new(trail.recorder),
        pending_max: intake::PENDING_MAX / threads,
        capacity: Arc::clone(&shards.capacity),
        addresses: Arc::clone(&shards.addresses),
        counters,
        shards: shards.doors,
        draining: Arc::new(Semaphore::new(intake::DRAINING_MAX)),
        lines: intake::Lines::default(),
    };
    let intake = intake::prepare(threads, context).map_err(no_thread("an intake thread's ring"))?;

    // Nothing that can fail comes after this.
    let listeners = listener::bind_all(&settings.listen, "-listen").await?;
    let listening = listener::addresses(&listeners);
    let intake = intake.start(listeners);
    ops.state.set_serving();
    info!(
        address = %listening,
        ops = ops.addresses.as_ref().map(display),
        admin = admin.address.as_ref().map(display),
        peer = node.as_ref().and_then(|node| node.address.as_ref()).map(display),
        shards = shards.count,
        connections_max = shards.capacity.places(),
        "listening"
    );
    look_at_the_clock(settings);
    manager.ready();
    Ok(Running {
        gate: shards.gate,
        node,
        shards: shards.threads,
        intake,
        ops: ops.task,
        admin,
        has_ops: settings.ops_listen.is_some(),
        state: ops.state,
        reloads: tokio::spawn(reload_at(hangup, files, reloader, manager.clone())),
        audit: trail.log,
    })
}

/// The audit log, where there is one.
struct Trail {
    log: Option<Arc<audit::Log>>,
    recorder: Option<audit::Recorder>,
}

/// Files come first: a mistake in one of them is the likeliest reason not to start.
fn read_files(settings: &ServeSettings) -> Result<(Files, Trail), ServeError> {
    let mut files = Files::load(settings)?;
    let (log, recorder) =
        settings.audit_log.as_deref().map(|to| audit::start(&to.into())).transpose()?.unzip();
    let log = log.map(Arc::new);
    files.set_audit(log.clone());
    Ok((files, Trail { log, recorder }))
}

/// The shards, and what others need of them.
struct RunningShards {
    count: usize,
    gate: Arc<Gate>,
    addresses: addresses::Shared,
    capacity: Arc<Capacity>,
    published: Vec<Arc<Published>>,
    doors: Shards,
    questions: Questions,
    threads: shard::Threads,
}

/// Shards come before everybody who asks them or hands connections to them.
fn start_shards(
    settings: &ServeSettings,
    descriptors: usize,
    trail: &Trail,
    tokens: Arc<locks::TokenSource>,
) -> Result<RunningShards, ServeError> {
    let count = shard_count(settings.shards);
    let gate = Arc::new(match settings.pair {
        Some(_) => Gate::standby(count),
        None => Gate::standalone(count),
    });
    let addresses = addresses::Shared::default();
    let capacity = capacity(descriptors, count).map_err(ServeError::Capacity)?;
    let published: Vec<Arc<Published>> = (0..count).map(|_| Arc::default()).collect();
    let shared = shard::Settings {
        io_timeout: settings.io_timeout,
        capacity: Arc::clone(&capacity),
        gate: Arc::clone(&gate),
        tokens,
        addresses: Arc::clone(&addresses),
    };
    let (doors, questions, threads) = shard::start(&shared, trail.recorder.as_ref(), &published)?;
    Ok(RunningShards { count, gate, addresses, capacity, published, doors, questions, threads })
}

/// The ops endpoints at work.
struct Ops {
    task: JoinHandle<()>,
    state: OpsState,
    /// Where they listen, for the log; none when off.
    addresses: Option<String>,
}

async fn start_ops(settings: &ServeSettings, sources: Sources) -> Result<Ops, ServeError> {
    let state =
        OpsState::new(sources, &settings.ready).map_err(no_thread("the thread that writes metrics out"))?;
    let listeners = match &settings.ops_listen {
        Some(address) => listener::bind_all(address, "-ops-listen").await?,
        None => Vec::new(),
    };
    let addresses = settings.ops_listen.as_ref().map(|_| listener::addresses(&listeners));
    Ok(Ops { task: ops::spawn(listeners, state.clone()), state, addresses })
}

/// Tokens follow the wall clock, which is nobody's matter while all is well.
fn look_at_the_clock(settings: &ServeSettings) {
    match clock::is_synchronised() {
        Some(true) => {}
        Some(false) => warn!(
            "the wall clock is not synchronised: after a restart, or on another server, tokens may be smaller than before; start chrony or systemd-timesyncd"
        ),
        None if settings.ready.limits.of(Check::Clock).is_some() => warn!(
            "-ready-fail-on clock: it cannot be told here whether the clock is synchronised (a filter of system calls forbids adjtimex)"
        ),
        None => {}
    }
}

fn no_thread(what: &'static str) -> impl Fn(io::Error) -> ServeError {
    move |error| ServeError::System { what, error }
}

/// Reloads the files at each SIGHUP. Signals during a reload make one more.
async fn reload_at(mut hangup: Signal, mut files: Files, reloader: Workers, manager: Manager) {
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

/// Behind a closed gate no claim waits for the ceiling: a standby's stands where its last opening left it.
fn ceiling_of(tokens: &Arc<locks::TokenSource>, gate: &Arc<Gate>) -> Tell<Ceiling> {
    let (tokens, gate) = (Arc::clone(tokens), Arc::clone(gate));
    Arc::new(move || Ceiling {
        token: tokens.ceiling().map_or(0, |token| token.0),
        reached: matches!(gate.look(), locks::Gate::Open(_)) && tokens.is_exhausted(),
    })
}
