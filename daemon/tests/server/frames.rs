//! Frames in both directions: any split, any gluing, any name, one answer for each heartbeat.

use std::thread;
use std::time::Duration;

use protocol::ServerFrame;

use crate::harness::{Server, acquire};

const LEASE: Duration = Duration::from_secs(60);

#[test]
fn a_stream_split_byte_by_byte_is_the_same_stream() {
    let server = Server::start();
    let mut peer = server.connect();
    let mut stream = acquire("split/lock", LEASE);
    stream.extend([2, 2]);
    for byte in stream {
        peer.send(&[byte]);
        // Lets each byte travel alone; not a condition of the test.
        thread::sleep(Duration::from_millis(1));
    }
    let token = peer.acquired();
    assert_eq!([peer.acquired(), peer.acquired()], [token, token]);
}

#[test]
fn heartbeats_glued_to_the_acquire_are_answered_after_it() {
    let server = Server::start();
    let mut stream = acquire("glued", LEASE);
    stream.extend([2; 100]);
    let mut holder = server.connect();
    holder.send(&stream);
    let token = holder.acquired();
    (0..100).for_each(|_| assert_eq!(holder.acquired(), token));

    let mut waiter = server.connect();
    waiter.send(&stream);
    (0..101).for_each(|_| waiter.waiting());
}

#[test]
fn names_with_nul_newline_and_255_bytes_are_names_like_any_other() {
    let server = Server::start();
    let names = ["nul\0", "line\nbreak", " ", "a/b/c", "\u{1b}[31m", &"é".repeat(127), &"x".repeat(255)];
    let mut held: Vec<_> = names.iter().map(|name| server.hold(name, LEASE)).collect();
    for (name, (holder, token)) in names.iter().zip(&mut held) {
        server.wait_in_line(name, LEASE).close();
        holder.heartbeat();
        assert_eq!(holder.acquired(), *token, "{name:?} is one lock");
    }
    server.wait_for_metric("monolock_locks_held", 7.0);
}

#[test]
fn names_that_differ_in_case_or_space_or_form_are_different_locks() {
    let server = Server::start();
    let names = ["a", "A", "a ", "\u{e9}", "e\u{301}"];
    let held: Vec<_> = names.iter().map(|name| server.hold(name, LEASE)).collect();
    assert_eq!(held.len(), names.len());
}

#[test]
fn the_longest_lease_is_a_lease() {
    let server = Server::start();
    server.hold("lock", Duration::from_millis(u64::from(u32::MAX)));
}

#[test]
fn exactly_one_frame_answers_each_heartbeat_and_one_push_tells_the_promotion() {
    let server = Server::start();
    let (holder, first) = server.hold("lock", LEASE);
    let mut waiter = server.wait_in_line("lock", LEASE);
    for _ in 0..10 {
        waiter.heartbeat();
        waiter.waiting();
    }
    holder.close();
    let token = waiter.acquired();
    assert!(token > first);
    for _ in 0..10 {
        waiter.heartbeat();
        assert_eq!(waiter.acquired(), token, "every ACQUIRED carries the token of the grant");
    }
    assert!(waiter.is_silent_for(Duration::from_millis(50)), "no frame that nobody asked for");
}

#[test]
fn heartbeats_in_flight_at_the_promotion_are_each_answered_besides_the_push() {
    let server = Server::start();
    for round in 0..200 {
        let name = format!("race-{round}");
        let (holder, _) = server.hold(&name, LEASE);
        let mut waiter = server.wait_in_line(&name, LEASE);
        let closer = thread::spawn(move || holder.close());
        const HEARTBEATS: usize = 5;
        (0..HEARTBEATS).for_each(|_| waiter.heartbeat());
        closer.join().unwrap();

        // WAITING for some, then the push and ACQUIRED for the rest: one frame more than heartbeats, in that
        // order.
        let frames: Vec<_> = (0..=HEARTBEATS).map(|_| waiter.frame()).collect();
        let waiting = frames.iter().take_while(|frame| **frame == ServerFrame::Waiting).count();
        assert!(waiting <= HEARTBEATS, "the push is among them: {frames:?}");
        assert!(
            frames[waiting..]
                .iter()
                .all(|frame| *frame == frames[waiting] && matches!(frame, ServerFrame::Acquired(_))),
            "no WAITING after an ACQUIRED: {frames:?}"
        );
        if round % 50 == 0 {
            assert!(waiter.is_silent_for(Duration::from_millis(20)));
        }
    }
}
