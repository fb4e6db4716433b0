//! What passes between server and agent: JSON messages over a Unix socket, and one descriptor.
//!
//! A message is its length in four bytes, little-endian, and the JSON. Nothing here waits for the other side
//! to read: a connection that takes no more has ended.

use std::io::{self, ErrorKind, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::PathBuf;

use ha::fence::Levels;
use ha::identity::{HostId, Incarnation};
use ha::term::NodeId;
use rustix::cmsg_space;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags, recvmsg, sendmsg,
};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use tokio::io::Interest;
use tokio::net::UnixStream;

/// The version of this protocol. Server and agent are of one package, and each is restarted for itself: for a
/// moment they may be of two.
pub(crate) const VERSION: u32 = 1;

/// The longest message: an answer of the peer's endpoint, and what is around it.
const MESSAGE_BYTES_MAX: usize = 1 << 17;

/// Bytes of a message's length.
const LENGTH_BYTES: usize = 4;

/// Who a server is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hello {
    /// Its node id.
    pub node: NodeId,
    /// Its host.
    pub host: HostId,
    /// Its boot, and when its process started.
    pub incarnation: Incarnation,
    /// Its fence levels.
    pub fencers: Levels,
    /// The TCP ports that it serves locks on. While somebody listens there, nobody says that it is gone.
    pub ports: Vec<u16>,
}

/// The first message of a server. Its version is read before the rest of it.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Opening<H> {
    pub(crate) version: u32,
    #[serde(flatten)]
    pub(crate) hello: H,
}

/// What else a server says.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum FromServer {
    /// The control thread runs.
    Beat {
        /// CLOCK_BOOTTIME, ns, when it was sent: a beat that lay in a queue is as old as it is.
        sent_ns: u64,
        /// `/readyz` is 200.
        ready: bool,
    },
    /// The answer to a question.
    Answer {
        id: u64,
        /// As it goes to the peer.
        answer: Box<RawValue>,
    },
}

/// What an agent says.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum FromAgent {
    /// The server is known now.
    Welcome {
        /// What the server takes away when this connection ends.
        health_file: PathBuf,
    },
    /// It is not, and why. The connection ends.
    Refused { why: String },
    /// After each beat: the agent runs.
    Alive,
    /// The peer asks.
    Ask {
        id: u64,
        /// As it came.
        request: Box<RawValue>,
    },
}

/// One side of a connection.
#[derive(Debug)]
pub(crate) struct Connection {
    stream: UnixStream,
    received: Vec<u8>,
}

impl Connection {
    pub(crate) fn new(stream: UnixStream) -> Self {
        Self { stream, received: Vec::new() }
    }

    /// Sends a message. Both sides read all the time: one whose buffer is full has been away for long.
    pub(crate) fn send(&self, message: &impl Serialize) -> io::Result<()> {
        let bytes = framed(message)?;
        match self.stream.try_write(&bytes) {
            Ok(len) if len == bytes.len() => Ok(()),
            Ok(_) => Err(ErrorKind::WriteZero.into()),
            Err(error) => Err(error),
        }
    }

    /// Sends a first message, and a descriptor with it.
    pub(crate) async fn send_with(
        &self,
        message: &impl Serialize,
        descriptor: BorrowedFd<'_>,
    ) -> io::Result<()> {
        let bytes = framed(message)?;
        let descriptors = [descriptor];
        let send = || {
            let mut space = [MaybeUninit::uninit(); cmsg_space!(ScmRights(1))];
            let mut ancillary = SendAncillaryBuffer::new(&mut space);
            assert!(ancillary.push(SendAncillaryMessage::ScmRights(&descriptors)), "there is space for one");
            Ok(sendmsg(&self.stream, &[IoSlice::new(&bytes)], &mut ancillary, SendFlags::NOSIGNAL)?)
        };
        let len = self.stream.async_io(Interest::WRITABLE, send).await?;
        if len == bytes.len() { Ok(()) } else { Err(ErrorKind::WriteZero.into()) }
    }

    /// The first message, and the descriptor that came with it.
    pub(crate) async fn receive_with<T: DeserializeOwned>(&mut self) -> io::Result<(T, OwnedFd)> {
        let mut descriptor = None;
        loop {
            if let Some(message) = self.take()? {
                let missing = || io::Error::new(ErrorKind::InvalidData, "no descriptor came with it");
                return Ok((message, descriptor.ok_or_else(missing)?));
            }
            let stream = &self.stream;
            let (bytes, came) =
                stream.async_io(Interest::READABLE, || receive_descriptor(stream.as_fd())).await?;
            self.received.extend_from_slice(&bytes);
            descriptor = descriptor.or(came);
        }
    }

    /// The next message. What has come stays here when this is dropped.
    ///
    /// # Errors
    ///
    /// The other side has ended the connection, or sends something else.
    pub(crate) async fn receive<T: DeserializeOwned>(&mut self) -> io::Result<T> {
        loop {
            if let Some(message) = self.take()? {
                return Ok(message);
            }
            self.stream.readable().await?;
            match self.stream.try_read_buf(&mut self.received) {
                Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
                Ok(_) => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// A message that is here as a whole.
    fn take<T: DeserializeOwned>(&mut self) -> io::Result<Option<T>> {
        let Some((length, rest)) = self.received.split_first_chunk::<LENGTH_BYTES>() else {
            return Ok(None);
        };
        let length = u32::from_le_bytes(*length) as usize;
        if length > MESSAGE_BYTES_MAX {
            return Err(io::Error::new(ErrorKind::InvalidData, "no message is that long"));
        }
        let Some(json) = rest.get(..length) else {
            return Ok(None);
        };
        let message = serde_json::from_slice(json);
        self.received.drain(..LENGTH_BYTES + length);
        Ok(Some(message?))
    }
}

fn framed(message: &impl Serialize) -> io::Result<Vec<u8>> {
    let mut bytes = vec![0; LENGTH_BYTES];
    serde_json::to_writer(&mut bytes, message)?;
    let length = bytes.len() - LENGTH_BYTES;
    if length > MESSAGE_BYTES_MAX {
        return Err(io::Error::new(ErrorKind::InvalidData, "the message is too long"));
    }
    let length = u32::try_from(length).expect("it is at most MESSAGE_BYTES_MAX");
    bytes[..LENGTH_BYTES].copy_from_slice(&length.to_le_bytes());
    Ok(bytes)
}

fn receive_descriptor(stream: BorrowedFd<'_>) -> io::Result<(Vec<u8>, Option<OwnedFd>)> {
    let mut bytes = vec![0; 4096];
    let mut space = [MaybeUninit::uninit(); cmsg_space!(ScmRights(1))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let flags = RecvFlags::CMSG_CLOEXEC | RecvFlags::DONTWAIT;
    let received = recvmsg(stream, &mut [IoSliceMut::new(&mut bytes)], &mut ancillary, flags)?;
    let descriptor = ancillary.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut descriptors) => descriptors.next(),
        _ => None,
    });
    if received.bytes == 0 {
        return Err(ErrorKind::UnexpectedEof.into());
    }
    bytes.truncate(received.bytes);
    Ok((bytes, descriptor))
}
