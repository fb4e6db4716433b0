//! An allocator that counts, for tests that say: from here on nothing is allocated.
//!
//! A test makes it its own with
//! `#[global_allocator] static ALLOCATOR: CountingAllocator = CountingAllocator;`.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicU64, Ordering};

/// Calls by thread id, modulo the length: two threads of a test would share a place only after thousands of
/// others.
static CALLS: [AtomicU64; 4096] = [const { AtomicU64::new(0) }; 4096];

/// The system's allocator, with every call counted for its thread.
#[derive(Debug, Clone, Copy)]
pub struct CountingAllocator;

/// Calls of the allocator so far by the thread with this id, as `/proc/self/task` names it.
pub fn calls_of(thread: usize) -> u64 {
    CALLS[thread % CALLS.len()].load(Ordering::Relaxed)
}

/// The same of the calling thread.
pub fn calls_of_this_thread() -> u64 {
    calls_of(this_thread())
}

fn this_thread() -> usize {
    rustix::thread::gettid().as_raw_nonzero().get().unsigned_abs() as usize
}

fn count() {
    CALLS[this_thread() % CALLS.len()].fetch_add(1, Ordering::Relaxed);
}

// SAFETY: every call is passed on to the system's allocator as it came; counting touches no memory of the
// heap.
unsafe impl GlobalAlloc for CountingAllocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count();
        // SAFETY: the caller's promise is the same.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        count();
        // SAFETY: the caller's promise is the same.
        unsafe { System.dealloc(pointer, layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        count();
        // SAFETY: the caller's promise is the same.
        unsafe { System.realloc(pointer, layout, new_size) }
    }
}
