//! The arguments of `monolock run`.

use std::ffi::OsString;
use std::time::Duration;

use cli::{Flags, parse_duration};

use super::flags::Run;
use super::status;

/// How a name is told from the command.
const USAGE: &str = "monolock run [FLAGS] [--] NAME -- CMD [ARGUMENTS]
       monolock run [FLAGS] -c SCRIPT [--] NAME";

/// Runs a command for as long as a lock is held.
///
/// Waits in the lock's queue, then runs CMD with the lock's name in MONOLOCK_LOCK and the fencing token of
/// this grant in MONOLOCK_TOKEN. If the claim is lost, CMD and all that descends from it get SIGTERM, and
/// SIGKILL in time to be dead 0.9 × lease after the claim's last confirmation. What CMD leaves running when
/// it ends gets SIGTERM, and SIGKILL a second later; then the lock is released. That includes who left CMD's
/// process group (setsid, timeout, a daemon): what is to outlive CMD is started by the service manager. What
/// cannot be stopped (another user's, or stuck in the kernel) is named.
///
/// While it waits, it connects again when the server restarts or cannot be reached: after 0.1 s at first, 5 s
/// at last, at the end of the queue. It goes on until --wait is over, or without it for ever; a refusal for
/// good and a kick by an administrator end it. A lock that is held does not outlive its connection: a restart
/// of the server stops CMD (status 74).
///
/// At a terminal it tells what it waits for. Elsewhere it only says what is wrong; -v says everything.
///
/// At a terminal CMD belongs to the shell's job, as if it had been started alone: it may read the terminal,
/// and Ctrl-C, Ctrl-Z, fg and bg reach it. A stopped CMD keeps the lock, and a line says so. A stopped job
/// that still waits keeps its place; a turn that comes meanwhile goes to the next in the line. Elsewhere CMD
/// has a process group of its own.
///
/// Signals (HUP, INT, QUIT, TERM, USR1, USR2, ALRM) are forwarded to CMD's group; while waiting they end the
/// wait. CMD starts with the signals blocked and ignored that it would have alone.
///
/// A second process (`monolock run-guardian`) stops CMD when `monolock run` is stopped or late, and kills all
/// at once when `monolock run` is killed; who left CMD's group, and at a terminal everybody but CMD itself,
/// is then known by the two variables alone. If the guardian is killed, `monolock run` stops CMD (status 70).
/// If both are, the kernel kills CMD itself; children of CMD go on.
#[derive(Debug, clap::Args)]
#[command(after_help = status::HELP, override_usage = USAGE)]
pub struct RunArgs {
    #[command(flatten)]
    pub(super) flags: Flags<Run>,
    /// Give up, with status 75, when the lock was not acquired in this time; with 69 if the server cannot be
    /// reached at its end. 0 is --try.
    #[arg(short, long, value_name = "DURATION", value_parser = parse_duration, conflicts_with = "try_once")]
    pub(super) wait: Option<Duration>,
    /// Give up at once, with status 75, when the lock is held; with 69 if the server cannot be reached.
    #[arg(short = 'n', long = "try")]
    pub(super) try_once: bool,
    /// The status instead of 75 when another client holds the lock, at once (--try) or still (--wait). A wait
    /// in vain is then no fault, so it is told at a terminal only.
    #[arg(short = 'E', long, value_name = "STATUS", value_parser = exit_status)]
    pub(super) conflict_exit_code: Option<u8>,
    /// Tell of the wait, of each attempt to connect, and of the lock's token.
    #[arg(short, long, conflicts_with = "quiet")]
    pub(super) verbose: bool,
    /// Only say what is wrong, also at a terminal.
    #[arg(short, long)]
    pub(super) quiet: bool,
    /// Instead of CMD: this, by the shell in $SHELL, or /bin/sh.
    #[arg(short = 'c', long = "command", value_name = "SCRIPT", allow_hyphen_values = true)]
    pub(super) script: Option<OsString>,
    /// The lock. A name that begins with a dash has a -- before it.
    pub(super) name: Option<String>,
    /// The command and its arguments.
    #[arg(last = true, value_name = "CMD")]
    pub(super) command: Vec<OsString>,
}

fn exit_status(text: &str) -> Result<u8, String> {
    text.parse().map_err(|_| format!("a number from 0 to {} is expected", u8::MAX))
}
