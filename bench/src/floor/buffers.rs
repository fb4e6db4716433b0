//! Receive buffers that the kernel picks from: a ring of them, shared with it.

use std::alloc::{Layout, alloc_zeroed, handle_alloc_error};
use std::io;
use std::sync::atomic::{AtomicU16, Ordering};

use io_uring::IoUring;
use io_uring::types::BufRingEntry;

/// The buffer group that receives name.
pub(super) const GROUP: u16 = 1;

/// Buffers in the ring, a power of two: above what one turn delivers even with every connection busy.
const BUFFERS: u16 = 8192;

/// Bytes a buffer: some ACQUIREs and any number of heartbeats that pile up within a turn.
const BUFFER_BYTES: usize = 64;

/// The kernel wants the ring page-aligned.
const PAGE_BYTES: usize = 4096;

/// The ring and its memory. The memory is never freed: a ring is torn down some time after it is closed, and
/// the kernel may write until then. A process has one floor.
pub(super) struct Buffers {
    entries: *mut BufRingEntry,
    bytes: *mut u8,
    tail: u16,
}

impl Buffers {
    pub(super) fn register(ring: &IoUring) -> io::Result<Self> {
        let entries = allocate(usize::from(BUFFERS) * size_of::<BufRingEntry>()).cast::<BufRingEntry>();
        let bytes = allocate(usize::from(BUFFERS) * BUFFER_BYTES);
        // SAFETY: `entries` is page-aligned memory for BUFFERS zeroed entries, and is never freed.
        unsafe { ring.submitter().register_buf_ring_with_flags(entries as u64, BUFFERS, GROUP, 0)? };
        let mut buffers = Self { entries, bytes, tail: 0 };
        (0..BUFFERS).for_each(|id| buffers.give_back(id));
        buffers.publish();
        Ok(buffers)
    }

    /// What the kernel wrote into a buffer that it picked and that was not given back yet.
    pub(super) fn filled(&self, id: u16, len: usize) -> &[u8] {
        assert!(id < BUFFERS && len <= BUFFER_BYTES, "buffer {id} with {len} bytes");
        // SAFETY: in bounds as asserted, initialised (zeroed at first), and the kernel leaves a picked buffer
        // alone until it is published again, which needs `&mut self`.
        unsafe { std::slice::from_raw_parts(self.at(id), len) }
    }

    /// Puts a buffer back; the kernel sees it after [`Buffers::publish`].
    pub(super) fn give_back(&mut self, id: u16) {
        assert!(id < BUFFERS, "buffer {id}");
        let address = self.at(id) as u64;
        let index = usize::from(self.tail & (BUFFERS - 1));
        // SAFETY: `index` is below BUFFERS; the kernel reads only entries before the published tail, and
        // never more than BUFFERS buffers are in the ring, so this entry is ours. The setters leave the tail
        // (in the first entry's padding) alone.
        let entry = unsafe { &mut *self.entries.add(index) };
        entry.set_addr(address);
        entry.set_len(BUFFER_BYTES as u32);
        entry.set_bid(id);
        self.tail = self.tail.wrapping_add(1);
    }

    /// Shows the kernel all buffers that were given back.
    pub(super) fn publish(&mut self) {
        // SAFETY: `entries` is the ring's first entry, where the tail lies; it is aligned for a u16, lives
        // forever, and is shared with the kernel, hence the atomic store.
        let tail = unsafe { AtomicU16::from_ptr(BufRingEntry::tail(self.entries).cast_mut()) };
        tail.store(self.tail, Ordering::Release);
    }

    fn at(&self, id: u16) -> *mut u8 {
        // SAFETY: every caller asserted `id < BUFFERS`.
        unsafe { self.bytes.add(usize::from(id) * BUFFER_BYTES) }
    }
}

fn allocate(bytes: usize) -> *mut u8 {
    let layout = Layout::from_size_align(bytes, PAGE_BYTES).expect("a few hundred KiB, page-aligned");
    // SAFETY: the layout is not empty.
    let memory = unsafe { alloc_zeroed(layout) };
    if memory.is_null() {
        handle_alloc_error(layout);
    }
    memory
}
