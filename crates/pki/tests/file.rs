//! Files that may be read, and those that might never end.

use std::io;
use std::path::Path;

use pki::file::read;
use rustix::fs::{CWD, FileType, Mode, mknodat};

/// The bound.
const LEN_MAX: u64 = 4 << 20;

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
