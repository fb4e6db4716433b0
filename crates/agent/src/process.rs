//! A server's process, as the server itself has handed it over: a pidfd. Its number may be another process's
//! by now; a pidfd never is.

use std::fs;
use std::io::{self, ErrorKind};
use std::os::fd::{AsRawFd, OwnedFd};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{PidfdFlags, Signal, getpid, pidfd_open, pidfd_send_signal};

/// A server's process.
#[derive(Debug)]
pub(crate) struct Process {
    pidfd: OwnedFd,
    id: i32,
}

/// This process, to hand it over.
///
/// # Errors
///
/// The kernel has no pidfds, or there is no descriptor left.
pub(crate) fn this_process() -> io::Result<OwnedFd> {
    Ok(pidfd_open(getpid(), PidfdFlags::NONBLOCK)?)
}

impl Process {
    /// A process that was handed over by whoever has the number `sender`. Nobody hands over somebody else: a
    /// descriptor of another kind, or of a process that has ended, would read as an exit.
    ///
    /// # Errors
    ///
    /// It is none, or another one.
    pub(crate) fn of(pidfd: OwnedFd, sender: i32) -> io::Result<Self> {
        let info = fs::read_to_string(format!("/proc/self/fdinfo/{}", pidfd.as_raw_fd()))?;
        let id = info.lines().find_map(|line| line.strip_prefix("Pid:")?.trim().parse::<i32>().ok());
        match id {
            Some(id) if id == sender && id > 0 => Ok(Self { pidfd, id }),
            _ => Err(io::Error::new(
                ErrorKind::InvalidData,
                "it hands over a descriptor that is not its own pidfd",
            )),
        }
    }

    /// Its number while it lived, for the log.
    pub(crate) fn id(&self) -> i32 {
        self.id
    }

    /// Whether all its threads have ended.
    pub(crate) fn has_exited(&self) -> bool {
        let mut polled = [PollFd::new(&self.pidfd, PollFlags::IN)];
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        matches!(poll(&mut polled, Some(&now)), Ok(1)) && polled[0].revents().contains(PollFlags::IN)
    }

    /// Kills it, unless it has ended.
    ///
    /// # Errors
    ///
    /// It is another user's.
    pub(crate) fn kill(&self) -> io::Result<()> {
        match pidfd_send_signal(&self.pidfd, Signal::KILL) {
            Err(rustix::io::Errno::SRCH) => Ok(()),
            killed => Ok(killed?),
        }
    }
}
