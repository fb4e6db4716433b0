//! One claim on one TCP connection, on tokio.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::time::Duration;

use protocol::{Acquire, ERROR_BYTES_MAX, Lease, LockName};
use tokio::net::TcpStream;

use crate::claim::{Claim, Event, Transmit};
use crate::clock::{Alarm, boottime_ns};
use crate::config::Config;
use crate::dial::dial;
use crate::error::{Closed, Error};
use crate::standing::Standing;
use crate::transport::Transport;

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
    transport: Transport,
    claim: Claim,
    /// What others see of the claim.
    standing: Arc<Standing>,
    alarm: Alarm,
    /// The frame being written, and how much of it is. One is enough: no frame is due before the last is
    /// answered.
    outgoing: Option<(Transmit, usize)>,
    /// Whether the server has sent anything.
    has_heard: bool,
}

impl Connection {
    /// Connects to `host:port` (each address that it resolves to is tried, in order) and begins the claim.
    ///
    /// # Errors
    ///
    /// [`Error::Dial`], [`Error::Local`].
    pub async fn open(address: &str, acquire: Acquire) -> Result<Self, Error> {
        Self::open_as(&Config::new(address), acquire).await
    }

    /// The same as configured: over TLS, or with a dial timeout of its own.
    ///
    /// # Errors
    ///
    /// [`Error::Dial`], [`Error::Local`].
    pub async fn open_as(config: &Config, acquire: Acquire) -> Result<Self, Error> {
        Self::open_with(config, acquire, 0).await
    }

    /// The same, as configured, for callers that [try again](crate::Retry): the round of the addresses begins
    /// at number `attempt`, modulo their number.
    ///
    /// # Errors
    ///
    /// [`Error::Dial`], [`Error::Local`].
    pub async fn open_with(config: &Config, acquire: Acquire, attempt: usize) -> Result<Self, Error> {
        let transport = dial(config, attempt).await?;
        let alarm = Alarm::new().map_err(|source| Error::dial(&config.address, source))?;
        let standing = Arc::new(Standing::new(acquire.lease));
        let claim = Claim::new(boottime_ns(), acquire);
        Ok(Self { transport, claim, standing, alarm, outgoing: None, has_heard: false })
    }

    /// Drives the claim until something happens to it. Heartbeats go out only while this is awaited; it may
    /// be dropped and called again at any time. After [`Event::Lost`] it never returns.
    pub async fn next_event(&mut self) -> Event {
        loop {
            let now_ns = boottime_ns();
            self.claim.handle_timeout(now_ns);
            if let Some(event) = self.poll_event() {
                return event;
            }
            if self.outgoing.is_none() {
                self.outgoing = self.claim.poll_transmit(now_ns).map(|frame| (frame, 0));
            }
            self.write();
            if let Some(event) = self.poll_event() {
                return event;
            }
            let Some(wake_ns) = self.claim.poll_timeout() else { return std::future::pending().await };
            let is_writing = self.outgoing.is_some() || self.transport.wants_write();
            let socket = self.transport.socket();
            // An error of the waiting itself shows again, with its cause, in the read or write that follows.
            tokio::select! {
                _ = socket.readable() => self.read(),
                _ = socket.writable(), if is_writing => {}
                () = self.alarm.wait_until(wake_ns) => {}
            }
        }
    }

    /// What others see of the claim. It is up to date whenever [`Connection::next_event`] waits or has
    /// returned.
    pub(crate) fn standing(&self) -> &Arc<Standing> {
        &self.standing
    }

    pub(crate) fn socket(&self) -> &Arc<TcpStream> {
        self.transport.socket()
    }

    /// Publishes the claim before anybody can act on what happened to it.
    fn poll_event(&mut self) -> Option<Event> {
        match self.claim.poll_timeout() {
            Some(_) => self.standing.confirm(self.claim.confirmed_ns()),
            None => self.standing.lose(),
        }
        self.claim.poll_event()
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
        loop {
            match self.try_write() {
                Ok(()) => return,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => {
                    self.outgoing = None;
                    // The server may have said why before it closed.
                    self.read();
                    self.claim.connection_closed(boottime_ns(), closed(&error));
                    return;
                }
            }
        }
    }

    fn try_write(&mut self) -> io::Result<()> {
        while let Some((frame, written)) = &mut self.outgoing {
            *written += self.transport.try_write(&frame[*written..])?;
            if *written == frame.len() {
                self.outgoing = None;
            }
        }
        self.transport.try_flush()
    }

    /// Whether the first bytes that the server ever sent are no frame but TLS.
    fn is_answered_in_tls(&self, received: &[u8]) -> bool {
        !self.has_heard && self.transport.is_plain() && received[0] == TLS_ALERT
    }

    /// Reads all that is there. That is little: a server's second frame without a heartbeat ends the claim.
    fn read(&mut self) {
        let mut received = [0; ERROR_BYTES_MAX];
        while self.claim.poll_timeout().is_some() {
            let outcome = self.transport.try_read(&mut received);
            let now_ns = boottime_ns();
            match outcome {
                Ok(0) => self.claim.connection_closed(now_ns, Closed::ByServer),
                Ok(_) if self.is_answered_in_tls(&received) => {
                    self.claim.connection_closed(now_ns, Closed::SpeaksTls);
                }
                Ok(bytes) => {
                    self.has_heard = true;
                    self.claim.handle_input(now_ns, &received[..bytes]);
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => self.claim.connection_closed(now_ns, closed(&error)),
            }
        }
    }
}

/// The first byte of an alert, with which a server of TLS answers what is none (RFC 8446, 5.1).
const TLS_ALERT: u8 = 21;

fn closed(error: &io::Error) -> Closed {
    #[cfg(feature = "tls")]
    if let Some(alert) = crate::tls::alert(error) {
        return Closed::Refused(alert);
    }
    Closed::Broken(error.kind())
}

/// For a process that keeps the connection open a little longer than this one: nothing may be read from it or
/// written to it.
impl AsFd for Connection {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.transport.socket().as_fd()
    }
}

/// Nobody confirms a claim whose connection is closed.
impl Drop for Connection {
    fn drop(&mut self) {
        self.standing.lose();
    }
}
