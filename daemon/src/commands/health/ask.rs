//! The two requests, one connection each, as the ops endpoints have it. Nothing here has a limit of time: who
//! calls it has one for all.

use std::io;
use std::net::{SocketAddr, ToSocketAddrs};

use http_body_util::{BodyExt, Empty};
use hyper::body::Bytes;
use hyper::client::conn::http1;
use hyper::{Request, StatusCode, header};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tokio::sync::oneshot;

use super::url::Url;

/// What the server says is read up to here: `/metrics` of a server with a thousand shards twice over.
const ANSWER_BYTES_MAX: usize = 8 << 20;

/// What the server said.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Answers {
    pub(super) ready: Answer,
    /// Not asked for when the server is not ready.
    pub(super) metrics: Option<Answer>,
}

#[derive(Debug, PartialEq, Eq)]
pub(super) struct Answer {
    pub(super) status: StatusCode,
    pub(super) body: String,
}

/// Asks. An error is for people, without the address.
pub(super) async fn ask(url: &Url) -> Result<Answers, String> {
    let host = url.host();
    let addresses = addresses(&host).await?;
    let ready = get(&host, &addresses, "/readyz").await?;
    let metrics = match ready.status {
        StatusCode::OK => Some(get(&host, &addresses, "/metrics").await?),
        _ => None,
    };
    Ok(Answers { ready, metrics })
}

/// A name is looked up on a thread of its own, which nobody waits for in the end.
async fn addresses(host: &str) -> Result<Vec<SocketAddr>, String> {
    if let Ok(address) = host.parse() {
        return Ok(vec![address]);
    }
    let (found, is_found) = oneshot::channel();
    let name = host.to_owned();
    let look_up = move || drop(found.send(name.to_socket_addrs().map(Vec::from_iter)));
    threads::start("lookup", look_up).map_err(|error| format!("looking the name up: {error}"))?;
    let looked_up = is_found.await.unwrap_or_else(|_| Err(io::Error::other("the look-up failed")));
    looked_up.map_err(|error| error.to_string())
}

async fn get(host: &str, addresses: &[SocketAddr], path: &str) -> Result<Answer, String> {
    let stream = TcpStream::connect(addresses).await.map_err(|error| error.to_string())?;
    let broken = |error: hyper::Error| format!("{path}: {error}");
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await.map_err(broken)?;
    // Its errors come out at the sender and the body too.
    tokio::spawn(connection);
    let request = Request::get(path).header(header::HOST, host).header(header::CONNECTION, "close");
    let request = request.body(Empty::<Bytes>::new()).map_err(|error| error.to_string())?;
    let response = sender.send_request(request).await.map_err(broken)?;
    let (status, mut body) = (response.status(), response.into_body());
    let mut bytes = Vec::new();
    while let Some(frame) = body.frame().await {
        bytes.extend_from_slice(frame.map_err(broken)?.data_ref().unwrap_or(&Bytes::new()));
        if bytes.len() > ANSWER_BYTES_MAX {
            return Err(format!("{path}: the answer does not end"));
        }
    }
    Ok(Answer { status, body: String::from_utf8_lossy(&bytes).into_owned() })
}
