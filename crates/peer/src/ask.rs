//! The side that asks.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use cli::ListenAddress;
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Bytes;
use hyper::client::conn::http1;
use hyper::{Method, Request, StatusCode, header};
use hyper_util::rt::TokioIo;
use logging::escape::escaped;
use rustls::pki_types::ServerName;
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;

use crate::{Allowed, BODY_BYTES_MAX, Credentials, PATH};

/// The other node, at all its addresses.
#[derive(Debug, Clone)]
pub struct Peer {
    addresses: Vec<ListenAddress>,
    credentials: Credentials,
    allowed: Allowed,
}

/// Nobody answered who counts: why, for each address. It proves nothing about the other node.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}", .0.iter().map(|(address, why)| format!("{address}: {why}")).collect::<Vec<_>>().join("; "))]
pub struct NoAnswer(pub Vec<(String, String)>);

impl Peer {
    /// Nothing is connected yet: each question is a connection to each address.
    pub fn new(addresses: Vec<ListenAddress>, credentials: Credentials, allowed: Allowed) -> Self {
        Self { addresses, credentials, allowed }
    }

    /// Asks all addresses at once, and takes the first answer that `counts`, which says what is wrong with
    /// another.
    ///
    /// # Errors
    ///
    /// There is none in that time.
    pub async fn ask<Q: Serialize, A: DeserializeOwned + Send + 'static>(
        &self,
        question: &Q,
        time_max: Duration,
        counts: impl Fn(&A) -> Result<(), String>,
    ) -> Result<A, NoAnswer> {
        let body = match serde_json::to_vec(question) {
            Ok(json) => Bytes::from(json),
            Err(error) => return Err(NoAnswer(vec![("this node".into(), error.to_string())])),
        };
        let mut tries = JoinSet::new();
        for address in self.addresses.clone() {
            let (peer, body) = (self.clone(), body.clone());
            tries.spawn(async move {
                let answer = timeout(time_max, peer.ask_at(&address, body)).await;
                let answer = answer.unwrap_or_else(|_| Err(format!("no answer within {time_max:?}")));
                (address.to_string(), answer)
            });
        }
        let mut without = Vec::new();
        while let Some(tried) = tries.join_next().await {
            let (address, answer) = tried.expect("asking does not panic");
            match answer.and_then(|answer| counts(&answer).map(|()| answer)) {
                Ok(answer) => return Ok(answer),
                Err(why) => without.push((address, escaped(&why))),
            }
        }
        without.sort();
        Err(NoAnswer(without))
    }

    async fn ask_at<A: DeserializeOwned>(&self, address: &ListenAddress, body: Bytes) -> Result<A, String> {
        let said = |error: io::Error| error.to_string();
        let addresses: Vec<SocketAddr> = address.resolve().await.map_err(said)?;
        let stream = TcpStream::connect(&addresses[..]).await.map_err(said)?;
        stream.set_nodelay(true).map_err(said)?;
        let ip = stream.peer_addr().map_err(said)?.ip();
        let mutual = self.credentials.now();
        let connector = TlsConnector::from(mutual.client());
        let stream = connector.connect(ServerName::IpAddress(ip.into()), stream).await;
        let stream = stream.map_err(|error| tls_problem(&error))?;
        let chain = stream.get_ref().1.peer_certificates().unwrap_or_default();
        let identity = mutual.identity(chain).map_err(|fault| fault.to_string())?;
        if !self.allowed.contains(identity) {
            return Err(format!("{identity:?} is not on the list of -ha-allow"));
        }
        let broken = |error: hyper::Error| error.to_string();
        let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await.map_err(broken)?;
        // Its errors come out at the sender and the body too.
        let connection = Connection(tokio::spawn(async move { drop(connection.await) }));
        let request = Request::builder()
            .method(Method::POST)
            .uri(PATH)
            .header(header::HOST, "peer")
            .header(header::CONTENT_TYPE, "application/json")
            .body(Full::new(body))
            .expect("a request of fixed parts is valid");
        let response = sender.send_request(request).await.map_err(broken)?;
        let status = response.status();
        let body = Limited::new(response.into_body(), BODY_BYTES_MAX);
        let body = body.collect().await.map_err(|error| error.to_string())?.to_bytes();
        drop(connection);
        match status {
            StatusCode::OK => {
                serde_json::from_slice(&body).map_err(|error| format!("not understood: {error}"))
            }
            _ => Err(format!("status {status}: {}", String::from_utf8_lossy(&body).trim())),
        }
    }
}

/// A connection's task, which ends with the question.
struct Connection(tokio::task::JoinHandle<()>);

impl Drop for Connection {
    fn drop(&mut self) {
        self.0.abort();
    }
}

fn tls_problem(error: &io::Error) -> String {
    let inner = error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>());
    inner.map_or_else(|| error.to_string(), pki::words::error)
}
