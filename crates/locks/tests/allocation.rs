//! The hot path allocates nothing: counted by a counting allocator.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::sync::Arc;

use locks::{Answer, Gate, Table, TokenSource, Turn};
use protocol::{Acquire, Lease, LockName};

thread_local! {
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
}

struct Counting;

// SAFETY: every call is handed on to the system's allocator unchanged.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.set(ALLOCATIONS.get() + 1);
        // SAFETY: the caller keeps the contract of `alloc`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the caller keeps the contract of `dealloc`.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

#[test]
fn heartbeats_and_their_leases_allocate_nothing() {
    let mut table = Table::new(Arc::new(TokenSource::new()));
    let mut turn = Turn { now_ns: 0, unix_ns: 0, gate: Gate::Open };
    let mut effects = Vec::with_capacity(200);
    let lease = Lease::from_ms(20_000).unwrap();
    let ids: Vec<_> = (0..100)
        .map(|conn| {
            let request = Acquire { name: LockName::new(&format!("{}", conn / 2)).unwrap(), lease };
            table.acquire(&turn, conn, request, &mut effects).unwrap()
        })
        .collect();
    let before = ALLOCATIONS.get();
    for _ in 0..100 {
        turn.now_ns += 5_000_000_000;
        for (n, &id) in ids.iter().enumerate() {
            let answer = table.heartbeat(&turn, id, &mut effects).unwrap();
            assert_eq!(answer == Answer::Waiting, n % 2 == 1);
        }
        assert_eq!(table.next_overdue(turn.now_ns), None);
    }
    assert!(before > 0);
    assert_eq!(ALLOCATIONS.get(), before);
}
