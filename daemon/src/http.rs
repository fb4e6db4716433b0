//! The HTTP servers below the ops endpoints and the admin API: one request a connection, and nothing that a client can
//! hold on to.

use std::collections::VecDeque;
use std::fmt;
use std::io;
use std::net::TcpListener as StdTcpListener;
use std::os::unix::net::UnixListener as StdUnixListener;
use std::time::Duration;

use axum::{Extension, Router};
use hyper::server::conn::http1;
use hyper_util::rt::TokioIo;
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, UnixListener};
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::{sleep, timeout};
use tracing::{Level, warn};

use crate::logging::seldom::Seldom;
use crate::peer::Peer;

/// The pause after a failed accept, so that a lack of descriptors is not met by spinning.
const ACCEPT_RETRY: Duration = Duration::from_millis(100);

/// How often a failing accept is logged.
const WARN_INTERVAL: Duration = Duration::from_secs(10);

/// What is served, and how much of it at once.
#[derive(Clone)]
pub(crate) struct Service {
    /// For the log.
    pub(crate) name: &'static str,
    /// Its handlers find the [`Remote`] among the request's extensions.
    pub(crate) router: Router,
    /// Connections at once of each listener; for one more the oldest is closed, so that idle ones keep nobody out. The
    /// listeners of all services stay within the descriptors that are kept free of sessions.
    pub(crate) connections_max: usize,
    /// How long a connection may last, from accept to the last byte of the answer.
    pub(crate) connection_time_max: Duration,
}

/// Where clients come in. Nonblocking.
#[derive(Debug)]
pub(crate) enum Listener {
    Tcp(StdTcpListener),
    Unix(StdUnixListener),
}

/// Who is at the other end of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Remote {
    Tcp(Peer),
    /// A process of this user, on this machine.
    Unix {
        uid: u32,
    },
}

impl fmt::Display for Remote {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(peer) => peer.fmt(f),
            Self::Unix { uid } => write!(f, "uid {uid}"),
        }
    }
}

/// Serves until dropped, and everything that it has opened ends with it.
pub(crate) async fn run(listeners: Vec<Listener>, service: Service) {
    let mut loops = JoinSet::new();
    for listener in listeners {
        loops.spawn(accept_loop(listener, service.clone()));
    }
    while let Some(ended) = loops.join_next().await {
        ended.expect("an accept loop does not panic");
    }
    std::future::pending().await
}

async fn accept_loop(listener: Listener, service: Service) {
    let door = match Door::new(listener) {
        Ok(door) => door,
        Err(error) => return warn!(%error, "cannot serve the {}", service.name),
    };
    let warnings = Seldom::new("cannot accept", Level::WARN, WARN_INTERVAL);
    let mut connections = JoinSet::new();
    let mut in_order: VecDeque<AbortHandle> = VecDeque::new();
    loop {
        let (stream, remote) = match door.accept().await {
            Ok(accepted) => accepted,
            Err(error) => {
                if warnings.may_log() {
                    warn!(%error, "cannot accept for the {}", service.name);
                }
                sleep(ACCEPT_RETRY).await;
                continue;
            }
        };
        while connections.try_join_next().is_some() {}
        in_order.retain(|connection| !connection.is_finished());
        if in_order.len() >= service.connections_max {
            in_order.pop_front().expect("not empty").abort();
            // Only when it has ended is its descriptor closed; without a wait a burst would be accepted as a whole.
            let _ = connections.join_next().await;
        }
        in_order.push_back(connections.spawn(serve(stream, remote, service.clone())));
    }
}

async fn serve(stream: Box<dyn Stream>, remote: Remote, service: Service) {
    let router = service.router.layer(Extension(remote));
    let connection = http1::Builder::new()
        .keep_alive(false)
        // Clients like `nc -N` end their side when they have asked.
        .half_close(true)
        .serve_connection(TokioIo::new(stream), TowerToHyperService::new(router));
    // Too late, or failed at the client's end: in both cases there is nobody left to tell.
    let _ = timeout(service.connection_time_max, connection).await;
}

/// A connection, whatever it goes over.
pub(crate) trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<S: AsyncRead + AsyncWrite + Send + Unpin> Stream for S {}

/// A listener at work.
enum Door {
    Tcp(TcpListener),
    Unix(UnixListener),
}

impl Door {
    fn new(listener: Listener) -> io::Result<Self> {
        match listener {
            Listener::Tcp(listener) => TcpListener::from_std(listener).map(Self::Tcp),
            Listener::Unix(listener) => UnixListener::from_std(listener).map(Self::Unix),
        }
    }

    async fn accept(&self) -> io::Result<(Box<dyn Stream>, Remote)> {
        match self {
            Self::Tcp(listener) => {
                let (stream, address) = listener.accept().await?;
                Ok((Box::new(stream), Remote::Tcp(address.into())))
            }
            Self::Unix(listener) => {
                let (stream, _) = listener.accept().await?;
                let uid = stream.peer_cred()?.uid();
                Ok((Box::new(stream), Remote::Unix { uid }))
            }
        }
    }
}
