//! The io_uring itself: set-up, one submission queue, one completion queue, one enter.

use std::io;
use std::ptr::NonNull;
use std::time::Duration;

use io_uring::types::{CancelBuilder, SubmitArgs, Timespec};
use io_uring::{CompletionQueue, IoUring, SubmissionQueue, Submitter, cqueue, squeue};

use crate::unavailable::{Step, Unavailable};

/// Entries of the submission queue (64 B each). A turn that has more to submit enters once more in between.
pub(crate) const SUBMISSIONS: u32 = 1024;

/// Slots of the direct descriptor table at most: 16 B of kernel memory each, taken at once. The kernel's own
/// limit is 2²⁰.
const DIRECT_SLOTS_MAX: u32 = 65_536;

/// How long dropping a ring waits for its operations to be cancelled. Cancelling socket operations takes
/// microseconds; the limit is for a kernel that never answers.
const CANCEL_TIMEOUT: Duration = Duration::from_millis(200);

/// Stands for no timeout where the kernel wants one. An idle wait returns once an hour.
const GATHER_TIMEOUT: Duration = Duration::from_secs(3600);

/// What this kernel offers beyond the required minimum.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Capabilities {
    /// A wait that gathers completions for a while before it returns (`IORING_FEAT_MIN_TIMEOUT`, Linux 6.12).
    pub min_wait: bool,
    /// A direct descriptor is let go when it is taken out of its table. Before Linux 6.13 that waits for
    /// every operation that was begun before: while one receive goes on, each socket that is closed stays in
    /// the kernel's memory. 6.13 has no mark of its own, so this is known from 6.15 on
    /// (`IORING_FEAT_NO_IOWAIT`).
    pub direct_lets_go: bool,
}

impl Capabilities {
    /// The size of the direct descriptor table; 0 for none.
    pub(crate) fn direct_slots(self, sockets_max: u32, nofile: u64) -> u32 {
        if !self.direct_lets_go {
            return 0;
        }
        sockets_max.min(DIRECT_SLOTS_MAX).min(u32::try_from(nofile).unwrap_or(u32::MAX))
    }
}

/// One completion.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Completion {
    pub(crate) user_data: u64,
    pub(crate) result: i32,
    flags: u32,
}

impl Completion {
    /// The operation goes on (multishot).
    pub(crate) fn more(self) -> bool {
        cqueue::more(self.flags)
    }

    /// The provided buffer that now belongs to us.
    pub(crate) fn buffer(self) -> Option<u16> {
        cqueue::buffer_select(self.flags)
    }
}

/// An io_uring that belongs to the thread that opened it (neither `Send` nor `Sync`, through its pointer).
pub(crate) struct Ring {
    /// Keeps the registered descriptor of the ring, which the crate remembers per submitter.
    submitter: Submitter<'static>,
    uring: NonNull<IoUring>,
}

impl Ring {
    pub(crate) fn open(submissions: u32, completions: u32) -> Result<Self, Unavailable> {
        let uring = IoUring::builder()
            .setup_single_issuer()
            .setup_defer_taskrun()
            .setup_taskrun_flag()
            .setup_submit_all()
            .setup_cqsize(completions)
            .build(submissions)
            .map_err(|error| Unavailable::new(Step::Setup, error))?;
        let uring = NonNull::from(Box::leak(Box::new(uring)));
        // SAFETY: the box is freed only by this Ring's drop, and the submitter does not outlive the Ring.
        let mut submitter = unsafe { uring.as_ref() }.submitter();
        // A thread may register 16 rings; one more works with its plain descriptor.
        let _ = submitter.register_ring_fd();
        Ok(Self { submitter, uring })
    }

    fn uring(&self) -> &IoUring {
        // SAFETY: points to the box leaked in `open`, freed only in `drop`; no `&mut` to it is ever made.
        unsafe { self.uring.as_ref() }
    }

    fn submission(&self) -> SubmissionQueue<'_> {
        // SAFETY: only methods of this module make a queue, each lets it go before it returns or makes
        // another, and the ring is not Sync.
        unsafe { self.uring().submission_shared() }
    }

    fn completion(&self) -> CompletionQueue<'_> {
        // SAFETY: as in `submission`.
        unsafe { self.uring().completion_shared() }
    }

    pub(crate) fn capabilities(&self) -> Capabilities {
        let kernel = self.uring().params();
        Capabilities {
            min_wait: kernel.is_feature_min_timeout(),
            direct_lets_go: kernel.is_feature_no_iowait(),
        }
    }

    /// Registers an empty table of `entries` direct descriptors.
    pub(crate) fn register_direct_table(&self, entries: u32) -> io::Result<()> {
        self.submitter.register_files_sparse(entries)
    }

    /// Puts a descriptor into the table, or takes it out with −1.
    pub(crate) fn set_direct(&self, slot: u32, fd: i32) -> io::Result<()> {
        self.submitter.register_files_update(slot, &[fd]).map(drop)
    }

    /// # Safety
    ///
    /// `entries` points to a page-aligned ring of `count` entries that lives until the ring is dropped.
    pub(crate) unsafe fn register_buffers(&self, entries: u64, count: u16, group: u16) -> io::Result<()> {
        // SAFETY: the caller's promise.
        unsafe { self.submitter.register_buf_ring_with_flags(entries, count, group, 0) }
    }

    /// Makes room for `entries` submissions, by submitting if needed. False if the kernel takes none now.
    pub(crate) fn make_room(&self, entries: usize) -> bool {
        let room = || {
            let queue = self.submission();
            queue.capacity() - queue.len()
        };
        room() >= entries || {
            // What failed here fails again in the turn's enter, which reports it.
            let _ = self.submitter.submit();
            room() >= entries
        }
    }

    /// Queues a submission for the next enter.
    ///
    /// # Safety
    ///
    /// The memory that the entry names stays in place, unread bytes unchanged, until the kernel is done with
    /// it.
    ///
    /// # Panics
    ///
    /// There is no room; see [`Ring::make_room`].
    pub(crate) unsafe fn push(&self, entry: &squeue::Entry) {
        // SAFETY: the caller's promise.
        unsafe { self.submission().push(entry) }.expect("room was made");
    }

    /// Whether the kernel has taken everything that was pushed.
    pub(crate) fn all_submitted(&self) -> bool {
        self.submission().is_empty()
    }

    /// Whether the kernel says that work of ours waits for an enter. It may say so when there is none.
    pub(crate) fn has_task_work(&self) -> bool {
        self.submission().taskrun()
    }

    /// Whether completions wait in the kernel because the queue was full.
    pub(crate) fn overflown(&self) -> bool {
        self.submission().cq_overflow()
    }

    /// Whether no completion is in the queue.
    pub(crate) fn is_drained(&self) -> bool {
        self.completion().is_empty()
    }

    pub(crate) fn pop(&self) -> Option<Completion> {
        let entry = self.completion().next()?;
        Some(Completion { user_data: entry.user_data(), result: entry.result(), flags: entry.flags() })
    }

    /// Submits everything and waits for `want` completions, at most `timeout`; with `min_wait_us` it returns
    /// with any number ≥ 1 once so much time has passed.
    ///
    /// # Errors
    ///
    /// Only what no later call can mend; timeouts, signals and a crowded queue are a normal return.
    pub(crate) fn enter(&self, want: usize, timeout: Option<Duration>, min_wait_us: u32) -> io::Result<()> {
        // Without a timeout the kernel takes the minimum for one and returns with nothing: waking up for
        // nothing.
        let timeout = timeout.or((min_wait_us > 0).then_some(GATHER_TIMEOUT));
        let timespec = timeout.map(Timespec::from);
        let mut args = SubmitArgs::new();
        if let Some(timespec) = &timespec {
            args = args.timespec(timespec);
        }
        if min_wait_us > 0 {
            args = args.min_wait_usec(min_wait_us);
        }
        match self.submitter.submit_with_args(want, &args) {
            Ok(_) => Ok(()),
            Err(error) => match error.raw_os_error() {
                // Time is up; a signal came; completions must be drained first; no memory for a request just
                // now.
                Some(libc::ETIME | libc::EINTR | libc::EBUSY | libc::EAGAIN) => Ok(()),
                _ => Err(error),
            },
        }
    }

    /// Cancels every operation and waits, for a bounded time, until the kernel is done with them. Whether it
    /// is.
    pub(crate) fn cancel_all(&self) -> bool {
        match self.submitter.register_sync_cancel(Some(CANCEL_TIMEOUT.into()), CancelBuilder::any()) {
            Ok(()) => true,
            // ENOENT: nothing was in flight.
            Err(error) => error.raw_os_error() == Some(libc::ENOENT),
        }
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        // The registration holds a reference to the ring: without this it would live as long as the thread.
        let _ = self.submitter.unregister_ring_fd();
        // SAFETY: made from a box in `open`; the submitter, the only other user, is not used again.
        drop(unsafe { Box::from_raw(self.uring.as_ptr()) });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_direct_table_is_bounded_and_absent_where_it_would_keep_closed_sockets() {
        let kernel = Capabilities { min_wait: true, direct_lets_go: true };
        assert_eq!(kernel.direct_slots(100, 1024), 100);
        assert_eq!(kernel.direct_slots(u32::MAX, 1024), 1024);
        assert_eq!(kernel.direct_slots(u32::MAX, u64::MAX), DIRECT_SLOTS_MAX);
        assert_eq!(Capabilities { direct_lets_go: false, ..kernel }.direct_slots(100, 1024), 0);
    }
}
