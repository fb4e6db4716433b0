//! A keeper's way to its front, and what goes over it.

use std::io::{self, Read};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;

use inherited::Ignored;
use rustix::stdio::dup2_stdin;

use super::input::receive_input;

/// The subcommand's name.
pub(crate) const KEEPER: &str = "run-keeper";

/// Asks the front to give the terminal its modes back when it ends.
pub(super) const RESTORE: u8 = b'r';

/// Asks the front to stop, so that the shell has the terminal: the command alone was stopped.
pub(super) const STOP: u8 = b's';

/// A keeper's way to its front.
#[derive(Debug)]
pub(crate) struct ToFront {
    pub line: UnixStream,
    /// Whether the command belongs into the front's process group.
    pub shares_group: bool,
    /// What the command ignores.
    pub ignored: Ignored,
}

impl ToFront {
    /// The keeper's standard input is the line, over which the real one comes.
    pub(crate) fn take() -> io::Result<Self> {
        let mut line = UnixStream::from(io::stdin().as_fd().try_clone_to_owned()?);
        dup2_stdin(receive_input(&line)?)?;
        let (mut shares_group, mut ignored) = ([0], [0; 8]);
        line.read_exact(&mut shares_group)?;
        line.read_exact(&mut ignored)?;
        line.set_nonblocking(true)?;
        let ignored = Ignored::from_bits(u64::from_ne_bytes(ignored));
        Ok(Self { line, shares_group: shares_group != [0], ignored })
    }
}
