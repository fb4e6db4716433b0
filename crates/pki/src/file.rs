//! Reads the files that settings name.

use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use rustix::fs::OFlags;

/// The longest file: a thousand authorities, or tens of thousands of ACL rules. A claim that fits none looks
/// at all of them: 30 000 take 2 ms.
const LEN_MAX: u64 = 4 << 20;

/// The bytes of a regular file. Anything else is refused: a FIFO or a device might never come to an end, and
/// a reload has to.
pub fn read(path: &Path) -> io::Result<Vec<u8>> {
    // Opening a FIFO that nobody writes to would wait.
    let nonblocking = OFlags::NONBLOCK.bits().cast_signed();
    let file = File::options().read(true).custom_flags(nonblocking).open(path)?;
    let kind = file.metadata()?.file_type();
    // Reading a directory fails by itself.
    if !kind.is_file() && !kind.is_dir() {
        return Err(io::Error::other("not a regular file"));
    }
    let mut bytes = Vec::new();
    file.take(LEN_MAX + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > LEN_MAX {
        return Err(io::Error::other(format!("larger than {} MiB", LEN_MAX >> 20)));
    }
    Ok(bytes)
}
