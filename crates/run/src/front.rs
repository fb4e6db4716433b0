//! The front: what a shell has as its job while the *keeper*, its child, does the work.
//!
//! A job at a terminal is stopped and continued as its user pleases, and a claim must be kept meanwhile. So
//! at a terminal the process that the shell started only tells the keeper what signals it gets, and ends as
//! the keeper ends. It stops and goes on like any program. The command is in the front's process group, as if
//! it had been started without us: it may read the terminal where the job may, and Ctrl-C, Ctrl-Z, `fg` and
//! `bg` reach it. Where there is no terminal, there is no front, unless the process had children when it
//! began (`exec monolock run` in a script): they stay the front's, and the keeper's are the command's.

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command, ExitCode, ExitStatus};

use inherited::Ignored;
use nix::sys::signal::{self, SigSet};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::process::{
    Pid, Resource, Rlimit, Signal, WaitId, WaitIdOptions, getpid, kill_process, setrlimit, waitid,
};
use rustix::termios::{OptionalActions, Termios, tcgetattr, tcgetpgrp, tcsetattr, tcsetpgrp};

use super::input::send_input;
use super::signals::FORWARDED;
use super::this_program::THIS_PROGRAM;
use super::to_front::{KEEPER, RESTORE, STOP};
use super::{members, status};

/// A terminal and the modes that it had at first.
struct Terminal {
    device: File,
    modes: Termios,
}

/// Why a front is needed.
pub(crate) struct Need(Option<Terminal>);

impl Need {
    /// None where a front would be of no use.
    pub(crate) fn of_this_process() -> Option<Self> {
        let terminal = Terminal::controlling();
        (terminal.is_some() || has_children()).then_some(Self(terminal))
    }
}

impl Terminal {
    fn controlling() -> Option<Self> {
        let flags = OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC;
        let device = File::from(rustix::fs::open("/dev/tty", flags, Mode::empty()).ok()?);
        let modes = tcgetattr(&device).ok()?;
        Some(Self { device, modes })
    }

    /// As a shell does for a program that was killed: an editor leaves it raw, and one that made a group of
    /// its own leaves it to that.
    fn restore(&self) {
        let (foreground, own) = (tcgetpgrp(&self.device).ok(), members::own_group());
        if foreground != own {
            // It is somebody else's, if he lives.
            let (Some(foreground), Some(own)) = (foreground, own) else { return };
            if members::lives_in(foreground) || SigSet::from(signal::Signal::SIGTTOU).thread_block().is_err()
            {
                return;
            }
            let _ = tcsetpgrp(&self.device, own);
        }
        let _ = tcsetattr(&self.device, OptionalActions::Now, &self.modes);
    }
}

/// Children that this process had before it became this program.
fn has_children() -> bool {
    let look = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
    waitid(WaitId::All, look).map(|_| ()) != Err(Errno::CHILD)
}

/// Starts a keeper with these arguments of `monolock run`, and stands in for it until it ends.
pub(crate) fn stand(need: &Need, arguments: impl IntoIterator<Item = OsString>) -> io::Result<ExitCode> {
    inherited::keep_children();
    let ignored = Ignored::at_start();
    let mut caught = SigSet::empty();
    for signal in FORWARDED.into_iter().filter(|signal| !ignored.contains(signal.as_raw())) {
        caught.add(signal.as_raw().try_into()?);
    }
    for signal in [Signal::CHILD, Signal::CONT] {
        caught.add(signal.as_raw().try_into()?);
    }
    let parents_mask = SigSet::thread_get_mask()?;
    caught.thread_block()?;
    let signals = SignalFd::with_flags(&caught, SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK)?;

    let (mut line, keepers_end) = UnixStream::pair()?;
    send_input(&line)?;
    line.write_all(&[u8::from(need.0.is_some())])?;
    line.write_all(&ignored.bits().to_ne_bytes())?;
    line.set_nonblocking(true)?;
    let mut command = Command::new(THIS_PROGRAM);
    command.arg0("lock-keeper").arg(KEEPER).args(arguments).stdin(OwnedFd::from(keepers_end));
    parents_mask.thread_set_mask()?;
    let keeper = command.spawn();
    caught.thread_block()?;
    let mut keeper = keeper?;
    // It has the keeper's end of the line.
    drop(command);

    let mut front = Front { line, is_line_open: true, signals, got: Vec::new(), restores: false };
    let ended = loop {
        if let Some(ended) = front.turn(&mut keeper)? {
            break ended;
        }
    };
    front.hear();
    if let Some(terminal) = &need.0
        && (front.restores || ended.signal().is_some())
    {
        terminal.restore();
    }
    Ok(end_like(ended, &front.got))
}

struct Front {
    line: UnixStream,
    is_line_open: bool,
    signals: SignalFd,
    /// The signals that it got.
    got: Vec<i32>,
    /// The terminal is to get its modes back.
    restores: bool,
}

impl Front {
    /// Waits until something happens; tells how the keeper ended, if it has.
    fn turn(&mut self, keeper: &mut Child) -> io::Result<Option<ExitStatus>> {
        let mut sources = [PollFd::new(&self.signals, PollFlags::IN), PollFd::new(&self.line, PollFlags::IN)];
        // A keeper that closed it is about to end.
        let count = if self.is_line_open { 2 } else { 1 };
        match poll(&mut sources[..count], None) {
            // It was stopped and goes on.
            Err(Errno::INTR) => return Ok(None),
            other => other?,
        };
        self.pass_on_signals()?;
        if self.hear() {
            kill_process(getpid(), Signal::TSTP)?;
        }
        // Each time: of a keeper that ended before SIGCHLD was blocked, the line alone tells.
        let ended = reap(keeper)?;
        if ended.is_some() {
            // What it ended by came before.
            self.pass_on_signals()?;
        }
        Ok(ended)
    }

    fn pass_on_signals(&mut self) -> io::Result<()> {
        while let Some(signal) = self.signals.read_signal()? {
            let number = u8::try_from(signal.ssi_signo).expect("signals go from 1 to 64");
            if i32::from(number) != Signal::CHILD.as_raw() {
                self.got.push(i32::from(number));
                // A keeper that is dead or stuck hears nothing.
                let _ = self.line.write_all(&[number]);
            }
        }
        Ok(())
    }

    /// Takes what the keeper says. Whether we are to stop.
    fn hear(&mut self) -> bool {
        let mut words = [0; 16];
        let Ok(count) = self.line.read(&mut words) else { return false };
        self.is_line_open = count > 0;
        self.restores |= words[..count].contains(&RESTORE);
        words[..count].contains(&STOP)
    }
}

/// Reaps whoever has ended: as the first process of a container the front gets all orphans.
fn reap(keeper: &mut Child) -> io::Result<Option<ExitStatus>> {
    loop {
        if let Some(ended) = keeper.try_wait()? {
            return Ok(Some(ended));
        }
        match members::ended_child() {
            None => return Ok(None),
            // It ended since.
            Some(pid) if pid == Pid::from_child(keeper) => {}
            Some(pid) => members::reap(pid),
        }
    }
}

/// Ends as the command did at Ctrl-C: a script that runs us ends then too, if it sees that the signal killed
/// us.
fn end_like(ended: ExitStatus, got: &[i32]) -> ExitCode {
    let code = status::of_command(ended);
    if let Some(signal) = ended.signal().filter(|signal| !got.contains(signal)) {
        let _ = writeln!(
            io::stderr(),
            "monolock run: its keeper was killed by signal {signal}; the guardian kills the command"
        );
    }
    for signal in [Signal::INT, Signal::QUIT] {
        if got.contains(&signal.as_raw()) && code == status::of_signal(signal) {
            // The command's memory may be of interest, ours is not.
            let _ = setrlimit(Resource::Core, Rlimit { current: Some(0), maximum: Some(0) });
            let _ = kill_process(getpid(), signal);
            let _ =
                SigSet::from(signal::Signal::try_from(signal.as_raw()).expect("a signal")).thread_unblock();
        }
    }
    ExitCode::from(code)
}

#[cfg(test)]
mod tests {
    use super::*;

    use std::sync::mpsc::channel;
    use std::thread;
    use std::time::Duration;

    #[test]
    fn a_keeper_that_ended_before_its_signal_was_awaited_is_noticed() {
        let mut keeper = Command::new("true").spawn().unwrap();
        let look = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT;
        waitid(WaitId::Pid(Pid::from_child(&keeper)), look).unwrap();
        let (line, keepers_end) = UnixStream::pair().unwrap();
        drop(keepers_end);
        line.set_nonblocking(true).unwrap();
        let (done, is_done) = channel();
        thread::spawn(move || {
            let signals = SignalFd::with_flags(&SigSet::empty(), SfdFlags::SFD_NONBLOCK).unwrap();
            let mut front = Front { line, is_line_open: true, signals, got: Vec::new(), restores: false };
            let ended = loop {
                if let Some(ended) = front.turn(&mut keeper).unwrap() {
                    break ended;
                }
            };
            done.send(ended).unwrap();
        });
        let ended = is_done.recv_timeout(Duration::from_secs(20)).expect("it waits for ever");
        assert!(ended.success());
    }
}
