//! The command's process group.

use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, ExitStatus};

use rustix::io::Errno;
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, WaitIdStatus, kill_process_group, waitid};

use super::starter::{Begun, Line};
use super::{members, status};

/// A signal that reached nobody.
#[derive(Debug, thiserror::Error)]
#[error("signal {signal} to group {group}: {error}")]
pub(crate) struct SignalError {
    signal: i32,
    group: i32,
    error: Errno,
}

/// Sends a signal to everybody in a group, best effort: who changed its user may be out of reach.
pub(crate) fn signal(group: Pid, signal: Signal) -> Result<(), SignalError> {
    match kill_process_group(group, signal) {
        Ok(()) | Err(Errno::SRCH) => Ok(()),
        Err(error) => Err(SignalError { signal: signal.as_raw(), group: group.as_raw_pid(), error }),
    }
}

/// Asks a group to end by this signal, and to go on: who is stopped, by reading from the terminal for one, hears of it
/// only then.
pub(crate) fn ask_to_end(group: Pid, by: Signal) -> Result<(), SignalError> {
    signal(group, by).and(signal(group, Signal::CONT))
}

/// A group that the command leads. Its number stays its own: the leader is not reaped before [`Group::release`].
#[derive(Debug)]
pub(crate) struct Group {
    id: Pid,
    leader: Child,
    line: Line,
    leader_ended: bool,
    gone: bool,
}

impl Group {
    /// The group of a process that leads it.
    pub(crate) fn led_by(leader: Child, line: Line) -> Self {
        Self { id: Pid::from_child(&leader), leader, line, leader_ended: false, gone: false }
    }

    /// Its number.
    pub(crate) fn id(&self) -> Pid {
        self.id
    }

    /// What the guardian lets the command go by.
    pub(crate) fn line_for_guardian(&self) -> io::Result<OwnedFd> {
        self.line.for_guardian()
    }

    /// What became of the command.
    pub(crate) fn begun(&mut self) -> Begun {
        self.line.begun()
    }

    /// Whether the command is known to have ended.
    pub(crate) fn leader_ended(&self) -> bool {
        self.leader_ended
    }

    /// The exit status of the command, if it has ended and nobody was told yet.
    pub(crate) fn try_end(&mut self) -> Option<u8> {
        if self.leader_ended {
            return None;
        }
        let look = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        let ended = waitid(WaitId::Pid(self.id), look).expect("our child, waited for by nobody else")?;
        self.leader_ended = true;
        Some(status::of_command(exit_status(&ended)))
    }

    /// Whether nobody is left but zombies.
    pub(crate) fn is_gone(&mut self) -> bool {
        if !self.gone && !members::lives(self.id) {
            // For whoever was forked during the look.
            let _ = self.kill();
            self.gone = true;
        }
        self.gone
    }

    /// Gives the group's number back. Nobody may signal it any more.
    pub(crate) fn release(mut self) {
        self.gone = true;
        if self.leader_ended {
            let _ = self.leader.wait();
        }
    }

    /// Passes a signal on.
    pub(crate) fn forward(&mut self, by: Signal) -> Result<(), SignalError> {
        if self.gone {
            Ok(())
        } else if [Signal::HUP, Signal::INT, Signal::QUIT, Signal::TERM].contains(&by) {
            ask_to_end(self.id, by)
        } else {
            signal(self.id, by)
        }
    }

    /// Asks the group to end.
    pub(crate) fn terminate(&mut self) -> Result<(), SignalError> {
        self.forward(Signal::TERM)
    }

    /// Ends the group.
    pub(crate) fn kill(&mut self) -> Result<(), SignalError> {
        self.forward(Signal::KILL)
    }
}

fn exit_status(ended: &WaitIdStatus) -> ExitStatus {
    // The layout that wait(2) has.
    let code = ended.exit_status().map(|code| code << 8);
    ExitStatus::from_raw(code.or(ended.terminating_signal()).expect("it has exited or was killed"))
}

/// The command never runs without us, as far as we can help it: this covers a panic.
impl Drop for Group {
    fn drop(&mut self) {
        let _ = self.kill();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    use std::os::unix::process::CommandExt;
    use std::process::{Command, Stdio};
    use std::thread;
    use std::time::{Duration, Instant};

    /// Longer than any machine keeps a process from running.
    const PATIENCE: Duration = Duration::from_secs(60);

    fn wait_for(mut condition: impl FnMut() -> bool) {
        let deadline = Instant::now() + PATIENCE;
        while !condition() {
            assert!(Instant::now() < deadline, "waited in vain");
            thread::sleep(Duration::from_millis(1));
        }
    }

    #[test]
    fn a_group_of_zombies_is_gone_and_gets_no_signal_any_more() {
        let leader = Command::new("cat").process_group(0).stdin(Stdio::piped()).spawn().unwrap();
        let mut group = Group::led_by(leader, Line::to_nobody());
        let id = group.id.as_raw_pid();
        let join = || Command::new("cat").process_group(id).stdin(Stdio::piped()).spawn().unwrap();
        // A zombie of ours keeps the number in use, so that a later process can stand for somebody else's group.
        let mut zombie = join();
        group.kill().unwrap();
        wait_for(|| group.try_end() == Some(128 + 9));
        assert_eq!(kill_process_group(group.id, Signal::CONT), Ok(()), "its number is kept");
        wait_for(|| group.is_gone());
        let mut other = join();
        group.terminate().unwrap();
        group.release();
        drop(other.stdin.take());
        assert_eq!(other.wait().unwrap().code(), Some(0));
        zombie.wait().unwrap();
    }
}
