//! The command's start: its process exists, and its group is known and guarded, before it becomes the
//! command.
//!
//! A starter is this program again, as the leader of the new group. It becomes the command once the guardian
//! lets it go. exec may hang (it reads a file, and a file may be on a network that is gone): it hangs there
//! and nowhere else.

use std::convert::Infallible;
use std::ffi::{CString, OsString};
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitCode};

use inherited::Ignored;
use nix::unistd::execvp;
use protocol::Token;
use rustix::process::{Signal, set_parent_process_death_signal};
use rustix::stdio::dup2_stdin;

use super::input::{receive_input, send_input};
use super::kin::{LOCK_VARIABLE, TOKEN_VARIABLE};
use super::signals::Inherited;
use super::status;
use super::this_program::THIS_PROGRAM;

/// The subcommand's name.
const NAME: &str = "run-starter";

/// Lets the starter go.
const GO: u8 = b'g';

/// The starter's first word: it becomes the command now. An errno follows if that failed.
const BEGUN: u8 = b'b';

/// `run-starter`: not for people.
#[derive(Debug, clap::Args)]
pub struct StarterArgs {
    /// What the command ignores, as [`Ignored::bits`].
    #[arg(long, default_value_t = 0)]
    ignored: u64,
    #[arg(last = true, required = true)]
    command: Vec<OsString>,
}

/// What became of the command.
#[derive(Debug)]
pub(crate) enum Begun {
    /// It has not been started.
    No,
    /// It runs or ran, or hangs in its exec.
    Yes,
    /// It cannot be run.
    Failed(io::Error),
}

/// A line to the starter. It ends for the starter when nobody who could let it go is left.
#[derive(Debug)]
pub(crate) struct Line {
    stream: UnixStream,
    heard: Vec<u8>,
}

impl Line {
    /// For whoever lets the starter go, by [`let_go`].
    pub(crate) fn for_guardian(&self) -> io::Result<OwnedFd> {
        Ok(self.stream.try_clone()?.into())
    }

    /// For a group whose leader is no starter.
    #[cfg(test)]
    pub(crate) fn to_nobody() -> Self {
        let (stream, _) = UnixStream::pair().unwrap();
        Self { stream, heard: Vec::new() }
    }

    /// What is known of the command so far; exact once the starter or command has ended.
    pub(crate) fn begun(&mut self) -> Begun {
        let mut bytes = [0; 8];
        // The end and an error leave it at what was heard.
        while let Ok(count @ 1..) = self.stream.read(&mut bytes) {
            self.heard.extend_from_slice(&bytes[..count]);
        }
        match self.heard[..] {
            [] => Begun::No,
            [_, a, b, c, d] => Begun::Failed(io::Error::from_raw_os_error(i32::from_ne_bytes([a, b, c, d]))),
            _ => Begun::Yes,
        }
    }
}

/// Makes a process that waits to become the command, in our group or one of its own.
pub(crate) fn spawn(
    command: &[OsString],
    name: &str,
    token: Token,
    (inherited, shares_group): (Inherited, bool),
) -> io::Result<(Child, Line)> {
    let (ours, theirs) = UnixStream::pair()?;
    send_input(&ours)?;
    let mut starter = Command::new(THIS_PROGRAM);
    starter
        .arg0("monolock")
        .args([NAME, "--ignored", &inherited.ignored.bits().to_string(), "--"])
        .args(command)
        .env(LOCK_VARIABLE, name)
        .env(TOKEN_VARIABLE, token.to_string())
        .stdin(OwnedFd::from(theirs));
    if !shares_group {
        starter.process_group(0);
    }
    // A starter relies on no signal, and the command keeps its mask.
    let leader = inherited.mask.lend(|| starter.spawn())?;
    ours.set_nonblocking(true)?;
    Ok((leader, Line { stream: ours, heard: Vec::new() }))
}

/// Lets the starter at the other end of this line go.
pub(crate) fn let_go(line: impl AsFd) -> io::Result<()> {
    rustix::io::write(line, &[GO])?;
    Ok(())
}

/// The starter itself.
pub fn start(args: &StarterArgs) -> ExitCode {
    match become_command(args) {
        Ok(never) => match never {},
        // Nobody hears more: `monolock run` is gone, or has been told.
        Err(error) => ExitCode::from(status::of_spawn_error(&error)),
    }
}

fn become_command(StarterArgs { ignored, command }: &StarterArgs) -> io::Result<Infallible> {
    let mut line = UnixStream::from(io::stdin().as_fd().try_clone_to_owned()?);
    dup2_stdin(receive_input(&line)?)?;
    // Should both `monolock run` and the guardian be killed, this at least ends with them.
    set_parent_process_death_signal(Some(Signal::KILL))?;
    line.read_exact(&mut [0])?;
    let words = command.iter().map(|word| CString::new(word.as_bytes())).collect::<Result<Vec<_>, _>>()?;
    line.write_all(&[BEGUN])?;
    // Not by std, which gives SIGPIPE its default.
    Ignored::from_bits(*ignored).apply();
    let Err(errno) = execvp(&words[0], &words);
    line.write_all(&(errno as i32).to_ne_bytes())?;
    Err(errno.into())
}
