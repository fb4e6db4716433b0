//! Opens the ports that the server listens on.

use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::time::{Duration, Instant};

use socket2::{Domain, Protocol, Socket, Type};

use cli::ListenAddress;

/// Connections that may wait to be accepted: more than any kernel allows, so that net.core.somaxconn (4096 by
/// default) alone limits it. After a failover every client connects at once, and a full backlog costs each of
/// them a second.
const BACKLOG: i32 = 65_535;

/// How long an address that is in use is tried again. The ring of a process that was killed is torn down
/// after its exit; until then, measured at 9 to 15 ms, its listener is still there.
const IN_USE_RETRY_TIME: Duration = Duration::from_secs(1);

/// How often it is tried.
const IN_USE_RETRY_INTERVAL: Duration = Duration::from_millis(5);

/// A port that could not be opened.
#[derive(Debug, thiserror::Error)]
pub(crate) enum BindError {
    #[error("{flag} {address}: {source}")]
    Resolve { flag: &'static str, address: ListenAddress, source: io::Error },
    #[error("{flag} {address}: cannot listen on {socket_address}: {source}")]
    Bind { flag: &'static str, address: ListenAddress, socket_address: SocketAddr, source: io::Error },
}

/// Listens on everything that `address` stands for, one listener for each socket address. The sockets are
/// nonblocking.
///
/// An address of a name that this machine does not have, as `localhost`'s `::1` where IPv6 is off, is passed
/// over when another one is there.
///
/// # Errors
///
/// Names `flag`, the address and what is wrong.
pub(crate) async fn bind_all(
    address: &ListenAddress,
    flag: &'static str,
) -> Result<Vec<TcpListener>, BindError> {
    let resolve_error = |source| BindError::Resolve { flag, address: address.clone(), source };
    let socket_addresses = address.resolve().await.map_err(resolve_error)?;
    let mut listeners = Vec::new();
    let mut missing = None;
    for socket_address in socket_addresses {
        match bind(socket_address).await {
            Ok(listener) => listeners.push(listener),
            Err(error) if is_missing(&error) => missing = Some((socket_address, error)),
            Err(source) => {
                return Err(BindError::Bind { flag, address: address.clone(), socket_address, source });
            }
        }
    }
    match missing {
        Some((socket_address, source)) if listeners.is_empty() => {
            Err(BindError::Bind { flag, address: address.clone(), socket_address, source })
        }
        _ => Ok(listeners),
    }
}

/// What listeners listen on, for the log.
pub(crate) fn addresses(listeners: &[TcpListener]) -> String {
    let addresses = listeners.iter().filter_map(|listener| listener.local_addr().ok());
    addresses.map(|address: SocketAddr| address.to_string()).collect::<Vec<_>>().join(",")
}

/// Listens on one address, waiting a moment for a predecessor's listener to go.
async fn bind(address: SocketAddr) -> io::Result<TcpListener> {
    let deadline = Instant::now() + IN_USE_RETRY_TIME;
    loop {
        let error = match listen(address) {
            Ok(listener) => return Ok(listener),
            Err(error) => error,
        };
        if error.kind() != io::ErrorKind::AddrInUse || Instant::now() >= deadline {
            return Err(error);
        }
        tokio::time::sleep(IN_USE_RETRY_INTERVAL).await;
    }
}

/// Whether an address is free that this process may listen on. It is bound for a moment, and nothing listens.
///
/// # Errors
///
/// When this process could not listen there even if nobody else did.
pub(crate) fn is_free(address: SocketAddr) -> io::Result<bool> {
    match with_or_without_ipv6(address, bind_only) {
        Ok(_) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::AddrInUse => Ok(false),
        Err(error) => Err(error),
    }
}

fn listen(address: SocketAddr) -> io::Result<TcpListener> {
    with_or_without_ipv6(address, open)
}

fn with_or_without_ipv6<T>(address: SocketAddr, open: impl Fn(SocketAddr) -> io::Result<T>) -> io::Result<T> {
    match (open(address), ipv4_instead(address)) {
        (Err(error), Some(ipv4)) if is_missing(&error) => open(ipv4),
        (opened, _) => opened,
    }
}

/// What to listen on when the machine has no IPv6.
fn ipv4_instead(address: SocketAddr) -> Option<SocketAddr> {
    (address.is_ipv6() && address.ip().is_unspecified())
        .then(|| (Ipv4Addr::UNSPECIFIED, address.port()).into())
}

/// Whether the error says that this machine does not have the address.
pub(crate) fn is_missing(error: &io::Error) -> bool {
    use rustix::io::Errno;
    let missing = [Errno::AFNOSUPPORT, Errno::ADDRNOTAVAIL].map(|errno| Some(errno.raw_os_error()));
    missing.contains(&error.raw_os_error())
}

/// One attempt. Without SO_REUSEPORT: a second daemon on the port must fail, not share the clients.
fn open(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = bind_only(address)?;
    socket.listen(BACKLOG)?;
    Ok(socket.into())
}

fn bind_only(address: SocketAddr) -> io::Result<Socket> {
    // `Socket::new` sets CLOEXEC.
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    socket.set_nonblocking(true)?;
    if address.is_ipv6() {
        // The wildcard takes IPv4 too. Other addresses do not care.
        socket.set_only_v6(false)?;
    }
    socket.set_reuse_address(true)?;
    // Accepted sockets inherit it.
    socket.set_tcp_nodelay(true)?;
    socket.bind(&address.into())?;
    Ok(socket)
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv6Addr, TcpStream};

    use super::*;

    fn address(text: &str) -> ListenAddress {
        text.parse().unwrap()
    }

    async fn port_of_first(text: &str) -> (Vec<TcpListener>, u16) {
        let listeners = bind_all(&address(text), "-listen").await.unwrap();
        let port = listeners[0].local_addr().unwrap().port();
        (listeners, port)
    }

    #[tokio::test]
    async fn every_spelling_of_the_wildcard_takes_ipv4_and_ipv6() {
        for text in [":0", "0.0.0.0:0", "[::]:0"] {
            let (listeners, port) = port_of_first(text).await;
            assert_eq!(listeners.len(), 1);
            TcpStream::connect((Ipv4Addr::LOCALHOST, port)).unwrap();
            if listeners[0].local_addr().unwrap().is_ipv6() {
                TcpStream::connect((Ipv6Addr::LOCALHOST, port)).unwrap();
            }
        }
    }

    #[tokio::test]
    async fn a_port_in_use_is_an_error_that_names_the_flag_and_the_address() {
        let (_listeners, port) = port_of_first("127.0.0.1:0").await;
        let text = format!("127.0.0.1:{port}");
        let error = bind_all(&address(&text), "-ops-listen").await.unwrap_err().to_string();
        assert!(error.starts_with(&format!("-ops-listen {text}: ")), "{error}");
        assert!(error.contains("in use"), "{error}");
    }

    #[tokio::test]
    async fn a_port_that_comes_free_within_a_moment_is_taken() {
        let (listeners, port) = port_of_first("127.0.0.1:0").await;
        let address = address(&format!("127.0.0.1:{port}"));
        let bound = bind_all(&address, "-listen");
        let freed = async {
            tokio::time::sleep(IN_USE_RETRY_INTERVAL * 2).await;
            drop(listeners);
        };
        assert_eq!(tokio::join!(bound, freed).0.unwrap().len(), 1);
    }

    #[tokio::test]
    async fn a_foreign_address_and_an_unknown_name_are_errors() {
        for text in ["192.0.2.1:0", "no-such-host.invalid:0"] {
            let error = bind_all(&address(text), "-listen").await.unwrap_err().to_string();
            assert!(error.starts_with(&format!("-listen {text}: ")), "{error}");
        }
    }

    #[test]
    fn only_the_wildcard_falls_back_to_ipv4() {
        let ipv4: SocketAddr = "0.0.0.0:7070".parse().unwrap();
        assert_eq!(ipv4_instead("[::]:7070".parse().unwrap()), Some(ipv4));
        assert_eq!(ipv4_instead("[::1]:7070".parse().unwrap()), None);
        assert_eq!(ipv4_instead(ipv4), None);
    }

    #[test]
    fn accepted_sockets_have_nodelay_and_the_listener_does_not_block() {
        let listener = open((Ipv4Addr::LOCALHOST, 0).into()).unwrap();
        assert_eq!(listener.accept().unwrap_err().kind(), io::ErrorKind::WouldBlock);
        let _client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (accepted, _) = listener.accept().unwrap();
        assert!(accepted.nodelay().unwrap());
    }
}
