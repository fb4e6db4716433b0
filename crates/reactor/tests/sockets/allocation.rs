//! Turns in steady state do not allocate.

use std::io::{Read, Write};
use std::time::Duration;

use crate::common::*;
use reactor::{Config, Event};
use testkit::allocations::calls_of_this_thread;

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
    let before = calls_of_this_thread();
    assert!(before > 0, "the allocator counts");
    rounds(200);
    assert_eq!(calls_of_this_thread() - before, 0);
}
