//! One claim on one TCP connection, on tokio.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use protocol::{Acquire, ERROR_BYTES_MAX, Lease, LockName};
use tokio::net::{TcpStream, lookup_host};
use tokio::time::timeout;

use crate::claim::{Claim, Event, Transmit};
use crate::clock::{Alarm, boottime_ns};
use crate::error::{Closed, Error};

/// How long one address, and the look-up of a name, may take: SYNs at 0, 1 and 3 s, and an answer to the last.
pub const DIAL_TIMEOUT: Duration = Duration::from_secs(5);

/// What to ask a server for.
///
/// # Errors
///
/// [`Error::InvalidName`], [`Error::InvalidLease`].
pub fn request(name: &str, lease: Duration) -> Result<Acquire, Error> {
    let name = LockName::new(name).map_err(Error::InvalidName)?;
    let lease = Lease::from_duration(lease).ok_or(Error::InvalidLease)?;
    Ok(Acquire { name, lease })
}

/// A connection and the claim on it. Dropping it closes the connection, and that releases the lock.
///
/// A lost claim's connection stays open, silent, until it is dropped: closing it tells the server to pass the
/// lock on at once, which the server must not hear before the guarded work has stopped.
#[derive(Debug)]
pub struct Connection {
    stream: TcpStream,
    claim: Claim,
    alarm: Alarm,
    /// The frame being written, and how much of it is. One is enough: no frame is due before the last is answered.
    outgoing: Option<(Transmit, usize)>,
}

impl Connection {
    /// Connects to `host:port` (each address that it resolves to is tried, in order) and begins the claim.
    ///
    /// # Errors
    ///
    /// [`Error::Dial`].
    pub async fn open(address: &str, acquire: Acquire) -> Result<Self, Error> {
        let dial = |source| Error::Dial { address: address.to_owned(), source };
        let addresses = within_dial_timeout(lookup_host(address)).await.map_err(dial)?;
        let stream = connect(addresses).await.map_err(dial)?;
        let alarm = Alarm::new().map_err(dial)?;
        Ok(Self { stream, claim: Claim::new(boottime_ns(), acquire), alarm, outgoing: None })
    }

    /// Drives the claim until something happens to it. Heartbeats go out only while this is awaited; it may be
    /// dropped and called again at any time. After [`Event::Lost`] it never returns.
    pub async fn next_event(&mut self) -> Event {
        loop {
            let now_ns = boottime_ns();
            self.claim.handle_timeout(now_ns);
            if let Some(event) = self.claim.poll_event() {
                return event;
            }
            if self.outgoing.is_none() {
                self.outgoing = self.claim.poll_transmit(now_ns).map(|frame| (frame, 0));
            }
            self.write();
            if let Some(event) = self.claim.poll_event() {
                return event;
            }
            let Some(wake_ns) = self.claim.poll_timeout() else { return std::future::pending().await };
            // An error of the waiting itself shows again, with its cause, in the read or write that follows.
            tokio::select! {
                _ = self.stream.readable() => self.read(),
                _ = self.stream.writable(), if self.outgoing.is_some() => {}
                () = self.alarm.wait_until(wake_ns) => {}
            }
        }
    }

    /// True while the lock may be used: now < confirmed + 0.8 × lease.
    pub fn is_held(&self) -> bool {
        self.claim.is_held(boottime_ns())
    }

    /// As of when the claim is confirmed, in nanoseconds of CLOCK_BOOTTIME.
    pub fn confirmed_ns(&self) -> u64 {
        self.claim.confirmed_ns()
    }

    fn write(&mut self) {
        while let Some((frame, written)) = &mut self.outgoing {
            match self.stream.try_write(&frame[*written..]) {
                Ok(bytes) => *written += bytes,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => {
                    self.outgoing = None;
                    // The server may have said why before it closed.
                    self.read();
                    self.claim.connection_closed(boottime_ns(), Closed::Broken(error.kind()));
                    return;
                }
            }
            if *written == frame.len() {
                self.outgoing = None;
            }
        }
    }

    /// Reads all that is there. That is little: a server's second frame without a heartbeat ends the claim.
    fn read(&mut self) {
        let mut received = [0; ERROR_BYTES_MAX];
        while self.claim.poll_timeout().is_some() {
            let outcome = self.stream.try_read(&mut received);
            let now_ns = boottime_ns();
            match outcome {
                Ok(0) => self.claim.connection_closed(now_ns, Closed::ByServer),
                Ok(bytes) => self.claim.handle_input(now_ns, &received[..bytes]),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => self.claim.connection_closed(now_ns, Closed::Broken(error.kind())),
            }
        }
    }
}

/// The first of these addresses that takes the connection; else what the last one met.
async fn connect(addresses: impl Iterator<Item = SocketAddr>) -> io::Result<TcpStream> {
    let mut last = io::Error::new(io::ErrorKind::NotFound, "the name has no address");
    for address in addresses {
        match within_dial_timeout(TcpStream::connect(address)).await {
            Ok(stream) => {
                // A heartbeat must not wait for the acknowledgement of the one before.
                stream.set_nodelay(true)?;
                return Ok(stream);
            }
            Err(error) => last = error,
        }
    }
    Err(last)
}

async fn within_dial_timeout<T>(attempt: impl Future<Output = io::Result<T>>) -> io::Result<T> {
    timeout(DIAL_TIMEOUT, attempt).await.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    use std::net::TcpListener;

    #[tokio::test]
    async fn each_address_is_tried_until_one_answers() {
        let refusing = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let answering = listener.local_addr().unwrap();
        let stream = connect([refusing, answering].into_iter()).await.unwrap();
        assert_eq!(stream.peer_addr().unwrap(), answering);
        assert!(stream.nodelay().unwrap());

        let error = connect([refusing, refusing].into_iter()).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::ConnectionRefused);
        assert_eq!(connect([].into_iter()).await.unwrap_err().kind(), io::ErrorKind::NotFound);
    }

    #[test]
    fn a_request_with_a_bad_name_or_lease_is_refused_here() {
        let second = Duration::from_secs(1);
        assert!(matches!(request("", second), Err(Error::InvalidName(_))));
        assert!(matches!(request(&"x".repeat(256), second), Err(Error::InvalidName(_))));
        assert!(matches!(request("x", Duration::ZERO), Err(Error::InvalidLease)));
        assert_eq!(request("x", second).unwrap().lease.as_ms(), 1000);
    }
}
