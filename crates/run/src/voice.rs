//! What `monolock run` says, to standard error: never in the way of what it does.
//!
//! The command has the same standard error, and may fill it up or outlive its reader. So one thread writes,
//! and what it cannot write is dropped.

use std::fmt::Arguments;
use std::io::{self, Stderr, Write};

use nix::sys::signal::{SigSet, Signal};

use logging::queue::{self, Flush, Lines};

/// The entrance to the writing thread. Never blocks or fails.
#[derive(Debug, Clone)]
pub(crate) struct Voice(Lines);

impl Voice {
    /// Starts the thread. What was said is written, within a bound, before the second part is dropped.
    pub(crate) fn start() -> io::Result<(Self, Flush)> {
        let (lines, flush) = queue::start(Unstopped(io::stderr()), |_| ())?;
        Ok((Self(lines), flush))
    }

    /// Says one line.
    pub(crate) fn say(&self, words: Arguments<'_>) {
        self.0.clone().write_all(format!("monolock run: {words}\n").as_bytes()).expect("a queue takes all");
    }
}

/// Standard error, written to also where a terminal stops a background job that writes (`stty tostop`): who
/// is stopped kills nobody. The terminal asks the writing thread alone whether it blocks the signal.
#[derive(Debug)]
struct Unstopped(Stderr);

impl Write for Unstopped {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        SigSet::from(Signal::SIGTTOU).thread_block()?;
        self.0.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}
