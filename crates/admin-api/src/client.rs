//! A caller of the admin API: one connection a call, as the API has it, and no wait without a bound.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use cli::AdminAddress;
use http_body_util::{BodyExt, Empty};
use hyper::body::{Bytes, Incoming};
use hyper::client::conn::http1;
use hyper::{Method, Request, StatusCode, header};
use hyper_util::rt::TokioIo;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use protocol::LockName;
use serde::de::DeserializeOwned;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, UnixStream};
use tokio::time::timeout;

use crate::{About, Commanded, Error, Kicked, Listing, Lock, NodeStatus, PAGE_LOCKS_MAX, Refusal, Released};

/// How long a connection may take: several retransmissions of a lost SYN, and a slow look-up of a name.
const CONNECT_TIME_MAX: Duration = Duration::from_secs(5);

/// How long nothing may come. A listing waits up to 5 s for its turn, and then gathers a page in far less.
const SILENCE_MAX: Duration = Duration::from_secs(10);

/// How long an answer may take: a connection of the API does not last longer.
const ANSWER_TIME_MAX: Duration = Duration::from_secs(60);

/// The largest answer: a lock with a million waiters whose identities are as long as a name may be fits
/// several times.
const ANSWER_BYTES_MAX: usize = 1 << 30;

/// A connection, whatever it goes over.
trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<S: AsyncRead + AsyncWrite + Send + Unpin> Stream for S {}

/// The admin API at an address.
#[derive(Debug)]
pub struct Client {
    address: AdminAddress,
}

impl Client {
    /// Nothing is connected yet: each call is a connection.
    pub fn new(address: AdminAddress) -> Self {
        Self { address }
    }

    /// For people.
    pub fn address(&self) -> String {
        self.address.to_string()
    }

    /// Version, age and sessions.
    pub async fn about(&self) -> Result<About, Error> {
        let about = self.call(Method::GET, "/api/info".into()).await;
        about.map_err(|problem| self.of_a_path_that_exists(problem))
    }

    /// One lock.
    pub async fn lock(&self, name: &LockName) -> Result<Lock, Error> {
        self.call(Method::GET, path(name)).await
    }

    /// Takes a lock from its holder; with a token only from the holder that has it.
    pub async fn release(&self, name: &LockName, token: Option<u64>) -> Result<Released, Error> {
        let of = token.map(|token| format!("?token={token}")).unwrap_or_default();
        let done = self.call(Method::POST, path(name) + "/release" + &of).await;
        done.map_err(Error::of_action)
    }

    /// Takes a waiter out of the queue.
    pub async fn kick(&self, name: &LockName, waiter: SocketAddr) -> Result<Kicked, Error> {
        let target = format!("{}/waiters/{}", path(name), encoded(&waiter.to_string()));
        self.call(Method::DELETE, target).await.map_err(Error::of_action)
    }

    /// One of two nodes, as it is.
    pub async fn node(&self) -> Result<NodeStatus, Error> {
        self.call(Method::GET, "/api/ha".into()).await
    }

    /// Has one of two nodes do something: `promote?mode=auto`, as the API has it.
    pub async fn command(&self, command: &str) -> Result<Commanded, Error> {
        self.call(Method::POST, format!("/api/ha/{command}")).await.map_err(Error::of_action)
    }

    /// All locks whose names match, page by page in the order of their names. Memory holds one page.
    pub async fn each_page<L: DeserializeOwned, E: From<Error>>(
        &self,
        pattern: Option<&str>,
        mut each: impl FnMut(Vec<L>) -> Result<(), E>,
    ) -> Result<(), E> {
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
                Some(_) => return Err(self.not_understood("its pages do not go on").into()),
            }
        }
    }

    async fn call<A: DeserializeOwned>(&self, method: Method, target: String) -> Result<A, Error> {
        let connect = timeout(CONNECT_TIME_MAX, self.connect());
        let (stream, host) = match connect.await {
            Ok(connected) => {
                connected.map_err(|error| Error::Unreachable { address: self.address(), error })?
            }
            Err(_) => return Err(self.silent(CONNECT_TIME_MAX)),
        };
        let request = Request::builder().method(method).uri(target).header(header::HOST, host);
        let request = request.body(Empty::new()).expect("a short target of encoded parts is valid");
        let answer = timeout(ANSWER_TIME_MAX, self.exchange(stream, request)).await;
        let (status, body) = answer.unwrap_or_else(|_| Err(self.silent(ANSWER_TIME_MAX)))?;
        if status == StatusCode::OK { self.parse(&body) } else { Err(self.refusal(status, &body)) }
    }

    /// A connection, and what names its other end in a request: always an IP address, which the API's
    /// protection against web pages takes, whatever name was looked up.
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
    ) -> Result<(StatusCode, Vec<u8>), Error> {
        let broken = |error| self.broken(error);
        let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await.map_err(broken)?;
        // Its errors come out at the sender and the body too.
        tokio::spawn(connection);
        let response = timeout(SILENCE_MAX, sender.send_request(request)).await;
        let response = response.map_err(|_| self.silent(SILENCE_MAX))?.map_err(broken)?;
        let status = response.status();
        Ok((status, self.whole(response.into_body()).await?))
    }

    async fn whole(&self, mut body: Incoming) -> Result<Vec<u8>, Error> {
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

    fn parse<A: DeserializeOwned>(&self, body: &[u8]) -> Result<A, Error> {
        serde_json::from_slice(body).map_err(|error| self.not_understood(&error.to_string()))
    }

    fn refusal(&self, status: StatusCode, body: &[u8]) -> Error {
        let reason = match self.parse(body) {
            Ok(Refusal { error }) => error,
            Err(_) => return self.not_understood(&format!("status {status}")),
        };
        match status {
            StatusCode::NOT_FOUND => Error::NotFound(reason),
            StatusCode::CONFLICT => Error::AnotherHolder(reason),
            StatusCode::BAD_REQUEST => Error::BadRequest(reason),
            StatusCode::SERVICE_UNAVAILABLE => Error::Unavailable { address: self.address(), reason },
            _ => self.not_understood(&format!("status {status}, {reason}")),
        }
    }

    /// Where no name is asked for, 404 comes from something else.
    fn of_a_path_that_exists(&self, problem: Error) -> Error {
        match problem {
            Error::NotFound(reason) => self.not_understood(&format!("status 404, {reason}")),
            other => other,
        }
    }

    fn broken(&self, error: hyper::Error) -> Error {
        if error.is_parse() {
            self.not_understood(&error.to_string())
        } else {
            Error::BrokenOff { address: self.address(), error }
        }
    }

    fn silent(&self, limit: Duration) -> Error {
        Error::Silent { address: self.address(), limit_s: limit.as_secs() }
    }

    fn not_understood(&self, what: &str) -> Error {
        Error::NotUnderstood { address: self.address(), what: what.to_owned() }
    }
}

fn path(name: &LockName) -> String {
    format!("/api/locks/{}", encoded(name.as_str()))
}

fn encoded(text: &str) -> String {
    utf8_percent_encode(text, NON_ALPHANUMERIC).to_string()
}
