//! A socket during connection set-up: readiness from tokio-uring, bytes through plain system calls.
//!
//! The descriptor must leave this loop for a shard, and an io_uring read that is dropped in flight is not
//! cancelled and takes its bytes with it. A readiness poll takes nothing: dropped or late, it harms no one.

use std::io;
use std::net::Shutdown;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::rc::{Rc, Weak};

use io_uring_06::{cqueue, opcode, types};
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags};
use tokio::time::{Instant, timeout_at};
use tokio_uring::{OneshotOutputTransform, UnsubmittedOneshot};

/// A descriptor with the operations of the intake. Each operation in flight shares it.
#[derive(Debug)]
pub(super) struct Socket(Rc<OwnedFd>);

/// A [`Socket`] seen by somebody who does not keep it open.
#[derive(Debug)]
pub(super) struct WeakSocket(Weak<OwnedFd>);

impl Socket {
    pub(super) fn new(fd: OwnedFd) -> Self {
        Self(Rc::new(fd))
    }

    /// The descriptor, unless an operation on it is still in flight.
    pub(super) fn into_fd(self) -> Option<OwnedFd> {
        Rc::into_inner(self.0)
    }

    pub(super) fn downgrade(&self) -> WeakSocket {
        WeakSocket(Rc::downgrade(&self.0))
    }

    /// Waits until the socket is readable, was closed by its peer, or has an error.
    pub(super) async fn readable(&self) -> io::Result<()> {
        self.ready(PollFlags::IN).await
    }

    async fn ready(&self, interest: PollFlags) -> io::Result<()> {
        let poll = opcode::PollAdd::new(types::Fd(self.0.as_raw_fd()), u32::from(interest.bits())).build();
        UnsubmittedOneshot::new(Rc::clone(&self.0), Polled, poll).submit().await
    }

    /// As [`readable`](Self::readable), until `deadline`: then the connection is shut down.
    pub(super) async fn readable_until(&self, deadline: Instant) -> io::Result<()> {
        self.ready_until(PollFlags::IN, deadline).await
    }

    async fn ready_until(&self, interest: PollFlags, deadline: Instant) -> io::Result<()> {
        match timeout_at(deadline, self.ready(interest)).await {
            Ok(polled) => polled,
            Err(_) => {
                // The poll in flight completes by this.
                self.shut_down(Shutdown::Both);
                Err(io::ErrorKind::TimedOut.into())
            }
        }
    }

    /// Whether the socket is readable now; for a listener, whether a connection waits.
    pub(super) fn is_readable(&self) -> bool {
        is_readable(&self.0)
    }

    /// Receives what is there, 0 bytes at the end of the stream; `None` if nothing is there yet.
    pub(super) fn receive(&self, buffer: &mut [u8]) -> io::Result<Option<usize>> {
        loop {
            return match rustix::net::recv(&self.0, &mut *buffer, RecvFlags::DONTWAIT) {
                Ok((received, _)) => Ok(Some(received)),
                Err(Errno::INTR) => continue,
                Err(Errno::AGAIN) => Ok(None),
                Err(errno) => Err(errno.into()),
            };
        }
    }

    /// Sends a frame into the still empty output of a new connection; what does not fit at once is given up.
    pub(super) fn send(&self, frame: &[u8]) -> io::Result<usize> {
        Ok(rustix::net::send(&self.0, frame, SendFlags::DONTWAIT | SendFlags::NOSIGNAL)?)
    }

    /// Sends all of `bytes`, waiting for room until `deadline`.
    pub(super) async fn send_all(&self, mut bytes: &[u8], deadline: Instant) -> io::Result<()> {
        while !bytes.is_empty() {
            match self.send(bytes) {
                Ok(sent) => bytes = &bytes[sent..],
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    self.ready_until(PollFlags::OUT, deadline).await?;
                }
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Shuts the connection down; an operation in flight on it completes.
    pub(super) fn shut_down(&self, how: Shutdown) {
        shut_down(&self.0, how);
    }
}

impl WeakSocket {
    /// Shuts the connection down if its peer owes us the next bytes; false if some are there to be read.
    pub(super) fn shut_down_if_silent(&self) -> bool {
        let Some(fd) = self.0.upgrade() else { return true };
        let is_silent = !is_readable(&fd);
        if is_silent {
            shut_down(&fd, Shutdown::Both);
        }
        is_silent
    }
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

fn is_readable(fd: &OwnedFd) -> bool {
    let mut poll = [PollFd::new(fd, PollFlags::IN)];
    rustix::event::poll(&mut poll, Some(&Timespec::default())).is_ok_and(|ready| ready > 0)
}

fn shut_down(fd: &OwnedFd, how: Shutdown) {
    let how = match how {
        Shutdown::Read => rustix::net::Shutdown::Read,
        Shutdown::Write => rustix::net::Shutdown::Write,
        Shutdown::Both => rustix::net::Shutdown::Both,
    };
    // Fails only for a connection that is gone already.
    let _ = rustix::net::shutdown(fd, how);
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
