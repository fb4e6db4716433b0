//! Turns in steady state do not allocate.

mod common;

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::io::{Read, Write};
use std::time::Duration;

use common::*;
use reactor::{Config, Event};

thread_local! {
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
}

/// Counts the allocations of each thread.
struct Counting;

// SAFETY: hands everything to the system's allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.with(|count| count.set(count.get() + 1));
        // SAFETY: the caller's promise.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        // SAFETY: the caller's promise.
        unsafe { System.dealloc(at, layout) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

#[test]
fn a_turn_in_steady_state_does_not_allocate() {
    let mut reactor = reactor(Config::default());
    let mut clients: Vec<_> = (0..50).map(|_| connect(&mut reactor)).collect();
    let mut rounds = |count: usize| {
        for _ in 0..count {
            for (_, client) in &mut clients {
                client.write_all(&[2]).unwrap();
            }
            let mut answered = 0;
            while answered < clients.len() {
                reactor.wait(Some(Duration::from_millis(5))).unwrap();
                while let Some(event) = reactor.next_event() {
                    let Event::Received { key, .. } = event else { panic!("{event:?}") };
                    reactor.send(key, &[0x12; 9]);
                    answered += 1;
                }
            }
            reactor.wait(Some(Duration::ZERO)).unwrap();
            for (_, client) in &mut clients {
                client.read_exact(&mut [0; 9]).unwrap();
            }
        }
    };
    rounds(20);
    let before = ALLOCATIONS.get();
    rounds(200);
    assert_eq!(ALLOCATIONS.get() - before, 0);
}
