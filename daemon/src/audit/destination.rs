//! The open target: how it is opened without ever hanging, and how to tell that it is the same as before.

use std::fs::{self, File};
use std::io::{self, Write};
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;

use rustix::fs::{Mode, OFlags};

use super::{OpenError, Target};

/// Of a log that is created: its owner writes, its group reads. It says who works on what.
const MODE: u32 = 0o640;

/// What the writer of a running server writes to.
pub(super) type Sink = File;

/// Something open that lines are written to.
#[derive(Debug)]
pub(super) struct Destination<W> {
    to: W,
    /// Device and inode.
    file: Option<(u64, u64)>,
    /// It ends within a line.
    torn: bool,
}

impl<W: Write> Destination<W> {
    pub(super) fn new(to: W, file: Option<(u64, u64)>, torn: bool) -> Self {
        Self { to, file, torn }
    }

    /// Both are the same file.
    pub(super) fn is_same(&self, other: &Self) -> bool {
        self.file.is_some() && self.file == other.file
    }

    /// What comes next is not the rest of the line that was written last.
    pub(super) fn leave_torn(&mut self) {
        self.torn = true;
    }

    /// Writes some of the bytes, as write(2) does, on a line of their own.
    pub(super) fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.torn {
            if self.to.write(b"\n")? == 0 {
                return Ok(0);
            }
            self.torn = false;
        }
        self.to.write(bytes)
    }
}

/// Opens a target.
pub(super) fn open(target: &Target) -> Result<Destination<Sink>, OpenError> {
    let opened = match target {
        // Without the buffer of `io::Stdout`: the writer must know what was written.
        Target::Stdout => io::stdout().as_fd().try_clone_to_owned().map(File::from),
        Target::File(path) => open_file(path),
    };
    let to = opened.map_err(|error| OpenError { target: target.clone(), problem: problem(&error) })?;
    let metadata = to.metadata().ok();
    let file = metadata.as_ref().map(|metadata| (metadata.dev(), metadata.ino()));
    let torn = metadata.is_some_and(|metadata| metadata.is_file() && ends_within_a_line(&to, metadata.len()));
    Ok(Destination::new(to, file, torn))
}

/// Non-blocking only while it opens: a FIFO without a reader would hold up the caller.
fn open_file(path: &Path) -> io::Result<File> {
    let flags = OFlags::WRONLY | OFlags::APPEND | OFlags::CREATE | OFlags::CLOEXEC | OFlags::NOCTTY;
    let file = rustix::fs::open(path, flags | OFlags::NONBLOCK, Mode::from_raw_mode(MODE))?;
    rustix::fs::fcntl_setfl(&file, OFlags::APPEND)?;
    Ok(file.into())
}

/// A process that died, or a disk that was full, can leave half a line behind; the next must not be glued to it.
/// Where the file cannot be read, it is taken to be whole.
fn ends_within_a_line(file: &File, len: u64) -> bool {
    let last = || {
        let mut byte = [0];
        let readable = fs::File::open(format!("/proc/self/fd/{}", file.as_raw_fd()))?;
        readable.read_exact_at(&mut byte, len - 1)?;
        io::Result::Ok(byte[0])
    };
    len > 0 && last().is_ok_and(|byte| byte != b'\n')
}

fn problem(error: &io::Error) -> String {
    if error.raw_os_error() == Some(rustix::io::Errno::NXIO.raw_os_error()) {
        "nothing reads from it: start the reader of the FIFO first".into()
    } else {
        error.to_string()
    }
}
