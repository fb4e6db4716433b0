//! Threads without which the server is none: when one panics, the process ends at once.
//!
//! A lock server that goes on with a shard missing would leave that shard's clients waiting in the dark. Ended, it closes every
//! connection, and a supervisor starts it anew within milliseconds.

use std::io;
use std::thread::{self, JoinHandle};

/// Exit status after an internal error: EX_SOFTWARE of sysexits.h.
const EXIT_SOFTWARE: i32 = 70;

/// Spawns a named thread whose panic ends the process.
pub(crate) fn spawn(name: String, body: impl FnOnce() + Send + 'static) -> io::Result<JoinHandle<()>> {
    thread::Builder::new().name(name).spawn(|| {
        let _bomb = this_thread();
        body();
    })
}

/// Makes a panic of this thread end the process, for as long as the value lives.
pub(crate) fn this_thread() -> Bomb {
    Bomb
}

/// See [`this_thread`].
#[must_use]
pub(crate) struct Bomb;

impl Drop for Bomb {
    fn drop(&mut self) {
        if thread::panicking() {
            std::process::exit(EXIT_SOFTWARE);
        }
    }
}
