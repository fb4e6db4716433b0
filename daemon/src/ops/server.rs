//! The HTTP server below the endpoints: one request a connection, and nothing that a client can hold on to.

use std::collections::VecDeque;
use std::net::TcpListener as StdListener;
use std::time::{Duration, Instant};

use axum::Router;
use hyper::server::conn::http1;
use hyper_util::rt::TokioIo;
use hyper_util::service::TowerToHyperService;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::{sleep, timeout};
use tracing::warn;

use super::{OpsState, router};

/// How long a connection may last, from accept to the last byte of the answer. A scrape takes milliseconds; Prometheus
/// itself gives up after 10 s by default.
pub(super) const CONNECTION_TIME_MAX: Duration = Duration::from_secs(5);

/// Connections at once of each listener; for one more the oldest is closed, so that idle ones cannot keep a probe out.
/// Well inside the descriptors that are kept free of sessions.
pub(super) const CONNECTIONS_MAX: usize = 16;

/// The pause after a failed accept, so that a lack of descriptors is not met by spinning.
const ACCEPT_RETRY: Duration = Duration::from_millis(100);

/// How often a failing accept is logged.
const WARN_INTERVAL: Duration = Duration::from_secs(10);

/// Serves until dropped, and everything that it has opened ends with it.
pub(super) async fn run(listeners: Vec<StdListener>, state: OpsState) {
    let mut loops = JoinSet::new();
    for listener in listeners {
        loops.spawn(accept_loop(listener, router(state.clone())));
    }
    while let Some(ended) = loops.join_next().await {
        ended.expect("an accept loop does not panic");
    }
    std::future::pending().await
}

async fn accept_loop(listener: StdListener, router: Router) {
    let listener = listener.set_nonblocking(true).and_then(|()| TcpListener::from_std(listener));
    let listener = match listener {
        Ok(listener) => listener,
        Err(error) => return warn!(%error, "the ops endpoints cannot be served"),
    };
    let mut warned_at: Option<Instant> = None;
    let mut connections = JoinSet::new();
    let mut in_order: VecDeque<AbortHandle> = VecDeque::new();
    loop {
        let stream = match listener.accept().await {
            Ok((stream, _)) => stream,
            Err(error) => {
                if warned_at.is_none_or(|at| at.elapsed() >= WARN_INTERVAL) {
                    warned_at = Some(Instant::now());
                    warn!(%error, "the ops endpoints cannot accept");
                }
                sleep(ACCEPT_RETRY).await;
                continue;
            }
        };
        while connections.try_join_next().is_some() {}
        in_order.retain(|connection| !connection.is_finished());
        if in_order.len() >= CONNECTIONS_MAX {
            in_order.pop_front().expect("not empty").abort();
        }
        in_order.push_back(connections.spawn(serve(stream, router.clone())));
    }
}

async fn serve(stream: TcpStream, router: Router) {
    let connection = http1::Builder::new()
        .keep_alive(false)
        .serve_connection(TokioIo::new(stream), TowerToHyperService::new(router));
    // Too late, or failed at the client's end: in both cases there is nobody left to tell.
    let _ = timeout(CONNECTION_TIME_MAX, connection).await;
}
