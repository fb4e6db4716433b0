//! The reactor over real sockets.

mod allocation;
mod close;
mod common;
mod descriptors;
mod echo;
mod ends;
mod fairness;
mod pressure;
mod unread;
mod wake;

use testkit::allocations::CountingAllocator;

/// Counts by thread: other tests go on meanwhile.
#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator;
