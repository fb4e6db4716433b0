//! Signals that this process relies on, whatever its parent has blocked.
//!
//! A mask of blocked signals outlives exec. Some parents leave one behind: service wrappers, test runners,
//! programs that fork from a thread that takes no signals.

use std::io;

use nix::sys::signal::{SigSet, SigmaskHow, Signal};

/// The signals that the parent has blocked for this process.
#[derive(Debug, Clone, Copy)]
pub struct ParentsMask(SigSet);

/// Unblocks signals in this thread and in those that it starts from now on.
///
/// Comes before the first thread, which would keep the parent's mask, and after the handlers: what is pending
/// comes at once.
pub fn unblock(relied_on: &[rustix::process::Signal]) -> io::Result<ParentsMask> {
    let mut set = SigSet::empty();
    for signal in relied_on {
        set.add(Signal::try_from(signal.as_raw())?);
    }
    Ok(ParentsMask(set.thread_swap_mask(SigmaskHow::SIG_UNBLOCK)?))
}

/// Lets this thread, and those that it starts from now on, write to a terminal in whose background the
/// process runs.
///
/// Under `stty tostop` such a write stops the whole process, for good; where the signal for that is blocked
/// it is done.
pub fn write_in_the_background() -> io::Result<()> {
    let mut output = SigSet::empty();
    output.add(Signal::SIGTTOU);
    Ok(output.thread_block()?)
}

impl ParentsMask {
    /// Runs `start` under the parent's mask: a process that it starts gets the mask that it would have had
    /// without us. What comes meanwhile to this thread comes right after.
    pub fn lend<T>(&self, start: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
        let _back = TakenBack(self.0.thread_swap_mask(SigmaskHow::SIG_SETMASK)?);
        start()
    }
}

/// Puts a mask back in place when dropped.
struct TakenBack(SigSet);

impl Drop for TakenBack {
    fn drop(&mut self) {
        self.0.thread_set_mask().expect("a mask that was in place is a valid one");
    }
}
