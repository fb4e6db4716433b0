//! A non-blocking byte stream to the server: TCP, or TLS over it.

use std::io;
use std::sync::Arc;

use tokio::net::TcpStream;

#[cfg(feature = "tls")]
use crate::tls::Session;

/// A connection. Others may share its socket, to close the connection under it.
#[derive(Debug)]
pub(crate) struct Transport {
    socket: Arc<TcpStream>,
    #[cfg(feature = "tls")]
    tls: Option<Box<Session>>,
}

impl Transport {
    pub(crate) fn plain(socket: TcpStream) -> Self {
        Self {
            socket: Arc::new(socket),
            #[cfg(feature = "tls")]
            tls: None,
        }
    }

    #[cfg(feature = "tls")]
    pub(crate) fn tls(socket: TcpStream, session: Session) -> Self {
        Self { socket: Arc::new(socket), tls: Some(Box::new(session)) }
    }

    pub(crate) fn socket(&self) -> &Arc<TcpStream> {
        &self.socket
    }

    pub(crate) fn is_plain(&self) -> bool {
        #[cfg(feature = "tls")]
        return self.tls.is_none();
        #[cfg(not(feature = "tls"))]
        true
    }

    /// Reads what is there; `WouldBlock` once nothing is, and then the socket's readiness tells when to try
    /// again.
    pub(crate) fn try_read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        #[cfg(feature = "tls")]
        if let Some(session) = &mut self.tls {
            return session.try_read(&self.socket, buffer);
        }
        self.socket.try_read(buffer)
    }

    /// Takes over some of these bytes; [`Transport::try_flush`] brings them out.
    pub(crate) fn try_write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        #[cfg(feature = "tls")]
        if let Some(session) = &mut self.tls {
            return session.take(bytes);
        }
        self.socket.try_write(bytes)
    }

    /// Sends what was taken over; `WouldBlock` while the socket takes no more.
    pub(crate) fn try_flush(&mut self) -> io::Result<()> {
        #[cfg(feature = "tls")]
        if let Some(session) = &mut self.tls {
            return session.try_flush(&self.socket);
        }
        Ok(())
    }

    /// Whether something that was taken over is not sent yet.
    pub(crate) fn wants_write(&self) -> bool {
        #[cfg(feature = "tls")]
        if let Some(session) = &self.tls {
            return session.wants_write();
        }
        false
    }
}
