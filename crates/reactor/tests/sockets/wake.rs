//! Waking from other threads.

use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::common::*;
use reactor::{Config, Event, Reactor};
use testkit::random::Random;

#[test]
fn no_wake_up_is_lost() {
    const CALLS: u64 = 20_000;
    let mut random = Random::of_one_run();
    let mut reactor = reactor(Config::default());
    let waker = reactor.waker();
    let (posted, seen) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
    let caller = {
        let (posted, seen) = (posted.clone(), seen.clone());
        std::thread::spawn(move || {
            for call in 1..=CALLS {
                for _ in 0..random.below(2_000) {
                    std::hint::spin_loop();
                }
                posted.store(call, Ordering::Relaxed);
                waker.wake();
                // The next call waits for this one: a lost one stands still.
                if call % 2 == 0 {
                    let deadline = Instant::now() + PATIENCE;
                    while seen.load(Ordering::Acquire) != call {
                        assert!(Instant::now() < deadline, "call {call} was lost");
                        std::thread::yield_now();
                    }
                }
            }
        })
    };
    while seen.load(Ordering::Relaxed) != CALLS {
        let start = Instant::now();
        reactor.wait(Some(PATIENCE / 2)).unwrap();
        assert!(start.elapsed() < PATIENCE / 4, "a sleeping reactor was not woken");
        while let Some(event) = reactor.next_event() {
            assert!(matches!(event, Event::Woken));
            seen.store(posted.load(Ordering::Relaxed), Ordering::Release);
        }
    }
    caller.join().unwrap();
}

#[test]
fn a_wake_before_the_wait_returns_it_at_once() {
    let mut reactor: Reactor<u64> = reactor(Config::default());
    reactor.waker().wake();
    reactor.waker().wake();
    reactor.wait(None).unwrap();
    assert!(matches!(reactor.next_event(), Some(Event::Woken)));
    assert!(reactor.next_event().is_none(), "two calls, one report");
}

#[test]
fn a_wait_ends_at_its_timeout() {
    let mut reactor: Reactor<u64> = reactor(Config::default());
    for timeout in [Duration::ZERO, Duration::from_millis(20)] {
        let start = Instant::now();
        // The first wait arms the wake-up.
        reactor.wait(Some(timeout)).unwrap();
        assert!(reactor.next_event().is_none());
        assert!(start.elapsed() >= timeout && start.elapsed() < PATIENCE);
    }
}

#[test]
fn a_turn_brings_something() {
    const MESSAGES: usize = 20_000;
    let mut random = Random::of_one_run();
    let mut reactor = reactor(Config::default());
    let mut clients: Vec<_> = (0..20).map(|_| connect(&mut reactor)).collect();
    let keys: Vec<_> = clients.iter().map(|(key, _)| *key).collect();
    reactor.wait(Some(Duration::ZERO)).unwrap();
    let sending = std::thread::spawn(move || {
        for at in 0..MESSAGES {
            clients[at % 20].1.write_all(&[2]).unwrap();
            // Bursts, so that work arrives while the reactor is at work, and pauses to see whether it sleeps.
            for _ in 0..if at % 20 == 0 { random.below(50_000) } else { 0 } {
                std::hint::spin_loop();
            }
        }
        clients
    });
    let (mut turns, mut empty, mut received) = (0, 0, 0);
    while received < MESSAGES {
        reactor.wait(Some(PATIENCE)).unwrap();
        let before = received;
        while let Some(event) = reactor.next_event() {
            let Event::Received { key, bytes, .. } = event else { panic!("{event:?}") };
            received += bytes.len();
            reactor.send(key, &[0x12; 9]);
        }
        turns += 1;
        empty += usize::from(received == before);
    }
    assert!(empty < turns / 10 + 50, "{empty} of {turns} turns brought nothing");
    let _clients = sending.join().unwrap();
    reactor.wait(Some(Duration::ZERO)).unwrap();
    assert!(
        keys.iter().all(|key| !reactor.has_unread(*key)),
        "nothing is there, whatever flags are left over"
    );
}
