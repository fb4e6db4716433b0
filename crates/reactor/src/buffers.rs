//! The ring of provided buffers that multishot receives fill.

use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU16, Ordering};

use io_uring::types::BufRingEntry;

use crate::ring::Ring;
use crate::unavailable::{Step, Unavailable};

/// Bytes of one buffer. A heartbeat is 1 byte plain and 23 bytes as a TLS record; longer input comes in
/// pieces.
pub const BUFFER_BYTES: usize = 64;

/// The one buffer group of a reactor's ring.
pub(crate) const GROUP: u16 = 0;

/// The kernel maps the ring of entries by pages.
const PAGE_BYTES: usize = 4096;

/// Buffers that are either the kernel's (in the ring) or ours (taken by a completion, until
/// [`Buffers::put`]).
pub(crate) struct Buffers {
    entries: NonNull<BufRingEntry>,
    bytes: NonNull<u8>,
    count: u16,
    /// Position of the next entry; runs freely, the ring's size is a power of two.
    tail: u16,
    published: u16,
    leaked: bool,
}

impl Buffers {
    /// Registers `count` buffers (a power of two) with the ring. To be dropped when no receive is in flight
    /// any more.
    pub(crate) fn new(ring: &Ring, count: u16) -> Result<Self, Unavailable> {
        assert!(count.is_power_of_two(), "the kernel wants a power of two, not {count}");
        let (entries, bytes) = layouts(count);
        let mut buffers = Self {
            entries: allocate(entries).cast(),
            bytes: allocate(bytes),
            count,
            tail: 0,
            published: 0,
            leaked: false,
        };
        for id in 0..count {
            buffers.put(id);
        }
        buffers.publish();
        // SAFETY: page-aligned, `count` entries long; freed by our drop, before which every receive is
        // cancelled. The kernel holds the pages of the entries by itself.
        unsafe { ring.register_buffers(buffers.entries.as_ptr() as u64, count, GROUP) }
            .map_err(|error| Unavailable::new(Step::BufferRing, error))?;
        Ok(buffers)
    }

    /// The first `len` bytes of a buffer that a completion gave to us.
    pub(crate) fn bytes(&self, id: u16, len: usize) -> &[u8] {
        assert!(id < self.count && len <= BUFFER_BYTES, "buffer {id} of {len} bytes");
        // SAFETY: within the allocation (asserted), initialised (zeroed), and the kernel writes to it only
        // between `put` and the completion that names it; `put` needs `&mut self`, which ends this borrow.
        unsafe { std::slice::from_raw_parts(self.bytes.as_ptr().add(usize::from(id) * BUFFER_BYTES), len) }
    }

    /// Gives a buffer back; the kernel sees it after [`Buffers::publish`].
    pub(crate) fn put(&mut self, id: u16) {
        assert!(id < self.count, "buffer {id}");
        let at = usize::from(self.tail & (self.count - 1));
        // SAFETY: both are within their allocations; the kernel does not read an entry beyond the published
        // tail.
        unsafe {
            let entry = &mut *self.entries.as_ptr().add(at);
            entry.set_addr(self.bytes.as_ptr().add(usize::from(id) * BUFFER_BYTES) as u64);
            entry.set_len(BUFFER_BYTES as u32);
            entry.set_bid(id);
        }
        self.tail = self.tail.wrapping_add(1);
    }

    /// Shows the kernel all buffers put so far.
    pub(crate) fn publish(&mut self) {
        if self.tail == self.published {
            return;
        }
        self.published = self.tail;
        // SAFETY: the tail overlays a reserved field of the first entry, which `put` never writes; it is
        // aligned, and the kernel only reads it.
        unsafe {
            let tail = BufRingEntry::tail(self.entries.as_ptr()).cast_mut();
            AtomicU16::from_ptr(tail).store(self.tail, Ordering::Release);
        }
    }
}

impl Buffers {
    /// Gives the memory up for good: the kernel may still fill it.
    pub(crate) fn leak(&mut self) {
        self.leaked = true;
    }
}

impl Drop for Buffers {
    fn drop(&mut self) {
        if self.leaked {
            return;
        }
        let (entries, bytes) = layouts(self.count);
        // SAFETY: allocated in `new` with the same layouts, and no receive is in flight: the reactor cancels
        // all before, or leaks.
        unsafe {
            dealloc(self.entries.as_ptr().cast(), entries);
            dealloc(self.bytes.as_ptr(), bytes);
        }
    }
}

fn layouts(count: u16) -> (Layout, Layout) {
    let entries = usize::from(count) * size_of::<BufRingEntry>();
    let layout = |bytes| Layout::from_size_align(bytes, PAGE_BYTES).expect("at most 32768 small entries");
    (layout(entries), layout(usize::from(count) * BUFFER_BYTES))
}

fn allocate(layout: Layout) -> NonNull<u8> {
    // SAFETY: the layout is not empty, `count` is a power of two and so at least 1.
    NonNull::new(unsafe { alloc_zeroed(layout) }).unwrap_or_else(|| handle_alloc_error(layout))
}
