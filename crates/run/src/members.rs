//! Processes and who descends from whom, by /proc.

use std::fs;
use std::path::Path;

use nix::sys::wait::{self, WaitPidFlag};
use rustix::io::Errno;
use rustix::process::{
    Pid, PidfdFlags, Signal, WaitId, WaitIdOptions, kill_process, pidfd_open, pidfd_send_signal, waitid,
};

/// One process, at one look.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Process {
    pub pid: Pid,
    parent: Option<Pid>,
    pub group: Option<Pid>,
    is_zombie: bool,
    /// In clock ticks since the system's start: with the number, it tells a process from every other one.
    /// Unknown for a child of our own that /proc hides (its option hidepid).
    start: Option<u64>,
}

impl Process {
    /// The process that has this number now.
    pub(crate) fn with(pid: Pid) -> Option<Self> {
        read(&Path::new("/proc").join(pid.as_raw_pid().to_string()))
    }

    /// Whether it is a child of this process.
    pub(crate) fn is_child_of(&self, parent: Pid) -> bool {
        self.parent == Some(parent)
    }

    /// Whether both are one process, at two looks.
    pub(crate) fn is(&self, other: &Self) -> bool {
        (self.pid, self.start) == (other.pid, other.start)
    }

    /// Whether it began before another one.
    pub(crate) fn is_older_than(&self, other: &Self) -> bool {
        self.start < other.start
    }

    /// Its name, as ps shows it.
    pub(crate) fn name(&self) -> String {
        let name = fs::read_to_string(format!("/proc/{}/comm", self.pid.as_raw_pid()));
        name.map_or_else(|_| "hidden".to_owned(), |name| name.trim_end().escape_debug().to_string())
    }

    /// Sends it a signal, and never to another one that has its number by now. It may have ended.
    pub(crate) fn signal(&self, by: Signal) -> Result<(), Errno> {
        let sent = match self.start {
            // A child that is not reaped keeps its number.
            None => kill_process(self.pid, by),
            Some(_) => {
                let handle = pidfd_open(self.pid, PidfdFlags::empty());
                // It has the number still, so that it had it when the handle was made.
                let is_there = Self::with(self.pid).is_some_and(|now| now.is(self));
                match handle {
                    Ok(handle) if is_there => pidfd_send_signal(handle, by),
                    // Linux before 5.3.
                    Err(Errno::NOSYS) if is_there => kill_process(self.pid, by),
                    Ok(_) => Ok(()),
                    Err(error) => Err(error),
                }
            }
        };
        if sent == Err(Errno::SRCH) { Ok(()) } else { sent }
    }

    /// Whether its environment has both of these `NAME=value`. False where it is not ours to read.
    pub(crate) fn has_in_environment(&self, marks: &[String]) -> bool {
        let environment = fs::read(format!("/proc/{}/environ", self.pid.as_raw_pid())).unwrap_or_default();
        marks.iter().all(|mark| environment.split(|&byte| byte == 0).any(|entry| entry == mark.as_bytes()))
    }
}

/// Whether this process is stopped, all of it or in part.
pub(crate) fn is_stopped(pid: Pid) -> bool {
    let stat = fs::read(format!("/proc/{}/stat", pid.as_raw_pid())).unwrap_or_default();
    let name_end = stat.iter().rposition(|&byte| byte == b')').unwrap_or_default();
    stat[name_end..].starts_with(b") T")
}

/// All processes that can be seen, zombies too. None when /proc does not tell.
///
/// A process forked during the look may be missed.
pub(crate) fn all() -> Option<Vec<Process>> {
    let entries = fs::read_dir("/proc").ok()?.filter_map(Result::ok);
    let processes = entries.filter(|entry| entry.file_name().as_encoded_bytes()[0].is_ascii_digit());
    // Who is gone before its file is read lives no more.
    Some(processes.filter_map(|process| read(&process.path())).collect())
}

/// These, without zombies: where nobody reaps orphans (the first process of many containers), who was killed
/// would otherwise never look dead.
pub(crate) fn living(processes: impl IntoIterator<Item = Process>) -> impl Iterator<Item = Process> {
    processes.into_iter().filter(|process| !process.is_zombie)
}

/// Whether anybody of this group lives. True when /proc does not tell.
pub(crate) fn lives_in(group: Pid) -> bool {
    all().is_none_or(|all| living(all).any(|process| process.group == Some(group)))
}

/// Those that descend from one of the roots, the roots themselves not among them, and nobody by way of
/// `except`.
pub(crate) fn descendants(all: &[Process], roots: &[Pid], except: Option<Pid>) -> Vec<Process> {
    let mut found: Vec<Process> = Vec::new();
    let mut parents = roots.to_vec();
    while let Some(parent) = parents.pop() {
        for child in all.iter().filter(|process| process.is_child_of(parent) && Some(process.pid) != except) {
            if !found.iter().any(|known| known.pid == child.pid) {
                found.push(*child);
                parents.push(child.pid);
            }
        }
    }
    found
}

/// Children of this process that live and that /proc hides from us: those that run as somebody else, under
/// hidepid.
pub(crate) fn hidden_children(seen: &[Process]) -> Vec<Process> {
    let tasks = fs::read_dir("/proc/self/task").into_iter().flatten().filter_map(Result::ok);
    let children = tasks.filter_map(|task| fs::read_to_string(task.path().join("children")).ok());
    let children: Vec<Pid> = children
        .flat_map(|line| line.split_ascii_whitespace().filter_map(number).flatten().collect::<Vec<_>>())
        .collect();
    let unseen = children.into_iter().filter(|pid| !seen.iter().any(|process| process.pid == *pid));
    let look = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
    let alive = unseen.filter(|pid| matches!(waitid(WaitId::Pid(*pid), look), Ok(None)));
    alive.map(|pid| Process { pid, parent: None, group: None, is_zombie: false, start: None }).collect()
}

/// A child that has ended and is not reaped; the same one as long as it is not.
pub(crate) fn ended_child() -> Option<Pid> {
    let look = WaitPidFlag::WEXITED | WaitPidFlag::WNOHANG | WaitPidFlag::WNOWAIT;
    Pid::from_raw(wait::waitid(wait::Id::All, look).ok()?.pid()?.as_raw())
}

/// Reaps a child that has ended, and that nobody else waits for.
pub(crate) fn reap(child: Pid) {
    let _ = waitid(WaitId::Pid(child), WaitIdOptions::EXITED | WaitIdOptions::NOHANG);
}

fn read(directory: &Path) -> Option<Process> {
    parse(&fs::read(directory.join("stat")).ok()?)
}

/// Reads "pid (name) state parent group …", with the start as the 22nd; the name may hold anything,
/// parentheses too.
fn parse(stat: &[u8]) -> Option<Process> {
    let name_end = stat.iter().rposition(|&byte| byte == b')')?;
    let pid = stat.split(|&byte| byte == b' ').next()?;
    let pid = number(str::from_utf8(pid).ok()?)??;
    let rest = str::from_utf8(&stat[name_end + 1..]).ok()?;
    let mut fields = rest.split_ascii_whitespace();
    let state = fields.next()?;
    let (parent, group) = (number(fields.next()?)?, number(fields.next()?)?);
    let start = fields.nth(16)?.parse().ok()?;
    Some(Process { pid, parent, group, is_zombie: matches!(state, "Z" | "X"), start: Some(start) })
}

/// A process number; 0 stands for the kernel or another namespace, and -1 for what a process has no more.
fn number(text: &str) -> Option<Option<Pid>> {
    text.parse().ok().map(positive)
}

/// A process or group by its number; none by 0 or less.
pub(crate) fn positive(number: i32) -> Option<Pid> {
    if number > 0 { Pid::from_raw(number) } else { None }
}

/// The group of this process: none where its leader is outside this namespace.
pub(crate) fn own_group() -> Option<Pid> {
    positive(nix::unistd::getpgrp().as_raw())
}

#[cfg(test)]
mod tests {
    use super::*;

    use std::process::Command;

    const REST: &str = "-1 4194304 100 0 0 0 0 0 0 0 20 0 1 0 777 1000 200";

    fn process(pid: i32, parent: i32) -> Process {
        parse(format!("{pid} (x) S {parent} {pid} {pid} 0 {REST}").as_bytes()).unwrap()
    }

    #[test]
    fn a_process_is_read_whatever_its_name() {
        for name in ["sh", "a) Z 1 7 (b", "a b) (", ""] {
            let process = parse(format!("7 ({name}) S 1 42 42 0 {REST}").as_bytes()).unwrap();
            let known = (process.pid.as_raw_pid(), process.parent, process.group.map(Pid::as_raw_pid));
            assert_eq!(known, (7, Pid::from_raw(1), Some(42)));
            assert_eq!((process.is_zombie, process.start), (false, Some(777)));
        }
        let mut bytes = b"7 (\xff) Z 0 0 0 0 ".to_vec();
        bytes.extend_from_slice(REST.as_bytes());
        let zombie = parse(&bytes).unwrap();
        assert!(zombie.is_zombie && zombie.parent.is_none() && zombie.group.is_none());
        let last = parse(format!("7 (x) X 0 -1 -1 0 {REST}").as_bytes()).unwrap();
        assert!(last.is_zombie && last.group.is_none(), "it is on its way out");
        assert_eq!(parse(b""), None);
    }

    #[test]
    fn a_descendant_is_a_child_of_a_child_and_not_of_who_is_left_out() {
        let all = [process(1, 0), process(5, 1), process(6, 5), process(9, 6), process(7, 5), process(8, 7)];
        let root = Pid::from_raw(5).unwrap();
        let except = Pid::from_raw(7);
        let mut pids: Vec<i32> =
            descendants(&all, &[root], except).iter().map(|process| process.pid.as_raw_pid()).collect();
        pids.sort_unstable();
        assert_eq!(pids, [6, 9]);
    }

    #[test]
    fn a_signal_does_not_reach_another_process_of_the_same_number() {
        let mut child = Command::new("sleep").arg("60").spawn().unwrap();
        let process = Process::with(Pid::from_child(&child)).unwrap();
        let earlier = Process { start: process.start.map(|start| start - 1), ..process };
        assert_eq!(earlier.signal(Signal::KILL), Ok(()));
        assert!(child.try_wait().unwrap().is_none());
        assert_eq!(process.signal(Signal::KILL), Ok(()));
        assert!(!child.wait().unwrap().success());
        assert_eq!(process.signal(Signal::KILL), Ok(()), "it has ended");
    }
}
