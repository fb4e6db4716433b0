//! A socket during connection set-up: readiness from tokio-uring, bytes through plain system calls.
//!
//! The descriptor must leave this loop for a shard, and an io_uring read that is dropped in flight is not cancelled
//! and takes its bytes with it. A readiness poll takes nothing: dropped or late, it harms no one.

use std::io;
use std::net::Shutdown;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::rc::Rc;

use io_uring_06::{cqueue, opcode, types};
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags};
use tokio::time::{Instant, timeout_at};
use tokio_uring::{OneshotOutputTransform, UnsubmittedOneshot};

/// A descriptor with the operations of the intake. Each operation in flight shares it.
#[derive(Debug)]
pub(super) struct Socket(Rc<OwnedFd>);

impl Socket {
    pub(super) fn new(fd: OwnedFd) -> Self {
        Self(Rc::new(fd))
    }

    /// The descriptor, unless an operation on it is still in flight.
    pub(super) fn into_fd(self) -> Option<OwnedFd> {
        Rc::into_inner(self.0)
    }

    /// Waits until the socket is readable, was closed by its peer, or has an error.
    pub(super) async fn readable(&self) -> io::Result<()> {
        let interest = u32::from(PollFlags::IN.bits());
        let poll = opcode::PollAdd::new(types::Fd(self.0.as_raw_fd()), interest).build();
        UnsubmittedOneshot::new(Rc::clone(&self.0), Polled, poll).submit().await
    }

    /// Whether the socket is readable now; for a listener, whether a connection waits.
    pub(super) fn is_readable(&self) -> bool {
        let mut poll = [PollFd::new(&self.0, PollFlags::IN)];
        rustix::event::poll(&mut poll, Some(&Timespec::default())).is_ok_and(|ready| ready > 0)
    }

    /// Receives what is there, waiting for it until `deadline`; 0 at the end of the stream.
    pub(super) async fn receive(&self, buffer: &mut [u8], deadline: Instant) -> io::Result<usize> {
        loop {
            match rustix::net::recv(&self.0, &mut *buffer, RecvFlags::DONTWAIT) {
                Ok((received, _)) => return Ok(received),
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => match timeout_at(deadline, self.readable()).await {
                    Ok(polled) => polled?,
                    Err(_) => {
                        self.shut_down(Shutdown::Both);
                        return Err(io::ErrorKind::TimedOut.into());
                    }
                },
                Err(errno) => return Err(errno.into()),
            }
        }
    }

    /// Sends a frame into the still empty output of a new connection; what does not fit at once is given up.
    pub(super) fn send(&self, frame: &[u8]) -> io::Result<usize> {
        Ok(rustix::net::send(&self.0, frame, SendFlags::DONTWAIT | SendFlags::NOSIGNAL)?)
    }

    /// Shuts the connection down; an operation in flight on it completes.
    pub(super) fn shut_down(&self, how: Shutdown) {
        let how = match how {
            Shutdown::Read => rustix::net::Shutdown::Read,
            Shutdown::Write => rustix::net::Shutdown::Write,
            Shutdown::Both => rustix::net::Shutdown::Both,
        };
        // Fails only for a connection that is gone already.
        let _ = rustix::net::shutdown(&self.0, how);
    }
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// Turns a poll's completion into its result and lets the descriptor go.
struct Polled;

impl OneshotOutputTransform for Polled {
    type Output = io::Result<()>;
    type StoredData = Rc<OwnedFd>;

    fn transform_oneshot_output(self, _fd: Rc<OwnedFd>, completion: cqueue::Entry) -> io::Result<()> {
        match completion.result() {
            error @ ..0 => Err(io::Error::from_raw_os_error(-error)),
            _ => Ok(()),
        }
    }
}
