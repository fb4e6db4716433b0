//! A caller of the admin API: one connection a call, as the API has it, and no wait without a bound.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use axum::http::{Method, Request, StatusCode, header};
use http_body_util::{BodyExt, Empty};
use hyper::body::{Bytes, Incoming};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use protocol::LockName;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use tokio::net::{TcpStream, UnixStream};
use tokio::time::timeout;

use super::problem::Problem;
use crate::admin::PAGE_LOCKS_MAX;
use crate::admin::model::{self, Kicked, Listing, Lock, Released};
use flags::AdminAddress;
use httpd::Stream;

/// How long a connection may take: several retransmissions of a lost SYN, and a slow look-up of a name.
const CONNECT_TIME_MAX: Duration = Duration::from_secs(5);

/// How long nothing may come. A listing waits up to 5 s for its turn, and then gathers a page in far less.
const SILENCE_MAX: Duration = Duration::from_secs(10);

/// How long an answer may take: a connection of the API does not last longer.
const ANSWER_TIME_MAX: Duration = Duration::from_secs(60);

/// The largest answer: a lock with a million waiters whose identities are as long as a name may be fits several times.
const ANSWER_BYTES_MAX: usize = 1 << 30;

/// The admin API at an address.
#[derive(Debug)]
pub(super) struct Api {
    address: AdminAddress,
}

impl Api {
    pub(super) fn new(address: AdminAddress) -> Self {
        Self { address }
    }

    /// For people.
    pub(super) fn address(&self) -> String {
        self.address.to_string()
    }

    pub(super) async fn about(&self) -> Result<About, Problem> {
        let about = self.call(Method::GET, "/api/info".into()).await;
        about.map_err(|problem| self.of_a_path_that_exists(problem))
    }

    pub(super) async fn lock(&self, name: &LockName) -> Result<Lock, Problem> {
        self.call(Method::GET, path(name)).await
    }

    pub(super) async fn release(&self, name: &LockName, token: Option<u64>) -> Result<Released, Problem> {
        let of = token.map(|token| format!("?token={token}")).unwrap_or_default();
        let done = self.call(Method::POST, path(name) + "/release" + &of).await;
        done.map_err(Problem::of_action)
    }

    pub(super) async fn kick(&self, name: &LockName, waiter: SocketAddr) -> Result<Kicked, Problem> {
        let target = format!("{}/waiters/{}", path(name), encoded(&waiter.to_string()));
        self.call(Method::DELETE, target).await.map_err(Problem::of_action)
    }

    /// All locks whose names match, page by page in the order of their names. Memory holds one page.
    pub(super) async fn each_page<L: DeserializeOwned>(
        &self,
        pattern: Option<&str>,
        mut each: impl FnMut(Vec<L>) -> Result<(), Problem>,
    ) -> Result<(), Problem> {
        let mut after = String::new();
        loop {
            let (pattern, from) = (encoded(pattern.unwrap_or_default()), encoded(&after));
            let target = format!("/api/locks?limit={PAGE_LOCKS_MAX}&match={pattern}&after={from}");
            let page = self.call(Method::GET, target).await;
            let Listing { locks, next } = page.map_err(|problem| self.of_a_path_that_exists(problem))?;
            each(locks)?;
            match next {
                None => return Ok(()),
                Some(next) if next > after => after = next,
                Some(_) => return Err(self.not_understood("its pages do not go on")),
            }
        }
    }

    async fn call<A: DeserializeOwned>(&self, method: Method, target: String) -> Result<A, Problem> {
        let connect = timeout(CONNECT_TIME_MAX, self.connect());
        let (stream, host) = match connect.await {
            Ok(connected) => {
                connected.map_err(|error| Problem::Unreachable { address: self.address(), error })?
            }
            Err(_) => return Err(self.silent(CONNECT_TIME_MAX)),
        };
        let request = Request::builder().method(method).uri(target).header(header::HOST, host);
        let request = request.body(Empty::new()).expect("a short target of encoded parts is valid");
        let answer = timeout(ANSWER_TIME_MAX, self.exchange(stream, request)).await;
        let (status, body) = answer.unwrap_or_else(|_| Err(self.silent(ANSWER_TIME_MAX)))?;
        if status == StatusCode::OK { self.parse(&body) } else { Err(self.refusal(status, &body)) }
    }

    /// A connection, and what names its other end in a request: always an IP address, which the API's protection against
    /// web pages takes, whatever name was looked up.
    async fn connect(&self) -> io::Result<(Box<dyn Stream>, String)> {
        let addresses = match &self.address {
            AdminAddress::Unix(path) => {
                return Ok((Box::new(UnixStream::connect(path).await?), "localhost".to_owned()));
            }
            AdminAddress::Tcp(address) => address.resolve().await?,
        };
        let stream = TcpStream::connect(&addresses[..]).await?;
        let peer = stream.peer_addr()?;
        // Without the zone of an IPv6 address, which is this machine's own matter.
        let host = SocketAddr::new(peer.ip(), peer.port()).to_string();
        Ok((Box::new(stream), host))
    }

    async fn exchange(
        &self,
        stream: Box<dyn Stream>,
        request: Request<Empty<Bytes>>,
    ) -> Result<(StatusCode, Vec<u8>), Problem> {
        let broken = |error| self.broken(error);
        let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await.map_err(broken)?;
        // Its errors come out at the sender and the body too.
        tokio::spawn(connection);
        let response = timeout(SILENCE_MAX, sender.send_request(request)).await;
        let response = response.map_err(|_| self.silent(SILENCE_MAX))?.map_err(broken)?;
        let status = response.status();
        Ok((status, self.whole(response.into_body()).await?))
    }

    async fn whole(&self, mut body: Incoming) -> Result<Vec<u8>, Problem> {
        let mut bytes = Vec::new();
        loop {
            let frame = timeout(SILENCE_MAX, body.frame()).await.map_err(|_| self.silent(SILENCE_MAX))?;
            let Some(frame) = frame else { return Ok(bytes) };
            let frame = frame.map_err(|error| self.broken(error))?;
            bytes.extend_from_slice(frame.data_ref().unwrap_or(&Bytes::new()));
            if bytes.len() > ANSWER_BYTES_MAX {
                return Err(self.not_understood("its answer does not end"));
            }
        }
    }

    fn parse<A: DeserializeOwned>(&self, body: &[u8]) -> Result<A, Problem> {
        serde_json::from_slice(body).map_err(|error| self.not_understood(&error.to_string()))
    }

    fn refusal(&self, status: StatusCode, body: &[u8]) -> Problem {
        let reason = match self.parse(body) {
            Ok(model::Error { error }) => error,
            Err(_) => return self.not_understood(&format!("status {status}")),
        };
        match status {
            StatusCode::NOT_FOUND => Problem::NotFound(reason),
            StatusCode::CONFLICT => Problem::AnotherHolder(reason),
            StatusCode::BAD_REQUEST => Problem::Usage(reason),
            StatusCode::SERVICE_UNAVAILABLE => Problem::Unavailable { address: self.address(), reason },
            _ => self.not_understood(&format!("status {status}, {reason}")),
        }
    }

    /// Where no name is asked for, 404 comes from something else.
    fn of_a_path_that_exists(&self, problem: Problem) -> Problem {
        match problem {
            Problem::NotFound(reason) => self.not_understood(&format!("status 404, {reason}")),
            other => other,
        }
    }

    fn broken(&self, error: hyper::Error) -> Problem {
        if error.is_parse() {
            self.not_understood(&error.to_string())
        } else {
            Problem::BrokenOff { address: self.address(), error }
        }
    }

    fn silent(&self, limit: Duration) -> Problem {
        Problem::Silent { address: self.address(), limit_s: limit.as_secs() }
    }

    fn not_understood(&self, what: &str) -> Problem {
        Problem::NotUnderstood { address: self.address(), what: what.to_owned() }
    }
}

fn path(name: &LockName) -> String {
    format!("/api/locks/{}", encoded(name.as_str()))
}

fn encoded(text: &str) -> String {
    utf8_percent_encode(text, NON_ALPHANUMERIC).to_string()
}

/// What is wanted of `/api/info`: no more, so that servers of other versions have it too.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub(super) struct About {
    pub(super) version: String,
    pub(super) uptime_ms: u64,
    /// Holders and waiters.
    pub(super) sessions: u64,
}

/// A lock whose waiters are only counted.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub(super) struct Summary {
    pub(super) name: String,
    pub(super) holder: Option<model::Holder>,
    #[serde(deserialize_with = "count")]
    pub(super) waiters: u64,
}

/// The length of a list, without its items.
fn count<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<u64, D::Error> {
    // Items without a size take no memory.
    struct Skipped;
    impl<'de> Deserialize<'de> for Skipped {
        fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
            serde::de::IgnoredAny::deserialize(deserializer).map(|_| Self)
        }
    }
    Vec::<Skipped>::deserialize(deserializer).map(|items| items.len() as u64)
}
