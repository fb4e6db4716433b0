//! The guardian: a process that stops the command when `monolock run`, its keeper, does not.
//!
//! It knows the command and a deadline on CLOCK_BOOTTIME, which the keeper moves on with every confirmation
//! of the claim. [`Vigil`] decides. The group's number is safe to signal: the keeper does not reap the
//! group's leader before its guardian has left.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::process::ExitCode;

use client::boottime_ns;
use nix::sys::signal::SigSet;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::process::{Pid, PidfdFlags, Signal, getpid, getppid, pidfd_open};
use rustix::stdio::dup2_stdout;
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create, timerfd_settime,
};

use super::kin::{Kin, Marks};
use super::order::{BYTES, Order};
use super::vigil::{Act, Verdict, Vigil};
use super::{members, starter, status};

/// The subcommand's name.
pub(crate) const NAME: &str = "run-guardian";

/// Exit status of a guardian that had to stop the group by itself, and else 0.
const ACTED: u8 = 1;

/// Orders read at a time; more come in the next turn.
const ORDERS_MAX: usize = 64;

/// How often a group that was killed is looked at, as by `monolock run`.
const KILLED_LOOK_NS: u64 = 5_000_000;

/// How often a group whose leader has ended is looked at while `monolock run`, which should be doing it, may
/// be stopped.
const LEFT_OVER_LOOK_NS: u64 = 100_000_000;

const NS_PER_S: u64 = 1_000_000_000;

/// `run-guardian`: not for people.
#[derive(Debug, clap::Args)]
pub struct GuardianArgs {
    /// Our parent, to whom the command's orphans come.
    #[arg(long)]
    keeper: Option<i32>,
    /// The group that the command is in, if it is not its own; 0 where that has no number.
    #[arg(long)]
    group: Option<i32>,
    /// The command.
    #[arg(value_parser = clap::value_parser!(i32).range(2..))]
    leader: i32,
}

/// The verdict that an exit status of a guardian stands for.
pub(crate) fn verdict(code: i32) -> Option<Verdict> {
    match code {
        0 => Some(Verdict::Idle),
        code if code == i32::from(ACTED) => Some(Verdict::Acted),
        _ => None,
    }
}

/// The guardian itself: orders come from standard input, standard output is the line to the starter, and
/// standard error is the connection to the server, which is only held open.
pub fn guard(args: &GuardianArgs) -> ExitCode {
    // Its words would reach the server.
    std::panic::set_hook(Box::new(|_| {}));
    match Guardian::new(args).and_then(|mut guardian| guardian.watch()) {
        Ok(Verdict::Idle) => ExitCode::SUCCESS,
        Ok(Verdict::Acted) => ExitCode::from(ACTED),
        // `monolock run` hears of it and stops the group.
        Err(_) => ExitCode::from(status::OS_ERROR),
    }
}

struct Guardian {
    kin: Kin,
    vigil: Vigil,
    timer: OwnedFd,
    /// Until it has ended.
    leader: Option<OwnedFd>,
    /// Nobody gives orders any more.
    is_deserted: bool,
    /// When to look whether the group is gone.
    look_ns: u64,
}

impl Guardian {
    fn new(args: &GuardianArgs) -> io::Result<Self> {
        // Whoever sends a signal to all processes of a service means the command. Blocked before already, by
        // `monolock run`.
        SigSet::all().thread_block()?;
        let timer = timerfd_create(TimerfdClockId::Boottime, TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC)?;
        // The leader is gone only where `monolock run` is too.
        let leader = Pid::from_raw(args.leader).expect("checked to be above 1");
        let group = args.group.map_or(Some(leader), members::positive);
        // A keeper that is dead already is not our parent any more.
        let keeper = getppid().filter(|parent| Some(parent.as_raw_pid()) == args.keeper);
        let mut kin = Kin::new(leader, group, keeper, Marks::of_this_process());
        kin.has_guardian(getpid());
        let leader = pidfd_open(leader, PidfdFlags::empty()).ok();
        Ok(Self { kin, vigil: Vigil::new(), timer, leader, is_deserted: false, look_ns: u64::MAX })
    }

    fn watch(&mut self) -> io::Result<Verdict> {
        loop {
            match self.vigil.next(boottime_ns()) {
                Act::Wait => self.wait()?,
                Act::LetGo => {
                    // A starter that is dead already needs no more.
                    let _ = starter::let_go(io::stdout());
                    dup2_stdout(File::open("/dev/null")?)?;
                }
                // Errors are those of members who are out of reach.
                Act::Ask => {
                    self.kin.ask(Signal::TERM);
                    self.kin.look();
                    self.kin.ask_orphans();
                }
                Act::Kill => {
                    self.kin.kill();
                    self.look_ns = 0;
                }
                Act::Leave(verdict) => return Ok(verdict),
            }
        }
    }

    fn wait(&mut self) -> io::Result<()> {
        if boottime_ns() >= self.look_ns && self.look() {
            return Ok(());
        }
        self.arm(self.vigil.wake_ns().min(self.look_ns))?;
        let (is_ordered, has_leader_ended) = self.sleep()?;
        if has_leader_ended {
            self.leader = None;
            self.look_ns = self.look_ns.min(boottime_ns() + LEFT_OVER_LOOK_NS);
        }
        if is_ordered { self.hear() } else { Ok(()) }
    }

    /// Until something happens: an order, or the leader's end, or the time.
    fn sleep(&self) -> io::Result<(bool, bool)> {
        let stdin = io::stdin();
        let orders = (!self.is_deserted).then_some(stdin.as_fd());
        let leader = self.leader.as_ref().map(AsFd::as_fd);
        let sources = [Some(self.timer.as_fd()), orders, leader];
        let mut sources: Vec<PollFd<'_>> = sources
            .into_iter()
            .flatten()
            .map(|source| PollFd::from_borrowed_fd(source, PollFlags::IN))
            .collect();
        poll(&mut sources, None)?;
        let mut ready = sources.iter().skip(1).map(|source| !source.revents().is_empty());
        let is_ordered = orders.is_some() && ready.next() == Some(true);
        Ok((is_ordered, leader.is_some() && ready.next() == Some(true)))
    }

    fn hear(&mut self) -> io::Result<()> {
        let mut bytes = [0; ORDERS_MAX * BYTES];
        // Not through the library's buffer, which poll knows nothing of.
        let count = rustix::io::read(io::stdin().as_fd(), &mut bytes)?;
        if count == 0 {
            self.is_deserted = true;
            self.kin.is_orphaned();
            self.vigil.deserted();
        }
        let (orders, rest) = bytes[..count].as_chunks::<BYTES>();
        if !rest.is_empty() {
            return Err(io::ErrorKind::InvalidData.into());
        }
        for order in orders {
            self.vigil.order(Order::decode(*order));
        }
        Ok(())
    }

    /// Looks whether the group is gone.
    fn look(&mut self) -> bool {
        let is_gone = self.kin.is_gone();
        if is_gone {
            if !self.is_deserted {
                // For whoever was forked during the look.
                self.kin.kill_group();
            }
            self.vigil.gone();
        } else if self.vigil.has_killed() {
            self.kin.kill();
        }
        let pause_ns = if self.vigil.has_killed() { KILLED_LOOK_NS } else { LEFT_OVER_LOOK_NS };
        self.look_ns = boottime_ns() + pause_ns;
        is_gone
    }

    /// Wakes [`poll`] up at this time; after a suspend at once if it has passed.
    fn arm(&self, at_ns: u64) -> io::Result<()> {
        let zero = Timespec { tv_sec: 0, tv_nsec: 0 };
        // Zero would disarm it.
        let at_ns = at_ns.max(1);
        let at = Timespec {
            tv_sec: i64::try_from(at_ns / NS_PER_S).expect("2⁶⁴ ns are fewer than 2⁶³ s"),
            tv_nsec: i64::try_from(at_ns % NS_PER_S).expect("below 10⁹"),
        };
        let once = Itimerspec { it_interval: zero, it_value: at };
        timerfd_settime(&self.timer, TimerfdTimerFlags::ABSTIME, &once)?;
        Ok(())
    }
}
