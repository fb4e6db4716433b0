//! The agent's life: the order of its start, and of its end.

use std::fmt::Display;
use std::fs::{self, Permissions};
use std::io;
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use cli::{ListenAddress, exit};
use durable::Lock;
use ha::fence::Levels;
use ha::identity::BootId;
use ha::term::NodeId;
use peer::{Allowed, Credentials};
use rustix::process::Signal as RawSignal;
use serde_json::value::RawValue;
use service::{Manager, Signals};
use threads::{Workers, runtime};
use tls::Mutual;
use tokio::net::UnixListener;
use tokio::runtime::Runtime;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::task::JoinSet;
use tokio::time::sleep;
use tracing::{error, info, warn};

use crate::desk::Desk;
use crate::health::{HealthFile, unlink};
use crate::servers::Servers;
use crate::state::State;

/// How long a predecessor may take to end.
const PREDECESSOR_TIME_MAX: Duration = Duration::from_secs(1);

/// How long the agent goes on answering after it was told to end: so long takes a peer to notice that the
/// address has moved, to promote itself, and to ask.
const FAREWELL: Duration = Duration::from_secs(5);

/// How long an answer that ends that takes to reach the peer.
const LAST_ANSWER: Duration = Duration::from_millis(500);

/// Jobs that may wait for a disk: as many as the peer has connections.
const JOBS_WAITING_MAX: usize = 16;

/// What an agent is told.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Config {
    /// Where the server connects. A lock is beside it.
    pub socket: PathBuf,
    /// What keepalived watches.
    pub health_file: PathBuf,
    /// The state directory of the server.
    pub state: PathBuf,
    /// This node.
    pub node: NodeId,
    /// The other node.
    pub peer: NodeId,
    /// This node's fence levels, until a server says them.
    pub fencers: Levels,
    /// The TCP ports of a server that may never have said hello.
    pub ports: Vec<u16>,
    /// Where the peer asks.
    pub listen: ListenAddress,
    /// The certificate of this node.
    pub cert: PathBuf,
    /// Its key.
    pub key: PathBuf,
    /// The authorities of both nodes.
    pub authorities: PathBuf,
    /// The identities that the peer may have.
    pub allow: Vec<String>,
}

/// How an agent ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ended {
    /// As it was told.
    InOrder,
    /// A second signal did not let it.
    AtOnce,
}

/// Why there is no agent.
#[derive(Debug, thiserror::Error)]
pub enum AgentError {
    /// The system does not let it.
    #[error("{what}: {error}")]
    System {
        /// What was tried.
        what: String,
        /// The system's reason.
        error: io::Error,
    },
    /// Another one is there, or the folder of the socket cannot be written.
    #[error("the agent's lock: {0}")]
    Lock(#[from] durable::Fault),
    /// The peer's port cannot be opened.
    #[error("{0}")]
    Listen(String),
    /// Certificate, key or authorities cannot be used.
    #[error("-ha-cert, -ha-key, -ha-ca: {0}")]
    Tls(#[from] tls::FileError),
}

impl AgentError {
    /// What the process ends with.
    pub fn exit_status(&self) -> u8 {
        match self {
            Self::System { .. } | Self::Lock(_) | Self::Listen(_) => exit::OS_ERROR,
            Self::Tls(_) => exit::CONFIG,
        }
    }
}

fn system(what: impl Into<String>) -> impl FnOnce(io::Error) -> AgentError {
    move |error| AgentError::System { what: what.into(), error }
}

/// What is there before the first thread: a runtime, and handlers of the signals that the agent relies on,
/// also where its parent has ignored or blocked them.
#[derive(Debug)]
pub struct Agent {
    runtime: Runtime,
    signals: Signals,
    hangup: Signal,
}

impl Agent {
    /// Comes before the first thread, which would keep the parent's mask of signals.
    ///
    /// # Errors
    ///
    /// The system has no descriptors left.
    pub fn new() -> Result<Self, AgentError> {
        let runtime = runtime::current_thread().map_err(system("the runtime"))?;
        let handled = || {
            let _context = runtime.enter();
            let handlers = (Signals::new()?, signal(SignalKind::hangup())?);
            inherited::unblock(&[RawSignal::TERM, RawSignal::INT, RawSignal::HUP])?;
            inherited::write_in_the_background()?;
            Ok(handlers)
        };
        let (signals, hangup) = handled().map_err(system("signal handling"))?;
        Ok(Self { runtime, signals, hangup })
    }

    /// Runs until a signal ends it. `bind` opens the peer's port, nonblocking.
    ///
    /// # Errors
    ///
    /// It cannot start.
    pub fn run<E: Display>(
        self,
        config: &Config,
        bind: impl AsyncFnOnce(&ListenAddress) -> Result<Vec<TcpListener>, E>,
    ) -> Result<Ended, AgentError> {
        let Self { runtime, signals, hangup } = self;
        let ended = runtime.block_on(control(config, bind, signals, hangup));
        // A job may wait for a disk that never answers.
        runtime.shutdown_background();
        ended
    }
}

async fn control<E: Display>(
    config: &Config,
    bind: impl AsyncFnOnce(&ListenAddress) -> Result<Vec<TcpListener>, E>,
    mut signals: Signals,
    hangup: Signal,
) -> Result<Ended, AgentError> {
    let manager = Manager::start().map_err(system("the thread that tells the service manager"))?;
    let mut lock = config.socket.clone().into_os_string();
    lock.push(".lock");
    let _lock = Lock::take(Path::new(&lock), PREDECESSOR_TIME_MAX)?;
    // What a killed agent has left says that a node is healthy which nobody has looked at.
    // The server is told this path, and may have another working directory.
    let health_file = std::path::absolute(&config.health_file);
    let health = health_file
        .and_then(HealthFile::new)
        .map_err(system(format!("-health-file {}", config.health_file.display())))?;
    let credentials = Credentials::new(load(config)?);
    let boot = boot_id().map_err(system("the boot id"))?;
    let disk = Workers::start("disk", 1, JOBS_WAITING_MAX).map_err(system("the disk's thread"))?;
    let listeners = bind(&config.listen).await.map_err(|error| AgentError::Listen(error.to_string()))?;
    let socket = listen_for_servers(&config.socket)
        .map_err(system(format!("-ha-agent {}", config.socket.display())))?;

    let state = State::new(&config.state, config.node.clone(), config.peer.clone(), boot);
    let servers =
        Servers::new(health, config.node.clone(), boot, config.fencers.clone(), config.ports.clone());
    let desk = Desk::new(servers.clone(), state, disk);
    let addresses: Vec<_> = listeners.iter().filter_map(|listener| listener.local_addr().ok()).collect();
    let mut tasks = JoinSet::new();
    tasks.spawn(servers.clone().serve(socket));
    let (answering, allowed) = (desk.clone(), Allowed::from_iter(config.allow.iter().cloned()));
    let answer = move |request: Box<RawValue>| answering.clone().answer(request);
    tasks.spawn(peer::serve(listeners, credentials.clone(), allowed, answer));
    tasks.spawn(reloads(hangup, config.clone(), credentials, manager.clone()));
    info!(?addresses, socket = %config.socket.display(), health_file = %config.health_file.display(), "watching");
    manager.ready();

    let signal = tokio::select! {
        signal = signals.next_to_end() => signal,
        ended = tasks.join_next() => panic!("a part of the agent ended: {ended:?}"),
    };
    servers.end();
    manager.stopping();
    info!(signal, "ending: the health file is gone; the peer is answered for up to {FAREWELL:?} more");
    let handed_over = async {
        desk.has_closed().await;
        sleep(LAST_ANSWER).await;
    };
    tokio::select! {
        () = handed_over => Ok(Ended::InOrder),
        () = sleep(FAREWELL) => Ok(Ended::InOrder),
        signal = signals.second_to_end() => {
            warn!(signal, "second signal: ending at once");
            Ok(Ended::AtOnce)
        }
    }
}

fn load(config: &Config) -> Result<Mutual, tls::FileError> {
    Mutual::load(&config.cert, &config.key, &config.authorities)
}

/// Reads the certificates again at each SIGHUP. What does not load leaves the old ones in use.
async fn reloads(mut hangup: Signal, config: Config, credentials: Credentials, manager: Manager) {
    while hangup.recv().await.is_some() {
        manager.reloading();
        match load(&config) {
            Ok(mutual) => {
                credentials.replace(mutual);
                info!("certificates are read again");
            }
            Err(error) => error!(%error, "certificates are as before"),
        }
        manager.ready();
    }
}

fn boot_id() -> io::Result<BootId> {
    let text = fs::read_to_string("/proc/sys/kernel/random/boot_id")?;
    text.parse().map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))
}

/// For the server's user alone. What lies there is a dead agent's: the lock says so.
fn listen_for_servers(path: &Path) -> io::Result<UnixListener> {
    unlink(path)?;
    let listener = UnixListener::bind(path)?;
    fs::set_permissions(path, Permissions::from_mode(0o600))?;
    Ok(listener)
}
