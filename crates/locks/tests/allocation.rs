//! The hot path allocates nothing: counted by a counting allocator.

use std::sync::Arc;

use locks::{Answer, Gate, Opening, Table, TokenSource, Turn};
use protocol::{Acquire, Lease, LockName};
use testkit::allocations::{CountingAllocator, calls_of_this_thread};

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator;

#[test]
fn heartbeats_and_their_leases_allocate_nothing() {
    let mut table = Table::new(Arc::new(TokenSource::new()));
    let mut turn = Turn { now_ns: 0, unix_ns: 0, gate: Gate::Open(Opening::FIRST) };
    let mut effects = Vec::with_capacity(200);
    let lease = Lease::from_ms(20_000).unwrap();
    let ids: Vec<_> = (0..100)
        .map(|conn| {
            let request = Acquire { name: LockName::new(&format!("{}", conn / 2)).unwrap(), lease };
            table.acquire(&turn, conn, request, &mut effects).unwrap()
        })
        .collect();
    let before = calls_of_this_thread();
    for _ in 0..100 {
        turn.now_ns += 5_000_000_000;
        for (n, &id) in ids.iter().enumerate() {
            let answer = table.heartbeat(&turn, id, &mut effects).unwrap();
            assert_eq!(answer == Answer::Waiting, n % 2 == 1);
        }
        assert_eq!(table.next_overdue(turn.now_ns), None);
    }
    assert!(before > 0);
    assert_eq!(calls_of_this_thread(), before);
}
