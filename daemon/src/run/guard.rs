//! The guardian, as `monolock run` sees it: a process to be told how long the group may go on.

use std::io::{self, PipeWriter, Write};
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command};
use std::time::Duration;

use rustix::io::ioctl_fionbio;
use rustix::process::Pid;

use super::order::{Deadlines, Order};
use super::signals::Children;
use super::vigil::Verdict;
use super::{THIS_PROGRAM, guardian};

/// How long a guardian may take to leave once it was told so: it only has to wake up. Then it is killed.
const LEAVE_MAX: Duration = Duration::from_secs(1);

/// A guardian and the pipe to it. Dropped without a farewell, the guardian kills the group.
#[derive(Debug)]
pub(crate) struct Guard {
    process: Child,
    orders: PipeWriter,
    told: Deadlines,
    ended: Option<Ended>,
}

/// How a guardian ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ended {
    /// As it should.
    Left(Verdict),
    /// It was killed, or could not do its work.
    Failed,
}

impl Guard {
    /// Starts a guardian of this group, which lets the group's starter go, over this line, once it is ready. It holds the
    /// connection open until the group is gone: when `monolock run` is killed, the kernel would close it, and the lock would
    /// move while the guardian is still killing.
    pub(crate) fn spawn(
        group: Pid,
        line: OwnedFd,
        connection: OwnedFd,
        deadlines: Deadlines,
    ) -> io::Result<Self> {
        let (reader, mut orders) = io::pipe()?;
        ioctl_fionbio(&orders, true)?;
        orders.write_all(&Order::Watch(deadlines).encode())?;
        let process = Command::new(THIS_PROGRAM)
            .arg0("monolock")
            .args([guardian::NAME, &group.as_raw_pid().to_string()])
            .stdin(reader)
            .stdout(line)
            .stderr(connection)
            .process_group(0)
            .spawn()?;
        Ok(Self { process, orders, told: deadlines, ended: None })
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
    pub(crate) fn try_end(&mut self) -> Option<Ended> {
        if self.ended.is_some() {
            return None;
        }
        let status = self.process.try_wait().expect("our child, waited for by nobody else")?;
        let ended = status.code().and_then(guardian::verdict).map_or(Ended::Failed, Ended::Left);
        self.ended = Some(ended);
        self.ended
    }

    /// Tells the guardian to leave.
    pub(crate) fn dismiss(&mut self) {
        let _ = self.orders.write_all(&Order::Farewell.encode());
    }

    /// Waits until a dismissed guardian has left: from then on it sends no signal to the group's number.
    pub(crate) async fn left(mut self, children: &mut Children) -> Ended {
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
