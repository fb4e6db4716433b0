//! `/metrics`, `/healthz`, `/readyz` and `/active`, on the control thread.

mod exposition;
mod histogram;
mod node;
mod phase;
mod readiness;
mod register;
mod sources;
mod vitals;
mod watch;
mod window;

use std::io;
use std::net::TcpListener;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use axum::Router;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use tokio::task::JoinHandle;

use crate::gate::Gate;
use crate::settings::ReadySettings;
use exposition::Exposition;
use httpd::{Listener, Service};
use phase::{Lifecycle, Phase};
use readiness::closed;
pub(crate) use sources::{Ceiling, Reports, Sources, Tell};
use threads::Workers;
use tokio::time::{MissedTickBehavior, interval};
use watch::{LOOK_INTERVAL, Look, Watch};

/// The text format of Prometheus.
const METRICS_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// How long a connection may last. A scrape takes milliseconds; Prometheus itself gives up after 10 s by
/// default.
const CONNECTION_TIME_MAX: Duration = Duration::from_secs(5);

/// Connections at once of each listener: more than probes and scrapes need, well inside the descriptors that
/// are kept free of sessions.
const CONNECTIONS_MAX: usize = 16;

/// Scrapes that may wait for the one under way, which takes milliseconds: as many as a listener has
/// connections.
const SCRAPES_MAX: usize = CONNECTIONS_MAX;

/// What the endpoints answer from. Clones are of the same state.
#[derive(Clone)]
pub(crate) struct OpsState(Arc<Inner>);

struct Inner {
    lifecycle: Lifecycle,
    gate: Arc<Gate>,
    watch: Mutex<Watch>,
    exposition: Arc<Mutex<Exposition>>,
    /// A look at a hundred thousand open files takes its time, and the control thread also answers probes and
    /// signals.
    renderer: Workers,
}

impl OpsState {
    /// The state of a server that starts.
    ///
    /// # Errors
    ///
    /// As [`threads::start`](threads::start).
    pub(crate) fn new(sources: Sources, ready: &ReadySettings) -> io::Result<Self> {
        let gate = Arc::clone(&sources.gate);
        let watch = Mutex::new(Watch::new(sources.clone(), ready.clone()));
        let exposition = Arc::new(Mutex::new(Exposition::new(sources)));
        let renderer = Workers::start("metrics", 1, SCRAPES_MAX)?;
        Ok(Self(Arc::new(Inner { lifecycle: Lifecycle::default(), gate, watch, exposition, renderer })))
    }

    /// The protocol's port is open.
    pub(crate) fn set_serving(&self) {
        self.0.lifecycle.advance(Phase::Serving);
    }

    /// Whether this instance is fit to serve or to be promoted.
    pub(crate) fn is_fit(&self) -> bool {
        self.look().verdict.is_ready()
    }

    /// From now on load balancers should go elsewhere.
    pub(crate) fn set_shutting_down(&self) {
        self.0.lifecycle.advance(Phase::ShuttingDown);
    }

    fn look(&self) -> Look {
        let mut watch = self.0.watch.lock().unwrap_or_else(PoisonError::into_inner);
        watch.look(self.0.lifecycle.phase())
    }
}

/// Watches, and serves the endpoints on all `listeners`, until the task is aborted.
pub(crate) fn spawn(listeners: Vec<TcpListener>, state: OpsState) -> JoinHandle<()> {
    let listeners = listeners.into_iter().map(Listener::Tcp).collect();
    let service = Service {
        name: "ops endpoints",
        router: router(state.clone()),
        connections_max: CONNECTIONS_MAX,
        connection_time_max: CONNECTION_TIME_MAX,
    };
    tokio::spawn(async move { tokio::join!(httpd::run(listeners, service), watch(state)).0 })
}

async fn watch(state: OpsState) {
    let mut looks = interval(LOOK_INTERVAL);
    looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        looks.tick().await;
        state.look();
    }
}

fn router(state: OpsState) -> Router {
    Router::new()
        .route("/metrics", get(metrics))
        .route("/healthz", get(healthz))
        .route("/readyz", get(readyz))
        .route("/active", get(active))
        .with_state(state)
}

async fn metrics(State(state): State<OpsState>) -> Response {
    let exposition = Arc::clone(&state.0.exposition);
    let look = state.look();
    let render = move || exposition.lock().unwrap_or_else(PoisonError::into_inner).render(&look);
    match state.0.renderer.run(render).await {
        Ok(text) => ([(header::CONTENT_TYPE, METRICS_TYPE)], text).into_response(),
        Err(problem) => (StatusCode::SERVICE_UNAVAILABLE, format!("{problem}\n")).into_response(),
    }
}

async fn healthz(State(state): State<OpsState>) -> impl IntoResponse {
    match state.0.lifecycle.phase() {
        Phase::Starting | Phase::Serving => (StatusCode::OK, "ok\n"),
        Phase::ShuttingDown => (StatusCode::SERVICE_UNAVAILABLE, "shutting down\n"),
    }
}

async fn readyz(State(state): State<OpsState>) -> impl IntoResponse {
    let verdict = state.look().verdict;
    let is_ready = verdict.is_ready();
    let status = if is_ready { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    let mut body = if is_ready { "ok\n".to_owned() } else { String::new() };
    for line in &verdict.lines {
        body += if line.fails { "" } else { "warning: " };
        body += &line.text;
        body += "\n";
    }
    (status, body)
}

/// The gate's own deadline decides, as it does for every grant.
async fn active(State(state): State<OpsState>) -> impl IntoResponse {
    match closed(state.0.lifecycle.phase(), state.0.gate.look()) {
        None => (StatusCode::OK, "active\n".to_owned()),
        Some(reason) => (StatusCode::SERVICE_UNAVAILABLE, format!("{reason}\n")),
    }
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;
    use std::time::Instant;

    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpStream;

    use super::*;
    use crate::checks::Limits;
    use crate::clock;
    use crate::metrics::{Published, ShardCounters};

    /// What a server is asked without flags.
    pub(super) fn ready_settings() -> ReadySettings {
        ReadySettings { stall_max: Duration::from_secs(1), limits: Limits::default() }
    }

    /// A running ops server with one shard.
    struct Server {
        address: SocketAddr,
        state: OpsState,
        shard: Arc<Published>,
        gate: Arc<Gate>,
        task: JoinHandle<()>,
    }

    impl Server {
        async fn start() -> Self {
            Self::with(ready_settings(), Reports::default()).await
        }

        async fn with(ready: ReadySettings, reports: Reports) -> Self {
            let shard = Arc::<Published>::default();
            let shards = vec![Arc::clone(&shard)];
            let sources = Sources { shards, reports, ..Sources::of_a_test() };
            let gate = Arc::clone(&sources.gate);
            let state = OpsState::new(sources, &ready).unwrap();
            let listener = TcpListener::bind("127.0.0.1:0").unwrap();
            listener.set_nonblocking(true).unwrap();
            let address = listener.local_addr().unwrap();
            let task = spawn(vec![listener], state.clone());
            Self { address, state, shard, gate, task }
        }

        fn beat(&self, ago: Duration) {
            let ago_ns = u64::try_from(ago.as_nanos()).unwrap();
            ShardCounters::default().publish(&self.shard, clock::monotonic_ns() - ago_ns);
        }

        async fn connect(&self) -> TcpStream {
            TcpStream::connect(self.address).await.unwrap()
        }

        /// Status and body of the answer.
        async fn request(&self, method: &str, path: &str) -> (u16, String) {
            let mut stream = self.connect().await;
            let request = format!("{method} {path} HTTP/1.1\r\nHost: monolock\r\n\r\n");
            stream.write_all(request.as_bytes()).await.unwrap();
            let mut answer = String::new();
            stream.read_to_string(&mut answer).await.unwrap();
            let (head, body) = answer.split_once("\r\n\r\n").unwrap();
            (head.split(' ').nth(1).unwrap().parse().unwrap(), body.to_owned())
        }

        async fn get(&self, path: &str) -> (u16, String) {
            self.request("GET", path).await
        }
    }

    impl Drop for Server {
        fn drop(&mut self) {
            self.task.abort();
        }
    }

    #[tokio::test]
    async fn healthz_is_ok_until_shutdown_starts() {
        let server = Server::start().await;
        assert_eq!(server.get("/healthz").await, (200, "ok\n".into()));
        server.state.set_serving();
        assert_eq!(server.get("/healthz").await, (200, "ok\n".into()));
        server.state.set_shutting_down();
        assert_eq!(server.get("/healthz").await.0, 503);
    }

    #[tokio::test]
    async fn readyz_follows_the_start_the_shards_beats_and_the_shutdown() {
        let server = Server::start().await;
        server.beat(Duration::ZERO);
        assert_eq!(server.get("/readyz").await, (503, "starting\n".into()));
        server.state.set_serving();
        server.beat(Duration::ZERO);
        let (status, body) = server.get("/readyz").await;
        assert_eq!((status, body.lines().next()), (200, Some("ok")));
        server.beat(Duration::from_secs(2));
        let (status, reason) = server.get("/readyz").await;
        assert_eq!(status, 503);
        assert!(reason.starts_with("shard 0: no turn for 2"), "{reason}");
        server.state.set_shutting_down();
        assert_eq!(server.get("/readyz").await, (503, "shutting down\n".into()));
    }

    #[tokio::test]
    async fn active_is_who_serves_while_the_gate_is_open() {
        let server = Server::start().await;
        assert_eq!(server.get("/active").await, (503, "starting\n".into()));
        server.state.set_serving();
        assert_eq!(server.get("/active").await, (200, "active\n".into()));
        assert_eq!(server.request("HEAD", "/active").await, (200, String::new()));
        server.gate.shut_down();
        assert_eq!(server.get("/active").await, (503, "shutting down\n".into()));
        assert_eq!(server.request("HEAD", "/active").await, (503, String::new()));
    }

    #[tokio::test]
    async fn a_warning_has_a_line_of_its_own_and_fails_only_when_asked_for() {
        let isolated = Reports { isolated: Some(Arc::new(|| true)), ..Reports::default() };
        let warned = Server::with(ready_settings(), isolated.clone()).await;
        let limits = Limits::parse("isolated").unwrap();
        let failing = Server::with(ReadySettings { limits, ..ready_settings() }, isolated).await;
        for server in [&warned, &failing] {
            server.state.set_serving();
            server.beat(Duration::ZERO);
        }
        let (status, body) = warned.get("/readyz").await;
        assert_eq!(status, 200);
        assert!(
            body.starts_with("ok\n") && body.contains("\nwarning: isolated: no other host is heard\n"),
            "{body}"
        );
        let (status, body) = failing.get("/readyz").await;
        assert_eq!(status, 503);
        assert!(body.starts_with("isolated: no other host is heard\n"), "{body}");
    }

    #[tokio::test]
    async fn a_scrape_shows_what_was_published_just_before() {
        let server = Server::start().await;
        let mut counters = ShardCounters::default();
        counters.granted(5);
        counters.publish(&server.shard, clock::monotonic_ns());
        let (status, text) = server.get("/metrics").await;
        assert_eq!(status, 200);
        assert!(text.contains("\nmonolock_acquires_total 1\n"), "{text}");
        assert!(text.contains("\nprocess_open_fds "), "{text}");
    }

    #[tokio::test]
    async fn an_unknown_path_is_404_and_another_method_405() {
        let server = Server::start().await;
        assert_eq!(server.get("/").await.0, 404);
        assert_eq!(server.get("/metrics/").await.0, 404);
        assert_eq!(server.request("POST", "/metrics").await.0, 405);
        assert_eq!(server.request("DELETE", "/healthz").await.0, 405);
        assert_eq!(server.request("HEAD", "/healthz").await, (200, String::new()));
    }

    #[tokio::test]
    async fn clients_that_hold_connections_open_do_not_keep_a_probe_out() {
        let server = Server::start().await;
        let mut slow = Vec::new();
        for _ in 0..2 * CONNECTIONS_MAX {
            let mut stream = server.connect().await;
            stream.write_all(b"GET /metrics HTT").await.unwrap();
            slow.push(stream);
        }
        let started = Instant::now();
        assert_eq!(server.get("/healthz").await.0, 200);
        assert!(started.elapsed() < CONNECTION_TIME_MAX / 2);
        let mut rest = Vec::new();
        // The oldest one was closed to make room.
        let closed = tokio::time::timeout(CONNECTION_TIME_MAX / 2, slow[0].read_to_end(&mut rest)).await;
        assert!(closed.is_ok());
    }

    #[tokio::test(start_paused = true)]
    async fn a_connection_ends_after_its_time_whatever_the_client_does() {
        let server = Server::start().await;
        let mut stream = server.connect().await;
        stream.write_all(b"GET /metrics HTTP/1.1\r\n").await.unwrap();
        let mut rest = Vec::new();
        let started = tokio::time::Instant::now();
        // Reset or end: either way it is over.
        let _ = stream.read_to_end(&mut rest).await;
        assert!(started.elapsed() <= CONNECTION_TIME_MAX + Duration::from_secs(1));
    }
}
