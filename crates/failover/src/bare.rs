//! A client that was written from the page of the protocol alone.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use client::boottime_ns;

/// How long a connection or an answer is waited for. Short: what is measured is the server's gap.
const PATIENCE: Duration = Duration::from_millis(100);

/// A claim that was granted.
pub struct Claim {
    stream: TcpStream,
    /// Its token.
    pub token: u64,
    /// When ACQUIRE was sent.
    pub sent_ns: u64,
    /// When ACQUIRED was read.
    pub read_ns: u64,
}

/// Why there is no claim, or not any more.
#[derive(Debug, PartialEq, Eq)]
pub enum Failed {
    /// No connection, or it ended.
    Connection,
    /// No answer in time.
    Silence,
    /// An error of the server: its code.
    Refused(u8),
    /// Something that the protocol does not have.
    Nonsense(u8),
}

/// Claims a lock; one that is held by another is not waited for.
pub fn acquire(address: SocketAddr, name: &str, lease: Duration) -> Result<Claim, Failed> {
    let stream = TcpStream::connect_timeout(&address, PATIENCE).map_err(|_| Failed::Connection)?;
    let set = stream.set_read_timeout(Some(PATIENCE)).and_then(|()| stream.set_nodelay(true));
    set.map_err(|_| Failed::Connection)?;
    let mut claim = Claim { stream, token: 0, sent_ns: boottime_ns(), read_ns: 0 };
    let lease_ms = u32::try_from(lease.as_millis()).expect("a short lease");
    let length = u16::try_from(name.len()).expect("a short name");
    let mut frame = vec![0x01, 1];
    frame.extend(lease_ms.to_be_bytes());
    frame.extend(length.to_be_bytes());
    frame.extend(name.as_bytes());
    claim.send(&frame)?;
    claim.token = claim.answer()?;
    claim.read_ns = boottime_ns();
    Ok(claim)
}

impl Claim {
    /// One heartbeat: when it was sent and when its answer was read.
    pub fn heartbeat(&mut self) -> Result<(u64, u64), Failed> {
        let sent_ns = boottime_ns();
        self.send(&[0x02])?;
        let token = self.answer()?;
        // A claim has one token for its life.
        if token != self.token { Err(Failed::Nonsense(0x12)) } else { Ok((sent_ns, boottime_ns())) }
    }

    fn send(&mut self, frame: &[u8]) -> Result<(), Failed> {
        self.stream.write_all(frame).map_err(|_| Failed::Connection)
    }

    /// The token of an ACQUIRED.
    fn answer(&mut self) -> Result<u64, Failed> {
        let [kind] = self.read()?;
        match kind {
            0x12 => Ok(u64::from_be_bytes(self.read()?)),
            0x13 => {
                let [code] = self.read()?;
                Err(Failed::Refused(code))
            }
            other => Err(Failed::Nonsense(other)),
        }
    }

    fn read<const N: usize>(&mut self) -> Result<[u8; N], Failed> {
        let mut bytes = [0; N];
        self.stream.read_exact(&mut bytes).map_err(|error| match error.kind() {
            ErrorKind::WouldBlock | ErrorKind::TimedOut => Failed::Silence,
            _ => Failed::Connection,
        })?;
        Ok(bytes)
    }
}
