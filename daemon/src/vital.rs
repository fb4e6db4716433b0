//! Threads without which the server is none: when one panics, the process ends at once.
//!
//! A lock server that goes on with a shard missing would leave that shard's clients waiting in the dark.
//! Ended, it closes every connection, and a supervisor starts it anew within milliseconds.

use std::cell::Cell;
use std::convert::Infallible;
use std::io;
use std::panic::{self, PanicHookInfo};
use std::process;
use std::thread;
use std::time::Duration;

use tokio::sync::oneshot;
use tracing::error;

use cli::exit;

/// How long the end of the process waits for the panic's line to be written. A log that is read takes far
/// less.
const LAST_LINE_MAX: Duration = Duration::from_millis(100);

thread_local! {
    static IS_VITAL: Cell<bool> = const { Cell::new(false) };
}

/// Makes panics known through the log, and those of vital threads the end of the process.
///
/// The standard library's hook writes to standard error itself, and hangs where nobody reads that. Nothing is
/// unwound first: what would be dropped may wait too, as a runtime does for its threads.
pub(crate) fn install_hook() {
    let without_log = panic::take_hook();
    panic::set_hook(Box::new(move |panic| {
        if logging::has_started() {
            log(panic);
        } else {
            // There is no other thread yet, and nobody who could wait for this one.
            without_log(panic);
        }
        if ends_the_process() {
            logging::flush(LAST_LINE_MAX);
            process::exit(exit::SOFTWARE.into());
        }
    }));
}

fn log(panic: &PanicHookInfo<'_>) {
    let thread = thread::current();
    let thread = thread.name().unwrap_or("unnamed");
    let place = panic.location().map(tracing::field::display);
    let what = panic.payload_as_str().unwrap_or("a panic without a text");
    error!(thread, place, "an error in monolock itself: {what}");
}

/// A task's panic ends no more than the task: whoever waits for it decides.
fn ends_the_process() -> bool {
    IS_VITAL.try_with(Cell::get).unwrap_or(false) && tokio::task::try_id().is_none()
}

/// Starts a named thread whose panic ends the process.
///
/// # Errors
///
/// As [`threads::start`].
pub(crate) fn start(name: String, body: impl FnOnce() + Send + 'static) -> io::Result<Thread> {
    let (ending, ended) = oneshot::channel();
    threads::start(name, move || {
        let _bomb = this_thread();
        body();
        drop(ending);
    })?;
    Ok(Thread { ended })
}

/// A vital thread that was started.
#[derive(Debug)]
pub(crate) struct Thread {
    ended: oneshot::Receiver<Infallible>,
}

impl Thread {
    /// Waits until its work is done and everything that this used is dropped.
    pub(crate) async fn ended(self) {
        let Err(_) = self.ended.await;
    }
}

/// Makes a panic of this thread end the process, for as long as the value lives.
pub(crate) fn this_thread() -> Bomb {
    IS_VITAL.set(true);
    Bomb
}

/// See [`this_thread`].
#[must_use]
pub(crate) struct Bomb;

impl Drop for Bomb {
    fn drop(&mut self) {
        if thread::panicking() {
            // Under another hook than ours.
            process::exit(exit::SOFTWARE.into());
        }
        IS_VITAL.set(false);
    }
}

#[cfg(test)]
mod tests;
