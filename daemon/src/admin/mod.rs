//! The admin API: who holds and who waits, force-release and kick, as JSON over HTTP on TCP or on a Unix
//! socket.
//!
//! The control thread only takes requests, looks at their headers and writes answers. All else happens on
//! threads that may wait: asking the shards, matching names, writing JSON. There is no authentication: who
//! reaches the address may use it; [`guard`] keeps web pages from reaching it through a browser.

mod answer;
mod call;
mod gather;
mod guard;
mod node;
mod refusal;
mod shown;
mod socket;

use std::net::TcpListener;
use std::sync::Arc;
use std::time::Duration;

use admin_api::json;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::{HeaderMap, HeaderValue, Method, Uri, header};
use axum::response::{IntoResponse, Response};
use axum::{Extension, Router};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::JoinHandle;
use tokio::time::timeout;
use tracing::warn;

use crate::ha::Node;
use crate::listener::{self, BindError};
use crate::settings::{AdminSettings, ServeSettings};
use crate::shard::Questions;
use answer::Answers;
use call::Call;
use cli::{AdminAddress, HostName};
use httpd::{Listener, Remote, Service};
use refusal::Refusal;
use socket::SocketFile;
pub(crate) use socket::{SocketError, has_server};
use threads::Workers;

/// Connections at once of each listener: people, scripts and a live view. With those of the ops endpoints
/// they stay within the descriptors that are kept free of sessions.
const CONNECTIONS_MAX: usize = 12;

/// How long a connection may last: a listing's time, and as long again to send it.
const CONNECTION_TIME_MAX: Duration = Duration::from_secs(60);

/// Calls at once: one may be a listing, and the others wait long only for shards that hang.
const THREADS: usize = 8;

/// Calls that wait for a thread, also when their connections have gone.
const WAITING_MAX: usize = 24;

/// How long a listing waits for its turn. There is one at a time, since one of a million locks takes a third
/// of a GB.
const LISTING_TURN_WAIT: Duration = Duration::from_secs(5);

/// The running API. Its socket's file goes with it.
#[derive(Debug)]
pub(crate) struct Admin {
    pub(crate) task: JoinHandle<()>,
    /// Where it listens; none when off.
    pub(crate) address: Option<String>,
    _file: Option<SocketFile>,
}

/// Why the API does not start.
#[derive(Debug, thiserror::Error)]
pub(crate) enum StartError {
    #[error(transparent)]
    Port(#[from] BindError),
    #[error(transparent)]
    Socket(#[from] SocketError),
    #[error("cannot start the admin API's threads: {0}")]
    Threads(#[from] std::io::Error),
}

/// Opens the API's address, if it has one, and serves it.
pub(crate) async fn start(
    settings: &ServeSettings,
    questions: Questions,
    node: Option<Node>,
) -> Result<Admin, StartError> {
    let mut admin = Admin { task: tokio::spawn(std::future::pending()), address: None, _file: None };
    let Some(AdminSettings { listen, hosts }) = &settings.admin else { return Ok(admin) };
    let listeners = match listen {
        AdminAddress::Tcp(address) => {
            let listeners = listener::bind_all(address, "-admin-listen").await?;
            admin.address = Some(listener::addresses(&listeners));
            warn_if_open(&listeners);
            listeners.into_iter().map(Listener::Tcp).collect()
        }
        AdminAddress::Unix(path) => {
            let (listener, file) = socket::listen(path)?;
            admin.address = Some(listen.to_string());
            admin._file = Some(file);
            vec![Listener::Unix(listener)]
        }
    };
    let service = Service {
        name: "admin API",
        router: router(hosts.clone(), Answers::new(settings, questions), node)?,
        connections_max: CONNECTIONS_MAX,
        connection_time_max: CONNECTION_TIME_MAX,
    };
    admin.task = tokio::spawn(httpd::run(listeners, service));
    Ok(admin)
}

fn warn_if_open(listeners: &[TcpListener]) {
    let is_open =
        |listener: &TcpListener| listener.local_addr().is_ok_and(|a| !a.ip().to_canonical().is_loopback());
    if listeners.iter().any(is_open) {
        warn!(
            "the admin API asks for no password, and -admin-listen is not a loopback address: whoever reaches it can take any lock from its holder"
        );
    }
}

/// What every request needs.
struct Context {
    hosts: Vec<HostName>,
    answers: Arc<Answers>,
    /// One of two nodes, where there is a standby.
    node: Option<Node>,
    workers: Workers,
    listings: Arc<Semaphore>,
}

fn router(hosts: Vec<HostName>, answers: Answers, node: Option<Node>) -> std::io::Result<Router> {
    let context = Context {
        hosts,
        answers: Arc::new(answers),
        node,
        workers: Workers::start("admin", THREADS, WAITING_MAX)?,
        listings: Arc::new(Semaphore::new(1)),
    };
    // The paths are taken apart by `call`: a name is to be refused, not repaired, when its encoding is wrong.
    Ok(Router::new().fallback(handle).with_state(Arc::new(context)))
}

async fn handle(
    State(context): State<Arc<Context>>,
    Extension(remote): Extension<Remote>,
    method: Method,
    uri: Uri,
    headers: HeaderMap,
) -> Response {
    let call = guard::check(remote, &uri, &headers, &context.hosts).and_then(|()| Call::parse(&method, &uri));
    let answered = match call {
        Ok(Call::Node(call)) => node::answer(context.node.as_ref(), call, remote).await,
        Ok(call) => answer(&context, call, remote).await,
        Err(refusal) => Err(refusal),
    };
    match answered {
        Ok(body) => (HEADERS, body).into_response(),
        Err(Refusal { status, problem, allow }) => {
            let body = json::line(&admin_api::Refusal { error: problem });
            let mut response = (status, HEADERS, body).into_response();
            if let Some(allow) = allow.and_then(|allow| HeaderValue::try_from(allow).ok()) {
                response.headers_mut().insert(header::ALLOW, allow);
            }
            response
        }
    }
}

/// Of every answer. The last two keep a browser from handing it to a page that embeds it, which shows in no
/// header of the request.
const HEADERS: [(header::HeaderName, &str); 3] = [
    (header::CONTENT_TYPE, "application/json"),
    (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    (header::HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
];

async fn answer(context: &Context, call: Call, remote: Remote) -> Result<Bytes, Refusal> {
    let turn = match call {
        Call::List(_) => Some(listing_turn(&context.listings).await?),
        _ => None,
    };
    let answers = Arc::clone(&context.answers);
    let answer =
        move || answers.answer(call, remote).map(|text| Bytes::from_owner(Body { text, _until_sent: turn }));
    context.workers.run(answer).await.unwrap_or_else(|problem| Err(problem.into()))
}

/// What is sent, and for a listing its turn: the next one begins when this one's memory is free.
struct Body {
    text: Vec<u8>,
    _until_sent: Option<OwnedSemaphorePermit>,
}

impl AsRef<[u8]> for Body {
    fn as_ref(&self) -> &[u8] {
        &self.text
    }
}

async fn listing_turn(listings: &Arc<Semaphore>) -> Result<OwnedSemaphorePermit, Refusal> {
    match timeout(LISTING_TURN_WAIT, Arc::clone(listings).acquire_owned()).await {
        Ok(turn) => Ok(turn.expect("the semaphore is never closed")),
        Err(_) => Err(Refusal::unavailable("another listing is under way")),
    }
}
