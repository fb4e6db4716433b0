//! One blocking connection, where a thread waits for one frame and for nothing else.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use protocol::{Acquire, HEARTBEAT, Lease, LockName, ServerFrame, Token, decode_server_frame};

use crate::load::ANSWER_MAX;

/// A claim whose ACQUIRE was sent.
pub(crate) struct Claim {
    socket: TcpStream,
    received: Vec<u8>,
}

impl Claim {
    pub(crate) fn send(server: SocketAddr, name: LockName, lease: Lease) -> Result<Self> {
        let mut socket = TcpStream::connect_timeout(&server, ANSWER_MAX).context("connecting")?;
        socket.set_nodelay(true)?;
        socket.set_read_timeout(Some(ANSWER_MAX))?;
        socket.write_all(&Acquire { name, lease }.encode()).context("sending an ACQUIRE")?;
        Ok(Self { socket, received: Vec::new() })
    }

    /// A claim that was granted at once.
    pub(crate) fn hold(server: SocketAddr, name: LockName, lease: Lease) -> Result<Self> {
        let mut claim = Self::send(server, name, lease)?;
        claim.expect_acquired().context("a claim on a free lock")?;
        Ok(claim)
    }

    /// A claim that has to wait.
    pub(crate) fn queue(server: SocketAddr, name: LockName, lease: Lease) -> Result<Self> {
        let mut claim = Self::send(server, name, lease)?;
        match claim.frame()? {
            ServerFrame::Waiting => Ok(claim),
            other => bail!("a claim on a held lock was answered with {other:?}"),
        }
    }

    /// Changes how long a frame may take, from [`ANSWER_MAX`].
    pub(crate) fn wait_at_most(&self, time: Duration) -> Result<()> {
        self.socket.set_read_timeout(Some(time)).context("SO_RCVTIMEO")
    }

    /// Waits for a frame.
    pub(crate) fn frame(&mut self) -> Result<ServerFrame> {
        loop {
            if let Some((frame, len)) = decode_server_frame(&self.received)? {
                self.received.drain(..len);
                return Ok(frame);
            }
            let mut buffer = [0; 512];
            match self.socket.read(&mut buffer).context("waiting for a frame")? {
                0 => bail!("the server closed the connection"),
                len => self.received.extend_from_slice(&buffer[..len]),
            }
        }
    }

    pub(crate) fn expect_acquired(&mut self) -> Result<Token> {
        match self.frame()? {
            ServerFrame::Acquired(token) => Ok(token),
            other => bail!("{other:?} came instead of ACQUIRED"),
        }
    }

    pub(crate) fn send_heartbeat(&mut self) -> Result<()> {
        self.socket.write_all(&HEARTBEAT).context("sending a heartbeat")
    }

    /// Ends the connection with RST instead of FIN.
    pub(crate) fn reset(self) -> Result<()> {
        socket2::SockRef::from(&self.socket).set_linger(Some(Duration::ZERO)).context("SO_LINGER")
    }
}
