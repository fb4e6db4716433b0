//! The bytes of a session: as they are, or over TLS.

use std::io::{self, Read, Write};
use std::net::TcpStream;

use crate::tls::{Dialer, TlsStream};

pub(super) enum Stream {
    Plain(TcpStream),
    Tls(Box<TlsStream>),
}

impl Stream {
    /// A non-blocking stream on a socket that is blocking, after the handshake if there is one.
    pub(super) fn on(socket: TcpStream, dialer: Option<&Dialer>) -> io::Result<Self> {
        let stream = match dialer {
            None => Self::Plain(socket),
            Some(dialer) => Self::Tls(Box::new(dialer.handshake(socket)?)),
        };
        stream.socket().set_nonblocking(true)?;
        Ok(stream)
    }

    pub(super) fn socket(&self) -> &TcpStream {
        match self {
            Self::Plain(socket) => socket,
            Self::Tls(stream) => &stream.sock,
        }
    }

    /// Sends a frame, which a socket whose answers are awaited takes as a whole.
    pub(super) fn send(&mut self, frame: &[u8]) -> io::Result<()> {
        match self {
            Self::Plain(socket) => socket.write_all(frame),
            Self::Tls(stream) => {
                stream.write_all(frame)?;
                stream.flush()
            }
        }
    }

    pub(super) fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Plain(socket) => socket.read(buffer),
            Self::Tls(stream) => stream.read(buffer),
        }
    }

    /// Whether a read of `len` bytes, less than asked for, shows that nothing more is there. Records of TLS
    /// are whole or not there, so a short read says nothing.
    pub(super) fn is_drained_by(&self, len: usize, asked: usize) -> bool {
        matches!(self, Self::Plain(_)) && len < asked
    }
}
