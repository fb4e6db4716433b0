//! A tokio runtime on the caller's thread.

use std::io;
use std::os::unix::net::UnixStream;

use tokio::runtime::{Builder, Runtime};

/// Pairs of descriptors that a runtime takes at most: an epoll instance, its waker, and three sockets for
/// signals.
const PAIRS_MAX: usize = 4;

/// A runtime with all that tokio has.
///
/// # Errors
///
/// The system has no descriptors left. Tokio by itself panics where it gets none for its signals.
pub fn current_thread() -> io::Result<Runtime> {
    let descriptors: io::Result<Vec<_>> = (0..PAIRS_MAX).map(|_| UnixStream::pair()).collect();
    drop(descriptors?);
    Builder::new_current_thread().enable_all().build()
}
