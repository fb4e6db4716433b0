//! The command's process group.

use std::ffi::OsString;
use std::io;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command};

use protocol::Token;
use rustix::io::Errno;
use rustix::process::{Pid, Signal, kill_process_group, test_kill_process_group};

use super::{members, status};

/// A signal that reached nobody.
#[derive(Debug, thiserror::Error)]
#[error("signal {signal} to group {group}: {error}")]
pub(crate) struct SignalError {
    signal: i32,
    group: i32,
    error: Errno,
}

/// A group that the command leads. Its number stays its own while anybody is in it, an unreaped leader included.
#[derive(Debug)]
pub(crate) struct Group {
    id: Pid,
    leader: Child,
    leader_ended: bool,
    /// The number may be somebody else's now.
    gone: bool,
}

impl Group {
    /// Starts the command.
    pub(crate) fn spawn(command: &[OsString], name: &str, token: Token) -> io::Result<Self> {
        let leader = Command::new(&command[0])
            .args(&command[1..])
            .env("MONOLOCK_LOCK", name)
            .env("MONOLOCK_TOKEN", token.to_string())
            .process_group(0)
            .spawn()?;
        Ok(Self { id: Pid::from_child(&leader), leader, leader_ended: false, gone: false })
    }

    /// Whether the command ended and was reaped.
    pub(crate) fn leader_ended(&self) -> bool {
        self.leader_ended
    }

    /// The exit status of the command, if it has ended; reaps it.
    pub(crate) fn try_reap(&mut self) -> Option<u8> {
        let ended = self.leader.try_wait().expect("our child, waited for by nobody else")?;
        self.leader_ended = true;
        Some(status::of_command(ended))
    }

    /// Whether nobody is left but zombies.
    pub(crate) fn is_gone(&mut self) -> bool {
        self.gone |= test_kill_process_group(self.id) == Err(Errno::SRCH);
        if !self.gone && !members::lives(self.id) {
            // For whoever was forked during the look. Later, the number may be somebody else's.
            let _ = self.kill();
            self.gone = true;
        }
        self.gone
    }

    /// Sends a signal to everybody in the group, best effort: who changed its user may be out of reach.
    pub(crate) fn signal(&mut self, signal: Signal) -> Result<(), SignalError> {
        if self.gone {
            return Ok(());
        }
        match kill_process_group(self.id, signal) {
            Ok(()) => Ok(()),
            Err(Errno::SRCH) => {
                self.gone = true;
                Ok(())
            }
            Err(error) => Err(SignalError { signal: signal.as_raw(), group: self.id.as_raw_pid(), error }),
        }
    }

    /// Passes a signal on. After one that asks to end the group also goes on: who is stopped, by reading from the terminal for
    /// one, hears of it only then.
    pub(crate) fn forward(&mut self, signal: Signal) -> Result<(), SignalError> {
        let sent = self.signal(signal);
        if [Signal::HUP, Signal::INT, Signal::QUIT, Signal::TERM].contains(&signal) {
            return sent.and(self.signal(Signal::CONT));
        }
        sent
    }

    /// Asks the group to end.
    pub(crate) fn terminate(&mut self) -> Result<(), SignalError> {
        self.forward(Signal::TERM)
    }

    /// Ends the group.
    pub(crate) fn kill(&mut self) -> Result<(), SignalError> {
        self.signal(Signal::KILL)
    }
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

    use std::process::Stdio;
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
        let mut group = Group::spawn(&["cat".into()], "lock", Token(1)).unwrap();
        let id = group.id.as_raw_pid();
        let join = || Command::new("cat").process_group(id).stdin(Stdio::piped()).spawn().unwrap();
        // A zombie of ours keeps the number in use, so that a later process can stand for somebody else's group.
        let mut zombie = join();
        group.kill().unwrap();
        wait_for(|| group.try_reap().is_some());
        wait_for(|| group.is_gone());
        let mut other = join();
        group.terminate().unwrap();
        drop(group);
        drop(other.stdin.take());
        assert_eq!(other.wait().unwrap().code(), Some(0));
        zombie.wait().unwrap();
    }
}
