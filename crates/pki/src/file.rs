//! Reads the files that settings name.

use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use rustix::fs::OFlags;

/// The longest file: a thousand authorities, or tens of thousands of ACL rules. A claim that fits none looks at all of them:
/// 30 000 take 2 ms.
const LEN_MAX: u64 = 4 << 20;

/// The bytes of a regular file. Anything else is refused: a FIFO or a device might never come to an end, and a reload has to.
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

#[cfg(test)]
mod tests {
    use rustix::fs::{CWD, FileType, Mode, mknodat};

    use super::*;

    #[test]
    fn a_file_is_read_in_whole_up_to_a_bound() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        for len in [0, 1, LEN_MAX as usize] {
            std::fs::write(&path, vec![b'x'; len]).unwrap();
            assert_eq!(read(&path).unwrap().len(), len);
        }
        std::fs::write(&path, vec![b'x'; LEN_MAX as usize + 1]).unwrap();
        assert_eq!(read(&path).unwrap_err().to_string(), "larger than 4 MiB");
    }

    #[test]
    fn what_might_never_end_is_refused_at_once() {
        let folder = tempfile::tempdir().unwrap();
        let fifo = folder.path().join("fifo");
        mknodat(CWD, &fifo, FileType::Fifo, Mode::RWXU, 0).unwrap();
        for path in [&fifo, Path::new("/dev/zero")] {
            assert_eq!(read(path).unwrap_err().to_string(), "not a regular file", "{}", path.display());
        }
        assert_eq!(read(folder.path()).unwrap_err().kind(), io::ErrorKind::IsADirectory);
        assert_eq!(read(&folder.path().join("missing")).unwrap_err().kind(), io::ErrorKind::NotFound);
    }
}
