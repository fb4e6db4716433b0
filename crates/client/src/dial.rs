//! From `host:port` to a connection.

use std::io;
use std::net::{SocketAddr, ToSocketAddrs};
use std::thread;
use std::time::Duration;

use tokio::net::TcpStream;
use tokio::sync::oneshot;
use tokio::time::timeout;

use crate::config::Config;
use crate::error::Error;
use crate::transport::Transport;

/// Connects to the first address that takes the connection. The round begins at address number `attempt`,
/// modulo their number: who comes back because the first one is a standby finds the next.
pub(crate) async fn dial(config: &Config, attempt: usize) -> Result<Transport, Error> {
    let failed = |source| Error::dial(&config.address, source);
    let looked_up = within(config.dial_timeout, look_up(&config.address)).await.map_err(failed)?;
    connect(config, in_turn(looked_up, attempt)).await.map_err(failed)
}

/// The addresses of `host:port`. A name is looked up on a thread of its own, which is left alone when nobody
/// waits any more: the resolver gives up by itself, after half a minute with its usual settings, so few can
/// pile up. Tokio's look-up panics where there are no more threads.
async fn look_up(address: &str) -> io::Result<Vec<SocketAddr>> {
    if let Ok(address) = address.parse() {
        return Ok(vec![address]);
    }
    let (found, is_found) = oneshot::channel();
    let address = address.to_owned();
    thread::Builder::new().name("monolock-lookup".into()).spawn(move || {
        // Whoever asked may have given up.
        let _ = found.send(address.to_socket_addrs().map(Iterator::collect));
    })?;
    is_found.await.unwrap_or_else(|_| Err(io::Error::other("the look-up panicked")))
}

fn in_turn(mut addresses: Vec<SocketAddr>, attempt: usize) -> Vec<SocketAddr> {
    if !addresses.is_empty() {
        let first = attempt % addresses.len();
        addresses.rotate_left(first);
    }
    addresses
}

/// The first of these addresses that takes the connection; else what the last one met.
async fn connect(config: &Config, addresses: Vec<SocketAddr>) -> io::Result<Transport> {
    let mut last = io::Error::new(io::ErrorKind::NotFound, "the name has no address");
    for address in addresses {
        match within(config.dial_timeout, open(config, address)).await {
            Ok(transport) => return Ok(transport),
            Err(error) => last = error,
        }
    }
    Err(last)
}

async fn open(config: &Config, address: SocketAddr) -> io::Result<Transport> {
    let socket = TcpStream::connect(address).await?;
    // A heartbeat must not wait for the acknowledgement of the one before.
    socket.set_nodelay(true)?;
    config.transport(socket).await
}

impl Config {
    async fn transport(&self, socket: TcpStream) -> io::Result<Transport> {
        #[cfg(feature = "tls")]
        if let Some(tls) = &self.tls {
            let session = tls.handshake(&socket, &self.address).await?;
            return Ok(Transport::tls(socket, session));
        }
        Ok(Transport::plain(socket))
    }
}

async fn within<T>(limit: Duration, attempt: impl Future<Output = io::Result<T>>) -> io::Result<T> {
    timeout(limit, attempt).await.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    use std::net::TcpListener;

    fn config() -> Config {
        Config::new("unused:1")
    }

    fn refusing() -> SocketAddr {
        TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap()
    }

    #[tokio::test]
    async fn each_address_is_tried_until_one_answers() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let answering = listener.local_addr().unwrap();
        let transport = connect(&config(), vec![refusing(), answering]).await.unwrap();
        let socket = transport.socket();
        assert_eq!(socket.peer_addr().unwrap(), answering);
        assert!(socket.nodelay().unwrap());

        let error = connect(&config(), vec![refusing(), refusing()]).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::ConnectionRefused);
        let error = connect(&config(), Vec::new()).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::NotFound);
    }

    #[tokio::test]
    async fn an_address_that_does_not_answer_takes_the_dial_timeout_and_no_more() {
        // A queue of one connection that nobody accepts: Linux leaves further SYNs unanswered.
        let full = socket_with_full_queue().await;
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let answering = listener.local_addr().unwrap();
        let config = config().with_dial_timeout(Duration::from_millis(50));
        let connects = connect(&config, vec![full.address, full.address, answering]);
        let transport = timeout(Duration::from_secs(10), connects).await.expect("it gives up soon").unwrap();
        assert_eq!(transport.socket().peer_addr().unwrap(), answering);
        let error = connect(&config, vec![full.address]).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
    }

    struct FullQueue {
        address: SocketAddr,
        _held: (tokio::net::TcpListener, Vec<TcpStream>),
    }

    async fn socket_with_full_queue() -> FullQueue {
        let socket = tokio::net::TcpSocket::new_v4().unwrap();
        socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
        let listener = socket.listen(0).unwrap();
        let address = listener.local_addr().unwrap();
        let mut queued = Vec::new();
        while let Ok(stream) = timeout(Duration::from_millis(100), TcpStream::connect(address)).await {
            queued.push(stream.unwrap());
        }
        FullQueue { address, _held: (listener, queued) }
    }

    #[test]
    fn each_attempt_begins_its_round_at_the_next_address() {
        let addresses: Vec<SocketAddr> =
            (1..=3).map(|port| SocketAddr::from(([127, 0, 0, 1], port))).collect();
        let ports =
            |attempt| in_turn(addresses.clone(), attempt).iter().map(SocketAddr::port).collect::<Vec<_>>();
        assert_eq!(ports(0), [1, 2, 3]);
        assert_eq!(ports(1), [2, 3, 1]);
        assert_eq!(ports(5), [3, 1, 2]);
        assert_eq!(in_turn(Vec::new(), 1), []);
    }
}
