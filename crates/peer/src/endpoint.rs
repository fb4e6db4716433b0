//! The side that is asked.

use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Bytes;
use axum::extract::DefaultBodyLimit;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use httpd::{Identity, Listener, Secure, Securing, Service};
use logging::escape::escaped;
use logging::seldom::Seldom;
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::net::TcpStream;
use tokio_rustls::TlsAcceptor;
use tracing::{Level, warn};

use crate::{Allowed, BODY_BYTES_MAX, Credentials, PATH};

/// Connections at once of each listener: one node asks, each second, and once more to close.
const CONNECTIONS_MAX: usize = 8;

/// How long a connection may last. Who is asked to close may wait for the shards, a process and a disk.
const CONNECTION_TIME_MAX: Duration = Duration::from_secs(10);

/// How often a refused visitor is logged.
const WARN_INTERVAL: Duration = Duration::from_secs(10);

/// Answers the other node until dropped. Where there is no answer, it says why, which proves nothing. The
/// listeners are nonblocking.
pub async fn serve<Q, A, F>(
    listeners: Vec<TcpListener>,
    credentials: Credentials,
    allowed: Allowed,
    answer: impl Fn(Q) -> F + Clone + Send + Sync + 'static,
) where
    Q: DeserializeOwned + Send + 'static,
    A: Serialize,
    F: Future<Output = Result<A, String>> + Send + 'static,
{
    let refused = Seldom::new("somebody was not let in as the peer", Level::WARN, WARN_INTERVAL);
    let door: Arc<dyn Secure> = Arc::new(Door { credentials, allowed, refused });
    let handler = move |body: Bytes| {
        let answer = answer.clone();
        async move {
            match serde_json::from_slice::<Q>(&body) {
                Ok(question) => match answer(question).await {
                    Ok(answer) => said(&answer),
                    Err(why) => {
                        (StatusCode::SERVICE_UNAVAILABLE, format!("no answer: {why}\n")).into_response()
                    }
                },
                Err(error) => (StatusCode::BAD_REQUEST, format!("{error}\n")).into_response(),
            }
        }
    };
    let router = Router::new().route(PATH, post(handler)).layer(DefaultBodyLimit::max(BODY_BYTES_MAX));
    let service = Service {
        name: "peer's endpoint",
        router,
        connections_max: CONNECTIONS_MAX,
        connection_time_max: CONNECTION_TIME_MAX,
    };
    let listeners = listeners.into_iter().map(|listener| Listener::Secured(listener, Arc::clone(&door)));
    httpd::run(listeners.collect(), service).await;
}

fn said(answer: &impl Serialize) -> Response {
    match serde_json::to_vec(answer) {
        Ok(json) => ([(header::CONTENT_TYPE, "application/json")], json).into_response(),
        Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, format!("{error}\n")).into_response(),
    }
}

/// Lets the other node in.
struct Door {
    credentials: Credentials,
    allowed: Allowed,
    refused: Seldom,
}

impl Secure for Door {
    fn secure(&self, stream: TcpStream, remote: SocketAddr) -> Securing {
        let (mutual, allowed, refused) = (self.credentials.now(), self.allowed.clone(), self.refused.clone());
        Box::pin(async move {
            let problem = match TlsAcceptor::from(mutual.server()).accept(stream).await {
                Err(error) => error.to_string(),
                Ok(stream) => {
                    let chain = stream.get_ref().1.peer_certificates().unwrap_or_default();
                    match mutual.identity(chain).map(str::to_owned) {
                        Ok(identity) if allowed.contains(&identity) => {
                            let stream: Box<dyn httpd::Stream> = Box::new(stream);
                            return Some((stream, Identity(identity)));
                        }
                        Ok(identity) => format!("{identity:?} is not on the list of -ha-allow"),
                        Err(fault) => fault.to_string(),
                    }
                }
            };
            if refused.may_log() {
                warn!(%remote, problem = escaped(&problem), "not let in as the peer");
            }
            None
        })
    }
}
