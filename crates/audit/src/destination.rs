//! The open target: how it is opened without ever hanging, and how to tell that it is the same as before.

use std::fs::{self, File, Metadata};
use std::io::{self, Seek, SeekFrom, Write};
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt};
use std::path::Path;

use rustix::fs::{Mode, OFlags};

use super::{OpenError, Target};

/// Of a log that is created: its owner writes, its group reads. It says who works on what.
const MODE: u32 = 0o640;

/// Why a log is not opened: a socket has a path, and nothing that it could be opened by.
pub const IS_A_SOCKET: &str = "it is a socket, which cannot be opened, as standard output and error are under systemd: - is standard output";

/// What lines are written to. A file may be shortened or added to by others at any time.
pub(super) trait Output: Write {
    /// The length of a regular file; others have none.
    fn len(&self) -> Option<u64>;

    /// Whether the file's last line lacks its end. Where it cannot be read, it is taken to be whole.
    fn ends_within_a_line(&self) -> bool;

    /// Where in the file the last write ended.
    fn position(&mut self) -> Option<u64>;

    /// Where the next write begins, if it does not append anyway: without this, a file that was truncated
    /// would begin with as many zeros as it was long.
    fn go_to_end(&mut self);
}

/// What the writer of a running server writes to.
pub(super) type Sink = File;

/// Something open that lines are written to.
#[derive(Debug)]
pub(super) struct Destination<W> {
    to: W,
    /// Device and inode.
    file: Option<(u64, u64)>,
    /// Where the last write ended: there the file ends too, unless others changed it.
    end: Option<u64>,
    /// It ends within a line.
    torn: bool,
}

impl<W: Output> Destination<W> {
    pub(super) fn new(to: W, file: Option<(u64, u64)>) -> Self {
        Self { to, file, end: None, torn: false }
    }

    /// Both are the same file.
    pub(super) fn is_same(&self, other: &Self) -> bool {
        self.file.is_some() && self.file == other.file
    }

    /// What comes next is not the rest of the line that was written last.
    pub(super) fn leave_torn(&mut self) {
        self.torn = true;
    }

    /// Looks whether the file still ends where the last write ended. If not, what comes next begins on a line
    /// of its own.
    pub(super) fn look(&mut self) -> bool {
        let len = self.to.len();
        if len.is_none() || len == self.end {
            return true;
        }
        self.to.go_to_end();
        self.end = len;
        self.torn = self.to.ends_within_a_line();
        false
    }

    /// Writes some of the bytes, as write(2) does, on a line of their own.
    pub(super) fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.torn {
            if self.to.write(b"\n")? == 0 {
                return Ok(0);
            }
            self.torn = false;
        }
        let written = self.to.write(bytes);
        self.end = self.to.position();
        written
    }
}

impl Destination<Sink> {
    pub(super) fn of(to: File) -> Self {
        let file = to.metadata().ok().map(|metadata| (metadata.dev(), metadata.ino()));
        Self::new(to, file)
    }
}

impl Output for Sink {
    fn len(&self) -> Option<u64> {
        self.metadata().ok().filter(Metadata::is_file).map(|metadata| metadata.len())
    }

    /// A process that died, or a disk that was full, can leave half a line behind.
    fn ends_within_a_line(&self) -> bool {
        let last = || {
            let mut byte = [0];
            let readable = fs::File::open(format!("/proc/self/fd/{}", self.as_raw_fd()))?;
            readable.read_exact_at(&mut byte, readable.metadata()?.len() - 1)?;
            io::Result::Ok(byte[0])
        };
        self.len() != Some(0) && last().is_ok_and(|byte| byte != b'\n')
    }

    fn position(&mut self) -> Option<u64> {
        self.stream_position().ok()
    }

    fn go_to_end(&mut self) {
        // What has no positions has no length either, and is not asked.
        let _ = self.seek(SeekFrom::End(0));
    }
}

/// Opens a target.
pub(super) fn open(target: &Target) -> Result<Destination<Sink>, OpenError> {
    let opened = match target {
        // Without the buffer of `io::Stdout`: the writer must know what was written.
        Target::Stdout => io::stdout().as_fd().try_clone_to_owned().map(File::from),
        Target::File(path) => open_file(path),
    };
    let to =
        opened.map_err(|error| OpenError { target: target.clone(), problem: problem(target, &error) })?;
    Ok(Destination::of(to))
}

/// Non-blocking only while it opens: a FIFO without a reader would hold up the caller.
fn open_file(path: &Path) -> io::Result<File> {
    let flags = OFlags::WRONLY | OFlags::APPEND | OFlags::CREATE | OFlags::CLOEXEC | OFlags::NOCTTY;
    let file = rustix::fs::open(path, flags | OFlags::NONBLOCK, Mode::from_raw_mode(MODE))?;
    rustix::fs::fcntl_setfl(&file, OFlags::APPEND)?;
    Ok(file.into())
}

fn problem(target: &Target, error: &io::Error) -> String {
    if error.raw_os_error() != Some(rustix::io::Errno::NXIO.raw_os_error()) {
        return error.to_string();
    }
    let is_socket = |path| fs::metadata(path).is_ok_and(|file| file.file_type().is_socket());
    match target {
        Target::File(path) if is_socket(path) => IS_A_SOCKET.to_owned(),
        _ => "nothing reads from it: start the reader of the FIFO first".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_output_that_does_not_append_goes_on_at_the_start_of_a_file_that_was_truncated() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("stdout");
        let mut destination = Destination::of(File::create(&path).unwrap());
        destination.write(b"first\n").unwrap();
        File::create(&path).unwrap();
        destination.look();
        destination.write(b"second\n").unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "second\n");
    }
}
