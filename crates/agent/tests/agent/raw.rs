//! A server that speaks the agent's protocol by its description: for what the real side never says.

use std::io::{ErrorKind, IoSlice, Read, Write};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use rustix::cmsg_space;
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
use rustix::process::{Pid, PidfdFlags, getpid, pidfd_open};
use serde_json::{Value, json};

use crate::node::{Node, boot_ns};

pub(crate) struct RawServer(UnixStream);

impl RawServer {
    pub(crate) fn connect(node: &Node) -> Self {
        let stream = UnixStream::connect(node.file("agent.sock")).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        Self(stream)
    }

    /// Says hello as node a, with something changed, and some descriptor.
    pub(crate) fn hello(
        &mut self,
        node: &Node,
        change: impl FnOnce(&mut Value),
        descriptor: Option<BorrowedFd<'_>>,
    ) -> Option<Value> {
        let mut hello = serde_json::to_value(node.hello()).unwrap();
        hello["version"] = json!(1);
        change(&mut hello);
        let bytes = framed(&hello);
        let descriptors: Vec<_> = descriptor.into_iter().collect();
        let mut space = [MaybeUninit::uninit(); cmsg_space!(ScmRights(1))];
        let mut ancillary = SendAncillaryBuffer::new(&mut space);
        if !descriptors.is_empty() {
            assert!(ancillary.push(SendAncillaryMessage::ScmRights(&descriptors)));
        }
        sendmsg(&self.0, &[IoSlice::new(&bytes)], &mut ancillary, SendFlags::empty()).unwrap();
        self.receive()
    }

    /// A hello that is let in, of this process.
    pub(crate) fn let_in(node: &Node) -> Self {
        let mut server = Self::connect(node);
        let said = server.hello(node, |_| (), Some(pidfd(getpid()).as_fd())).unwrap();
        assert!(said["welcome"].is_object(), "{said}");
        server
    }

    pub(crate) fn send(&mut self, message: &Value) {
        self.0.write_all(&framed(message)).unwrap();
    }

    pub(crate) fn beat(&mut self) {
        self.send(&json!({"beat": {"sent_ns": boot_ns(), "ready": true}}));
    }

    /// The next message; none at the end of the connection.
    pub(crate) fn receive(&mut self) -> Option<Value> {
        let mut length = [0; 4];
        match self.0.read_exact(&mut length) {
            Err(error) if error.kind() == ErrorKind::WouldBlock => panic!("neither a message nor the end"),
            read => read.ok()?,
        }
        let mut json = vec![0; u32::from_le_bytes(length) as usize];
        self.0.read_exact(&mut json).ok()?;
        Some(serde_json::from_slice(&json).unwrap())
    }
}

pub(crate) fn framed(message: &Value) -> Vec<u8> {
    let json = message.to_string();
    let mut bytes = u32::try_from(json.len()).unwrap().to_le_bytes().to_vec();
    bytes.extend_from_slice(json.as_bytes());
    bytes
}

pub(crate) fn pidfd(of: Pid) -> OwnedFd {
    pidfd_open(of, PidfdFlags::empty()).unwrap()
}
