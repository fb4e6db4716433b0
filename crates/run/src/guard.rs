//! The guardian, as `monolock run` sees it: a process to be told how long the group may go on.

use std::io::{self, PipeWriter, Write};
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt;
use std::process::{self, Child};
use std::time::Duration;

use nix::sys::signal::{SigSet, SigmaskHow};
use protocol::Token;
use rustix::io::ioctl_fionbio;
use rustix::process::{Pid, getpid};

use super::guardian;
use super::kin::{LOCK_VARIABLE, TOKEN_VARIABLE};
use super::order::{Deadlines, Order};
use super::signals::Children;
use super::this_program::THIS_PROGRAM;
use super::vigil::Verdict;

/// How long a guardian may take to leave once it was told so: it only has to wake up. Then it is killed.
const LEAVE_MAX: Duration = Duration::from_secs(1);

/// What a guardian has to know of a command.
#[derive(Debug)]
pub(crate) struct Command<'a> {
    pub leader: Pid,
    /// The group that it is in, if that has a number.
    pub group: Option<Pid>,
    pub name: &'a str,
    pub token: Token,
}

/// A guardian and the pipe to it. Dropped without a farewell, the guardian kills the group.
#[derive(Debug)]
pub(crate) struct Guard {
    process: Child,
    orders: PipeWriter,
    told: Deadlines,
    ended: Option<GuardianEnd>,
}

/// How a guardian ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum GuardianEnd {
    /// As it should.
    Left(Verdict),
    /// It was killed, or could not do its work.
    Failed,
}

impl Guard {
    /// Starts a guardian of a command, which lets the command's starter go, over this line, once it is ready.
    /// It holds the connection open until the command is gone: when `monolock run` is killed, the kernel
    /// would close it, and the lock would move while the guardian is still killing.
    pub(crate) fn spawn(
        guarded: &Command<'_>,
        line: OwnedFd,
        connection: OwnedFd,
        deadlines: Deadlines,
    ) -> io::Result<Self> {
        let (reader, mut orders) = io::pipe()?;
        ioctl_fionbio(&orders, true)?;
        orders.write_all(&Order::Watch(deadlines).encode())?;
        let mut command = process::Command::new(THIS_PROGRAM);
        command
            .arg0("monolock")
            .args([guardian::NAME, "--keeper", &getpid().to_string()])
            .args([
                "--group",
                &guarded.group.map_or(0, Pid::as_raw_pid).to_string(),
                &guarded.leader.to_string(),
            ])
            .env(LOCK_VARIABLE, guarded.name)
            .env(TOKEN_VARIABLE, guarded.token.to_string())
            .stdin(reader)
            .stdout(line)
            .stderr(connection)
            .process_group(0);
        // Until it has its own group it is in ours, where Ctrl-C is meant for the command.
        let before = SigSet::all().thread_swap_mask(SigmaskHow::SIG_SETMASK)?;
        let process = command.spawn();
        before.thread_set_mask()?;
        let process = process?;
        Ok(Self { process, orders, told: deadlines, ended: None })
    }

    /// Its number.
    pub(crate) fn id(&self) -> Pid {
        Pid::from_child(&self.process)
    }

    /// Tells the guardian until when the group may go on, if that is news.
    pub(crate) fn tell(&mut self, deadlines: Deadlines) {
        if self.ended.is_some() || deadlines == self.told {
            return;
        }
        self.told = deadlines;
        if self.orders.write_all(&Order::Watch(deadlines).encode()).is_err() {
            // It is dead, or has not read thousands of orders. Its end is heard of as that of any child.
            let _ = self.process.kill();
        }
    }

    /// How it ended, if it has and nobody was told yet.
    pub(crate) fn try_end(&mut self) -> Option<GuardianEnd> {
        if self.ended.is_some() {
            return None;
        }
        let status = self.process.try_wait().expect("our child, waited for by nobody else")?;
        let ended = status.code().and_then(guardian::verdict).map_or(GuardianEnd::Failed, GuardianEnd::Left);
        self.ended = Some(ended);
        self.ended
    }

    /// Tells the guardian to leave.
    pub(crate) fn dismiss(&mut self) {
        let _ = self.orders.write_all(&Order::Farewell.encode());
    }

    /// Waits until a dismissed guardian has left: from then on it sends no signal to the group's number.
    pub(crate) async fn left(mut self, children: &mut Children) -> GuardianEnd {
        let patience = tokio::time::sleep(LEAVE_MAX);
        tokio::pin!(patience);
        loop {
            if let Some(ended) = self.ended.or_else(|| self.try_end()) {
                return ended;
            }
            tokio::select! {
                () = children.changed() => {}
                () = &mut patience, if !patience.is_elapsed() => {
                    let _ = self.process.kill();
                }
            }
        }
    }
}
