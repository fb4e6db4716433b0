//! The byte stream of a connection in set-up, plain or through TLS.

use std::io;
use std::net::Shutdown;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use protocol::{ErrorCode, ErrorFrame};
use tokio::time::Instant;

use super::socket::{Socket, WeakSocket};
use crate::settings::TLS_CLIENT_CA;

/// Read at once of what comes in the clear: room for the longest ACQUIRE and for some heartbeats that come
/// glued to it.
const READ_BYTES: usize = 320;

const _: () = assert!(READ_BYTES >= protocol::ACQUIRE_BYTES_MAX);

/// Read at once during a handshake: a client's flight with a chain of certificates is some KB.
const HANDSHAKE_READ_BYTES: usize = 4096;

/// A connection in set-up.
#[derive(Debug)]
pub(super) struct Stream {
    socket: Socket,
    tls: Option<Box<tls::Session>>,
    has_spoken: bool,
}

/// A stream that brings no more bytes.
#[derive(Debug, thiserror::Error)]
pub(super) enum Failure {
    #[error("closed by the client")]
    Closed,
    #[error("io-timeout")]
    Timeout,
    /// Shut down by us.
    #[error("it was silent and made room: too many connections are in set-up")]
    MadeRoom,
    #[error("connection error: {0}")]
    Connection(io::Error),
    #[error("{}", explained(.0))]
    Tls(tls::Fault),
}

/// With the flag that has to do with it.
fn explained(fault: &tls::Fault) -> String {
    match fault {
        tls::Fault::NoTls => format!("{fault}: monolock run needs --tls-ca"),
        _ if fault.is_of_authorities() => format!("{fault} ({})", TLS_CLIENT_CA.flag.name),
        _ => fault.to_string(),
    }
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::TimedOut => Self::Timeout,
            _ => Self::Connection(error),
        }
    }
}

impl Stream {
    pub(super) fn new(socket: Socket, tls: Option<&tls::Config>) -> Self {
        Self { socket, tls: tls.map(|config| Box::new(tls::Session::new(config))), has_spoken: false }
    }

    pub(super) fn downgrade(&self) -> WeakSocket {
        self.socket.downgrade()
    }

    /// Whether nothing can be said to the peer yet.
    pub(super) fn is_handshaking(&self) -> bool {
        self.tls.as_ref().is_some_and(|tls| tls.is_handshaking())
    }

    /// Whether the peer has sent anything. One that has not, as a probe of the port, has failed nothing,
    /// however it ends.
    pub(super) fn has_spoken(&self) -> bool {
        self.has_spoken
    }

    /// Whether what comes is the protocol itself.
    pub(super) fn is_plain(&self) -> bool {
        self.tls.is_none()
    }

    /// Who the client's certificate says it is.
    pub(super) fn identity(&self) -> Result<Option<Arc<str>>, tls::Fault> {
        self.tls.as_ref().map_or(Ok(None), |tls| tls.identity())
    }

    /// Appends to `plaintext` what comes next in the clear, at least one byte. A handshake goes on the while.
    pub(super) async fn receive(
        &mut self,
        plaintext: &mut Vec<u8>,
        deadline: Instant,
    ) -> Result<(), Failure> {
        let before = plaintext.len();
        let mut output = Vec::new();
        loop {
            let received = self.receive_what_is_there(plaintext, &mut output);
            // An alert too, which tells the peer what is wrong.
            let sent = self.socket.send_all(&output, deadline).await;
            output.clear();
            let received = received?;
            sent?;
            if plaintext.len() > before {
                return Ok(());
            }
            if self.tls.as_ref().is_some_and(|tls| tls.is_closed_by_peer()) {
                return Err(Failure::Closed);
            }
            if !received {
                self.socket.readable_until(deadline).await?;
            } else if Instant::now() < deadline {
                // A peer that always has more to say gets no more than its turn.
                tokio::task::yield_now().await;
            } else {
                return Err(Failure::Timeout);
            }
        }
    }

    /// Whether anything was there.
    fn receive_what_is_there(
        &mut self,
        plaintext: &mut Vec<u8>,
        output: &mut Vec<u8>,
    ) -> Result<bool, Failure> {
        let mut buffer = [0; HANDSHAKE_READ_BYTES];
        let len_max = if self.is_handshaking() { HANDSHAKE_READ_BYTES } else { READ_BYTES };
        let Some(len) = self.socket.receive(&mut buffer[..len_max])? else { return Ok(false) };
        if len == 0 {
            return Err(Failure::Closed);
        }
        self.has_spoken = true;
        match &mut self.tls {
            None => plaintext.extend_from_slice(&buffer[..len]),
            Some(tls) => tls.receive(&buffer[..len], plaintext, output).map_err(Failure::Tls)?,
        }
        Ok(true)
    }

    /// Sends an ERROR, as the last thing that the peer gets.
    pub(super) fn send_error(&mut self, code: ErrorCode) -> io::Result<()> {
        let frame = ErrorFrame::new(code);
        match &mut self.tls {
            None => self.socket.send(&frame)?,
            Some(tls) => {
                let mut output = Vec::new();
                tls.send(&frame, &mut output);
                tls.close_notify(&mut output);
                self.socket.send(&output)?
            }
        };
        self.shut_down_write();
        Ok(())
    }

    /// Nothing more is sent.
    pub(super) fn shut_down_write(&self) {
        self.socket.shut_down(Shutdown::Write);
    }

    /// Throws away what still comes, until the peer closes: at most `bytes_max`, until `deadline`.
    pub(super) async fn drain(&self, bytes_max: usize, deadline: Instant) {
        let mut buffer = [0; READ_BYTES];
        let mut left = bytes_max;
        while left > 0 && Instant::now() < deadline {
            match self.socket.receive(&mut buffer) {
                Ok(Some(received @ 1..)) => left = left.saturating_sub(received),
                Ok(Some(0)) | Err(_) => return,
                Ok(None) => {
                    if self.socket.readable_until(deadline).await.is_err() {
                        return;
                    }
                }
            }
        }
    }

    /// What moves to the shard.
    pub(super) fn into_parts(self) -> (OwnedFd, Option<Box<tls::Session>>) {
        let socket = self.socket.into_fd().expect("every operation on the socket has completed");
        (socket, self.tls)
    }
}
