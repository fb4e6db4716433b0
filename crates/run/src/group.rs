//! The command, as its parent knows it: its process, and those that came from it.

use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, ExitStatus};

use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, WaitIdStatus, waitid};

use super::kin::Kin;
use super::members::{self, Process};
use super::starter::{Begun, Line};

/// A command and all that came from it. Its number stays its own: the leader is not reaped before
/// [`Group::release`].
#[derive(Debug)]
pub(crate) struct Group {
    id: Pid,
    leader: Child,
    line: Line,
    kin: Kin,
    leader_ended: bool,
    stage: Stage,
    /// Who is known not to be signalled by us.
    out_of_reach: Vec<Process>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    Running,
    /// Asked to end.
    Asked,
    Killed,
    Gone,
}

impl Group {
    /// What a process leads.
    pub(crate) fn led_by(leader: Child, line: Line, kin: Kin) -> Self {
        let (leader_ended, stage, out_of_reach) = (false, Stage::Running, Vec::new());
        Self { id: Pid::from_child(&leader), leader, line, kin, leader_ended, stage, out_of_reach }
    }

    /// The leader's number.
    pub(crate) fn id(&self) -> Pid {
        self.id
    }

    /// From here on there is a guardian, who is none of the command's.
    pub(crate) fn has_guardian(&mut self, guardian: Pid) {
        self.kin.has_guardian(guardian);
    }

    /// What the guardian lets the command go by.
    pub(crate) fn line_for_guardian(&self) -> io::Result<OwnedFd> {
        self.line.for_guardian()
    }

    /// What became of the command.
    pub(crate) fn begun(&mut self) -> Begun {
        self.line.begun()
    }

    /// Whether it is to be looked at who is left: nobody tells that.
    pub(crate) fn is_ending(&self) -> bool {
        self.leader_ended || self.stage == Stage::Killed
    }

    /// How the command ended, if it has and nobody was told yet.
    pub(crate) fn try_end(&mut self) -> Option<ExitStatus> {
        if self.leader_ended {
            return None;
        }
        let look = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        let ended = waitid(WaitId::Pid(self.id), look).expect("our child, waited for by nobody else")?;
        self.leader_ended = true;
        Some(exit_status(&ended))
    }

    /// Whether the command was stopped since the last look, and not in order to end it.
    pub(crate) fn try_stop(&mut self) -> bool {
        let look = WaitIdOptions::STOPPED | WaitIdOptions::NOHANG;
        let is_stopped = matches!(waitid(WaitId::Pid(self.id), look), Ok(Some(_)));
        is_stopped && self.stage == Stage::Running && !self.leader_ended
    }

    /// Continues a command that is stopped: it may have left its job's group, which the shell continues.
    pub(crate) fn go_on(&mut self) {
        if !self.leader_ended && members::is_stopped(self.id) {
            self.kin.forward(Signal::CONT);
        }
    }

    /// Whether nobody is left but zombies. Who is left is reminded of what was ordered last.
    pub(crate) fn is_gone(&mut self) -> bool {
        if self.stage != Stage::Gone && self.kin.is_gone() {
            // For whoever was forked during the look.
            self.kin.kill_group();
            self.stage = Stage::Gone;
        }
        match self.stage {
            Stage::Asked => self.kin.ask_orphans(),
            Stage::Killed => self.kin.kill(),
            Stage::Running | Stage::Gone => {}
        }
        self.stage == Stage::Gone
    }

    /// Who is left, and was not told to be out of reach.
    pub(crate) fn left(&mut self) -> Vec<Process> {
        let mut living = if self.stage == Stage::Gone { Vec::new() } else { self.kin.look() };
        living.retain(|process| !self.out_of_reach.iter().any(|known| known.is(process)));
        living
    }

    /// Who cannot be signalled by us, each one once.
    pub(crate) fn newly_out_of_reach(&mut self) -> Vec<Process> {
        let mut found = Kin::out_of_reach(&self.left());
        found.retain(|process| !self.out_of_reach.iter().any(|known| known.is(process)));
        self.out_of_reach.extend(&found);
        found
    }

    /// Gives the leader's number back. Nobody may signal it any more.
    pub(crate) fn release(mut self) {
        self.stage = Stage::Gone;
        if self.leader_ended {
            let _ = self.leader.wait();
        }
    }

    /// Passes a signal on.
    pub(crate) fn forward(&mut self, by: Signal) {
        if self.stage == Stage::Gone {
            return;
        }
        if [Signal::HUP, Signal::INT, Signal::QUIT, Signal::TERM].contains(&by) {
            self.kin.ask(by);
        } else {
            self.kin.forward(by);
        }
    }

    /// Asks everybody to end.
    pub(crate) fn terminate(&mut self) {
        self.forward(Signal::TERM);
        if self.stage == Stage::Running {
            self.stage = Stage::Asked;
            self.kin.look();
            self.kin.ask_orphans();
        }
    }

    /// Ends everybody.
    pub(crate) fn kill(&mut self) {
        if self.stage != Stage::Gone {
            self.stage = Stage::Killed;
            self.kin.kill();
        }
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
        self.kill();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    use rustix::process::kill_process_group;
    use std::os::unix::process::CommandExt;
    use std::process::{Command, Stdio};
    use testkit::patience::wait_for;

    #[test]
    fn a_group_of_zombies_is_gone_and_gets_no_signal_any_more() {
        let leader = Command::new("cat").process_group(0).stdin(Stdio::piped()).spawn().unwrap();
        let id = Pid::from_child(&leader);
        let mut group = Group::led_by(leader, Line::to_nobody(), Kin::new(id, Some(id), None, None));
        let id = id.as_raw_pid();
        let join = || Command::new("cat").process_group(id).stdin(Stdio::piped()).spawn().unwrap();
        // A zombie of ours keeps the number in use, so that a later process can stand for somebody else's
        // group.
        let mut zombie = join();
        group.kill();
        wait_for("the leader's end", || group.try_end().filter(|ended| ended.signal() == Some(9)));
        assert_eq!(kill_process_group(group.id, Signal::CONT), Ok(()), "its number is kept");
        wait_for("the end of the group", || group.is_gone().then_some(()));
        let mut other = join();
        group.terminate();
        group.release();
        drop(other.stdin.take());
        assert_eq!(other.wait().unwrap().code(), Some(0));
        zombie.wait().unwrap();
    }
}
