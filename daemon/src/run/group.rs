//! The command's process group.

use std::ffi::OsString;
use std::io;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command};

use protocol::Token;
use rustix::io::Errno;
use rustix::process::{Pid, Signal, kill_process_group, test_kill_process_group};

use super::{members, status};

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
        self.gone || !members::lives(self.id)
    }

    /// Sends a signal to everybody in the group, best effort: who changed its user may be out of reach.
    pub(crate) fn signal(&mut self, signal: Signal) {
        if self.gone {
            return;
        }
        match kill_process_group(self.id, signal) {
            Ok(()) => {}
            Err(Errno::SRCH) => self.gone = true,
            Err(error) => eprintln!(
                "monolock run: signal {} to group {}: {error}",
                signal.as_raw(),
                self.id.as_raw_pid()
            ),
        }
    }

    /// Asks the group to end. A stopped process hears that only when it goes on.
    pub(crate) fn terminate(&mut self) {
        self.signal(Signal::TERM);
        self.signal(Signal::CONT);
    }

    /// Ends the group.
    pub(crate) fn kill(&mut self) {
        self.signal(Signal::KILL);
    }
}

/// The command never runs without us, as far as we can help it: this covers a panic, and whoever was forked while we
/// looked for the living.
impl Drop for Group {
    fn drop(&mut self) {
        self.kill();
    }
}
