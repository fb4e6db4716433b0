//! A bounded HTTP server, below the ops endpoints, the admin API and what comes: one request a connection,
//! and nothing that a client can hold on to.
//!
//! It decides who makes room: the connection that keeps us waiting for its request goes first, then the one
//! that does not take its answer, and never one that is owed an answer. What is answered is its router's
//! matter. It knows no path, and trusts nobody: its connections are as many as its [`Service`] says, and each
//! ends in time.
//!
//! ```
//! use std::io::{Read, Write};
//! use std::time::Duration;
//!
//! use axum::{Router, routing::get};
//! use httpd::{Listener, Service};
//!
//! # let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
//! # let _context = runtime.enter();
//! let listener = std::net::TcpListener::bind("127.0.0.1:0")?;
//! listener.set_nonblocking(true)?;
//! let address = listener.local_addr()?;
//! let router = Router::new().route("/healthz", get(async || "ok\n"));
//! let service =
//!     Service { name: "example", router, connections_max: 4, connection_time_max: Duration::from_secs(5) };
//! tokio::spawn(httpd::run(vec![Listener::Tcp(listener)], service));
//!
//! let mut stream = std::net::TcpStream::connect(address)?;
//! stream.write_all(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")?;
//! let mut answer = String::new();
//! stream.read_to_string(&mut answer)?;
//! assert!(answer.ends_with("ok\n"));
//! # std::io::Result::Ok(())
//! ```
#![forbid(unsafe_code)]

use std::collections::VecDeque;
use std::fmt;
use std::future::Future;
use std::io;
use std::net::{SocketAddr, TcpListener as StdTcpListener};
use std::os::unix::net::UnixListener as StdUnixListener;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Duration;

use axum::Router;
use hyper::Request;
use hyper::body::Incoming;
use hyper::http::Extensions;
use hyper::server::conn::http1;
use hyper::service::{Service as _, service_fn};
use hyper_util::rt::TokioIo;
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream, UnixListener};
use tokio::task::{AbortHandle, JoinSet, yield_now};
use tokio::time::{sleep, timeout};
use tracing::{Level, warn};

use logging::seldom::Seldom;

/// The pause after a failed accept, so that a lack of descriptors is not met by spinning.
const ACCEPT_RETRY: Duration = Duration::from_millis(100);

/// How often a failing accept is logged.
const WARN_INTERVAL: Duration = Duration::from_secs(10);

/// What is served, and how much of it at once.
#[derive(Clone)]
pub struct Service {
    /// For the log.
    pub name: &'static str,
    /// Its handlers find the [`Remote`] among the request's extensions.
    pub router: Router,
    /// Connections at once of each listener; for one more the oldest that keeps us waiting is closed, so that
    /// idle ones keep nobody out. The listeners of all services stay within the descriptors that are kept
    /// free of sessions.
    pub connections_max: usize,
    /// How long a connection may last, from accept to the last byte of the answer.
    pub connection_time_max: Duration,
}

/// Where clients come in. Nonblocking.
pub enum Listener {
    /// On an address.
    Tcp(StdTcpListener),
    /// On an address, with something to be done before a request is read.
    Secured(StdTcpListener, Arc<dyn Secure>),
    /// On a path.
    Unix(StdUnixListener),
}

/// What makes a connection a safe one. It is bounded like the connection itself.
pub trait Secure: Send + Sync {
    /// The stream within, and who is at its other end; none for somebody who is not let in.
    fn secure(&self, stream: TcpStream, remote: SocketAddr) -> Securing;
}

/// See [`Secure::secure`].
pub type Securing = Pin<Box<dyn Future<Output = Option<(Box<dyn Stream>, Identity)>> + Send>>;

/// Whom a secured connection belongs to. Handlers find it among the request's extensions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Identity(pub String);

/// Who is at the other end of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Remote {
    /// IPv4 as such, also on a listener for both.
    Tcp(SocketAddr),
    /// A process of this user, on this machine.
    Unix {
        /// Its number.
        uid: u32,
    },
}

impl fmt::Display for Remote {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(address) => address.fmt(f),
            Self::Unix { uid } => write!(f, "uid {uid}"),
        }
    }
}

/// Serves until dropped, and everything that it has opened ends with it.
pub async fn run(listeners: Vec<Listener>, service: Service) {
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
    let mut served = Served::default();
    loop {
        let accepted = match door.accept().await {
            Ok(accepted) => accepted,
            Err(error) => {
                if warnings.may_log() {
                    warn!(%error, "cannot accept for the {}", service.name);
                }
                sleep(ACCEPT_RETRY).await;
                continue;
            }
        };
        served.make_room(service.connections_max).await;
        served.serve(accepted, &service);
        // The runtime looks for input before this goes on: so a request that is there is read before its
        // connection could be the one that makes room.
        yield_now().await;
    }
}

/// The connections of one listener.
#[derive(Default)]
struct Served {
    tasks: JoinSet<()>,
    /// In the order in which they came.
    connections: VecDeque<(AbortHandle, Arc<Progress>)>,
}

/// How far a connection is.
#[derive(Debug, Default)]
struct Progress(AtomicU8);

impl Progress {
    /// The client owes us its request.
    const ASKING: u8 = 0;
    /// We owe it the answer.
    const ANSWERING: u8 = 1;
    /// It owes us to take the answer.
    const TAKING: u8 = 2;

    fn set(&self, step: u8) {
        self.0.store(step, Ordering::Relaxed);
    }

    fn is(&self, step: u8) -> bool {
        self.0.load(Ordering::Relaxed) == step
    }
}

impl Served {
    /// Returns when there are less than `max`: the oldest of those that keep us waiting for their request
    /// goes, or else the oldest that does not take its answer. While we owe an answer to all, one of them
    /// must get it first.
    async fn make_room(&mut self, max: usize) {
        loop {
            while self.tasks.try_join_next().is_some() {}
            self.connections.retain(|(task, _)| !task.is_finished());
            if self.connections.len() < max {
                return;
            }
            let oldest = |step| self.connections.iter().position(|(_, progress)| progress.is(step));
            if let Some(oldest) = oldest(Progress::ASKING).or_else(|| oldest(Progress::TAKING)) {
                self.connections[oldest].0.abort();
            }
            // Only when it has ended is its descriptor closed; without a wait a burst would be accepted as a
            // whole.
            let _ = self.tasks.join_next().await;
        }
    }

    fn serve(&mut self, accepted: Accepted, service: &Service) {
        let progress = Arc::<Progress>::default();
        let (service, at) = (service.clone(), Arc::clone(&progress));
        let task = self.tasks.spawn(async move {
            let time_max = service.connection_time_max;
            // Too late, or failed at the client's end: in both cases there is nobody left to tell.
            let _ = timeout(time_max, serve(accepted, service, at)).await;
        });
        self.connections.push_back((task, progress));
    }
}

async fn serve(accepted: Accepted, service: Service, progress: Arc<Progress>) {
    let (stream, remote, identity) = match accepted {
        Accepted::Plain(stream, remote) => (stream, remote, None),
        Accepted::ToSecure(securing, remote) => match securing.await {
            Some((stream, identity)) => (stream, remote, Some(identity)),
            None => return,
        },
    };
    let router = TowerToHyperService::new(service.router);
    let answering = service_fn(move |mut request: Request<Incoming>| {
        progress.set(Progress::ANSWERING);
        request.extensions_mut().insert(remote);
        request.extensions_mut().extend(identity.clone().map(extension).unwrap_or_default());
        let (answer, progress) = (router.call(request), Arc::clone(&progress));
        async move {
            let answer = answer.await;
            progress.set(Progress::TAKING);
            answer
        }
    });
    let connection = http1::Builder::new()
        .keep_alive(false)
        // Clients like `nc -N` end their side when they have asked.
        .half_close(true)
        .serve_connection(TokioIo::new(stream), answering);
    // What fails here fails at the client's end.
    let _ = connection.await;
}

fn extension(identity: Identity) -> Extensions {
    let mut extensions = Extensions::new();
    extensions.insert(identity);
    extensions
}

/// A connection, whatever it goes over.
pub trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<S: AsyncRead + AsyncWrite + Send + Unpin> Stream for S {}

/// A connection that has come.
enum Accepted {
    Plain(Box<dyn Stream>, Remote),
    ToSecure(Securing, Remote),
}

/// A listener at work.
enum Door {
    Tcp(TcpListener),
    Secured(TcpListener, Arc<dyn Secure>),
    Unix(UnixListener),
}

impl Door {
    fn new(listener: Listener) -> io::Result<Self> {
        match listener {
            Listener::Tcp(listener) => TcpListener::from_std(listener).map(Self::Tcp),
            Listener::Secured(listener, secure) => {
                TcpListener::from_std(listener).map(|listener| Self::Secured(listener, secure))
            }
            Listener::Unix(listener) => UnixListener::from_std(listener).map(Self::Unix),
        }
    }

    async fn accept(&self) -> io::Result<Accepted> {
        let canonical = |address: SocketAddr| SocketAddr::new(address.ip().to_canonical(), address.port());
        match self {
            Self::Tcp(listener) => {
                let (stream, address) = listener.accept().await?;
                Ok(Accepted::Plain(Box::new(stream), Remote::Tcp(canonical(address))))
            }
            Self::Secured(listener, secure) => {
                let (stream, address) = listener.accept().await?;
                let address = canonical(address);
                Ok(Accepted::ToSecure(secure.secure(stream, address), Remote::Tcp(address)))
            }
            Self::Unix(listener) => {
                let (stream, _) = listener.accept().await?;
                let uid = stream.peer_cred()?.uid();
                Ok(Accepted::Plain(Box::new(stream), Remote::Unix { uid }))
            }
        }
    }
}
