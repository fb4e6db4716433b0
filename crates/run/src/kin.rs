//! The command's processes: those of its group, and those that left it (setsid, timeout(1)) and still descend
//! from it.
//!
//! `monolock run`, the *keeper*, is their subreaper: who loses its parent becomes the keeper's child. So they
//! all descend from the keeper for as long as it lives, whatever they do. When it is killed, the guardian
//! finds those who left the command's own group, or all where the command has none of its own, by what the
//! command has in its environment.

use std::os::fd::OwnedFd;

use rustix::io::Errno;
use rustix::process::{
    Pid, PidfdFlags, Signal, getpid, kill_process_group, pidfd_open, pidfd_send_signal, test_kill_process,
};

use super::members::{self, Process};

/// The variable that tells the command its lock.
pub(crate) const LOCK_VARIABLE: &str = "MONOLOCK_LOCK";

/// The variable that tells the command its fencing token.
pub(crate) const TOKEN_VARIABLE: &str = "MONOLOCK_TOKEN";

/// A command's processes, to be signalled.
#[derive(Debug)]
pub(crate) struct Kin {
    leader: Pid,
    /// Its number is the leader's, or that of the job that it shares: none where the job's has none in this
    /// namespace.
    group: Option<Pid>,
    /// The leader's process, whoever has its number. None where it is gone already.
    handle: Option<OwnedFd>,
    /// While it lives.
    keeper: Option<Process>,
    /// Once there is one.
    guardian: Option<Pid>,
    /// What is in the command's environment, and when the command began.
    marks: Option<(Marks, Process)>,
    /// Who is known from earlier looks.
    known: Vec<Process>,
    /// Who lost its parent and was asked to end.
    asked: Vec<Process>,
    /// The group was killed once.
    is_struck: bool,
}

impl Kin {
    /// The processes of the command that this leader is or becomes.
    pub(crate) fn new(leader: Pid, group: Option<Pid>, keeper: Option<Pid>, marks: Option<Marks>) -> Self {
        let handle = pidfd_open(leader, PidfdFlags::empty()).ok();
        let keeper = keeper.and_then(Process::with);
        let marks = marks.zip(Process::with(leader));
        Self {
            leader,
            group,
            handle,
            keeper,
            guardian: None,
            marks,
            known: Vec::new(),
            asked: Vec::new(),
            is_struck: false,
        }
    }

    /// From here on this process is nobody's kin.
    pub(crate) fn has_guardian(&mut self, guardian: Pid) {
        self.guardian = Some(guardian);
    }

    /// Whether the group is the command's alone.
    fn has_own_group(&self) -> bool {
        self.group == Some(self.leader)
    }

    /// The keeper is dead.
    pub(crate) fn is_orphaned(&mut self) {
        self.keeper = None;
    }

    /// Passes a signal on to the group.
    pub(crate) fn forward(&mut self, by: Signal) {
        if self.has_own_group() {
            let _ = kill_process_group(self.leader, by);
            return;
        }
        for process in self.look() {
            // An interactive shell makes a group of its own.
            if process.group == self.group || process.pid == self.leader {
                let _ = process.signal(by);
            }
        }
    }

    /// Asks the group to end by this signal, and to go on: who is stopped hears of it only then. Who left the
    /// group hears of it from its parent, as from timeout(1), or by [`Kin::ask_orphans`].
    pub(crate) fn ask(&mut self, by: Signal) {
        self.forward(by);
        self.forward(Signal::CONT);
    }

    /// Asks everybody outside the group to end whose parent had ended at the last look, once each.
    pub(crate) fn ask_orphans(&mut self) {
        let Some(keeper) = self.keeper else { return };
        for process in self.known.clone() {
            let is_orphan = process.is_child_of(keeper.pid) && process.group != self.group;
            if is_orphan && process.pid != self.leader && !self.asked.iter().any(|asked| asked.is(&process)) {
                self.asked.push(process);
                let _ = process.signal(Signal::TERM);
                let _ = process.signal(Signal::CONT);
            }
        }
    }

    /// Ends everybody. Again at each look: somebody may have been forked meanwhile.
    pub(crate) fn kill(&mut self) {
        // A look takes longer than these.
        self.kill_group();
        if let Some(leader) = &self.handle {
            let _ = pidfd_send_signal(leader, Signal::KILL);
        }
        for process in self.look() {
            let _ = process.signal(Signal::KILL);
        }
    }

    /// Ends the group, if it is the command's alone.
    pub(crate) fn kill_group(&mut self) {
        // Without the keeper nobody keeps the number from others once the group is dead.
        if self.has_own_group() && (self.keeper.is_some() || !self.is_struck) {
            let _ = kill_process_group(self.leader, Signal::KILL);
        }
        self.is_struck = true;
    }

    /// Whether nobody lives any more. False when /proc does not tell.
    pub(crate) fn is_gone(&mut self) -> bool {
        self.seen().is_some_and(|living| living.is_empty())
    }

    /// Who lives.
    pub(crate) fn look(&mut self) -> Vec<Process> {
        self.seen().unwrap_or_default()
    }

    fn seen(&mut self) -> Option<Vec<Process>> {
        let all = members::all()?;
        let mut found = self.relatives(&all);
        if self.keeper.is_some_and(|keeper| keeper.pid == getpid()) {
            found.extend(members::hidden_children(&all));
        }
        let living: Vec<Process> = members::living(found).collect();
        self.known.clone_from(&living);
        Some(living)
    }

    /// Who cannot be signalled.
    pub(crate) fn out_of_reach(living: &[Process]) -> Vec<Process> {
        let denied = |process: &&Process| test_kill_process(process.pid) == Err(Errno::PERM);
        living.iter().filter(denied).copied().collect()
    }

    fn relatives(&self, all: &[Process]) -> Vec<Process> {
        let in_group = |process: &&Process| self.has_own_group() && process.group == self.group;
        let mut roots: Vec<Process> = all.iter().filter(in_group).copied().collect();
        match self.keeper {
            // Another one may have its number by now.
            Some(keeper) if all.iter().any(|process| process.is(&keeper)) => {
                roots.extend(members::descendants(all, &[keeper.pid], self.guardian));
            }
            _ => {
                let is_ours = |process: &&Process| {
                    self.known.iter().any(|known| known.is(process)) || self.is_marked(process)
                };
                roots.extend(all.iter().filter(is_ours).copied());
            }
        }
        let pids: Vec<Pid> = roots.iter().map(|process| process.pid).collect();
        roots.extend(members::descendants(all, &pids, self.guardian));
        roots.sort_unstable_by_key(|process| process.pid.as_raw_pid());
        roots.dedup_by_key(|process| process.pid);
        roots.retain(|process| Some(process.pid) != self.guardian);
        roots
    }

    /// Whether it has the command's environment, and could have it from the command.
    fn is_marked(&self, process: &Process) -> bool {
        let Some((marks, leader)) = &self.marks else { return false };
        !process.is_older_than(leader) && process.has_in_environment(&marks.0)
    }
}

/// What tells a command's environment from any other: its lock and its token.
#[derive(Debug)]
pub(crate) struct Marks([String; 2]);

impl Marks {
    pub(crate) fn new(name: &str, token: &str) -> Self {
        Self([format!("{LOCK_VARIABLE}={name}"), format!("{TOKEN_VARIABLE}={token}")])
    }

    /// Those of this process.
    pub(crate) fn of_this_process() -> Option<Self> {
        let variable = |name| std::env::var(name).ok();
        Some(Self::new(&variable(LOCK_VARIABLE)?, &variable(TOKEN_VARIABLE)?))
    }
}
