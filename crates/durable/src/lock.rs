//! One process at a time.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{Read, Write};
use std::path::Path;
use std::process;
use std::thread;
use std::time::{Duration, Instant};

use crate::{Fault, Problem, cannot};

/// How long between two tries.
const TRY_AGAIN_AFTER: Duration = Duration::from_millis(10);

/// An exclusive lock of a file: the kernel gives it back when the process ends, however it ends. Programs
/// that the process starts do not inherit it.
#[derive(Debug)]
pub struct Lock {
    _file: File,
}

impl Lock {
    /// Takes the lock, and waits at most that long for another process to give it back. The file is made when
    /// it is not there.
    ///
    /// # Errors
    ///
    /// Another process keeps it, or the file cannot be opened.
    pub fn take(path: &Path, wait_max: Duration) -> Result<Self, Fault> {
        let started = Instant::now();
        let file = OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path);
        let mut file = file.map_err(cannot("open", path))?;
        loop {
            match file.try_lock() {
                Ok(()) => break,
                Err(TryLockError::WouldBlock) if started.elapsed() < wait_max => {
                    thread::sleep(TRY_AGAIN_AFTER);
                }
                Err(TryLockError::WouldBlock) => {
                    return Err(Problem::InUse { holder: written_id(&mut file) }.of(path));
                }
                Err(TryLockError::Error(error)) => return Err(cannot("lock", path)(error)),
            }
        }
        // For people who look who has it; nothing depends on it.
        let _ = file.set_len(0).and_then(|()| writeln!(file, "{}", process::id()));
        Ok(Self { _file: file })
    }
}

fn written_id(file: &mut File) -> Option<u32> {
    let mut text = String::new();
    file.take(16).read_to_string(&mut text).ok()?;
    text.trim().parse().ok()
}
