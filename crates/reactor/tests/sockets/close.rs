//! Letting connections go.

use std::collections::HashMap;
use std::io::{ErrorKind, Read, Write};
use std::time::{Duration, Instant};

use crate::common::*;
use reactor::{Config, DRAIN_BYTES_MAX, DRAIN_MAX};
use testkit::random::Random;

const LAST: &[u8] = b"\x13\x02\x04bye!";

#[test]
fn a_close_sends_fin_with_the_next_submission() {
    let mut reactor = reactor(Config::default());
    let (key, mut client) = connect(&mut reactor);
    reactor.wait(Some(Duration::ZERO)).unwrap();
    reactor.close(key);
    reactor.submit().unwrap();
    assert_eq!(client.read(&mut [0; 8]).unwrap(), 0, "no turn was needed");
    settle(&mut reactor);
}

#[test]
fn a_thousand_that_are_closed_at_once_hold_up_no_answer_and_are_all_let_go() {
    let mut reactor = reactor(Config::default());
    let mut many: Vec<_> = (0..1000).map(|_| connect(&mut reactor)).collect();
    let (last, mut client) = connect(&mut reactor);
    reactor.wait(Some(Duration::ZERO)).unwrap();
    assert!(many.iter().all(|(key, _)| reactor.close(*key).is_some()));
    reactor.send(last, b"answer");
    reactor.submit().unwrap();
    let mut open = 0;
    for (_, other) in &mut many {
        other.set_nonblocking(true).unwrap();
        open += usize::from(other.read(&mut [0; 8]).is_err());
    }
    assert!(open > 500, "only {open} of 1000 were left for later turns");
    client.read_exact(&mut [0; 6]).unwrap();
    drive(&mut reactor, |_, seen| panic!("{seen:?}"), |reactor| reactor.closing() == 0);
    assert_eq!(reactor.open(), 1);
    for (_, other) in &mut many {
        other.set_nonblocking(false).unwrap();
        assert_eq!(other.read(&mut [0; 8]).unwrap(), 0);
    }
}

#[test]
fn the_last_frame_arrives_although_sixty_kilobytes_are_unread() {
    for armed in [false, true] {
        let mut reactor = reactor(Config::default());
        let (key, mut client) = connect(&mut reactor);
        if armed {
            reactor.wait(Some(Duration::ZERO)).unwrap();
        }
        client.write_all(&[2; 60_000]).unwrap();
        reactor.send(key, b"before ");
        assert_eq!(reactor.close_after(key, LAST), Some(0));
        assert_eq!((reactor.open(), reactor.closing()), (0, 1));
        let reading = std::thread::spawn(move || {
            let mut all = Vec::new();
            client.read_to_end(&mut all).map(|_| all)
        });
        drive(&mut reactor, |_, seen| panic!("{seen:?}"), |reactor| reactor.closing() == 0);
        let all = reading.join().unwrap().expect("no RST");
        assert_eq!(all, [b"before ", LAST].concat());
    }
}

#[test]
fn the_last_frame_waits_for_a_socket_that_is_full() {
    let mut reactor = reactor(Config::default());
    let (key, mut client) = connect(&mut reactor);
    let flood = vec![7; 8 << 20];
    reactor.send(key, &flood);
    for _ in 0..5 {
        reactor.wait(Some(Duration::from_millis(1))).unwrap();
        assert!(reactor.next_event().is_none());
    }
    reactor.close_after(key, LAST);
    let reading = std::thread::spawn(move || {
        let mut all = Vec::new();
        client.read_to_end(&mut all).map(|_| all)
    });
    settle(&mut reactor);
    let all = reading.join().unwrap().expect("no RST");
    assert_eq!(all.len(), flood.len() + LAST.len());
    assert!(all.ends_with(LAST));
}

#[test]
fn a_peer_that_never_closes_drains_for_a_bounded_time() {
    // Beyond the test's patience, so that it is not what ends the wait.
    let mut reactor = reactor(Config { io_timeout: 2 * PATIENCE, ..Config::default() });
    let (key, _client) = connect(&mut reactor);
    let start = Instant::now();
    reactor.close_after(key, LAST);
    settle(&mut reactor);
    assert!(start.elapsed() >= DRAIN_MAX);
}

#[test]
fn a_peer_that_keeps_sending_drains_a_bounded_amount() {
    let mut reactor = reactor(Config { io_timeout: Duration::from_secs(60), ..Config::default() });
    let (key, mut client) = connect(&mut reactor);
    let start = Instant::now();
    reactor.close_after(key, LAST);
    let flooding = std::thread::spawn(move || while client.write_all(&[2; 1 << 16]).is_ok() {});
    settle(&mut reactor);
    assert!(start.elapsed() < DRAIN_MAX, "{DRAIN_BYTES_MAX} bytes are faster than the time limit");
    flooding.join().unwrap();
}

#[test]
fn the_oldest_drain_gives_way_to_the_newest() {
    let mut reactor = reactor(Config::default());
    let clients: Vec<_> = (0..Config::default().draining_max + 10).map(|_| connect(&mut reactor)).collect();
    reactor.wait(Some(Duration::ZERO)).unwrap();
    for (key, _) in &clients {
        reactor.close_after(*key, LAST);
    }
    let start = Instant::now();
    drive(&mut reactor, |_, _| {}, |reactor| reactor.closing() <= Config::default().draining_max);
    assert!(start.elapsed() < DRAIN_MAX / 2);
    settle(&mut reactor);
    assert!(start.elapsed() < 4 * DRAIN_MAX);
    for (at, (_, mut client)) in clients.into_iter().enumerate() {
        let mut all = Vec::new();
        client.read_to_end(&mut all).unwrap();
        assert_eq!(all == LAST, at >= 10, "connection {at}");
    }
}

#[test]
fn a_slots_next_user_gets_no_completion_of_its_predecessor() {
    let mut random = Random::of_one_run();
    let mut reactor = reactor(Config { sockets_max: 8, ..Config::default() });
    let listener = listener();
    let mut live = HashMap::new();
    let mut slots = HashMap::new();
    for round in 0..3_000u64 {
        let (server, mut client) = pair(&listener);
        client.set_nonblocking(true).unwrap();
        client.write_all(&[round as u8; 100]).unwrap();
        let key = reactor.insert(server, round).unwrap();
        assert!(live.insert(key, (round, client)).is_none());
        *slots.entry(key.index()).or_insert(0) += 1;
        if random.below(2) == 0 {
            reactor.wait(Some(Duration::ZERO)).unwrap();
        }
        while random.below(8) > 0 {
            let Some(seen) = reactor.next_event().map(Seen::of) else { break };
            let Seen::Received(key, bytes) = seen else { panic!("{seen:?}") };
            let (owner, client) = live.get_mut(&key).expect("a live key");
            assert!(bytes.iter().all(|byte| *byte == *owner as u8));
            reactor.send(key, &bytes);
            let mut answer = [0; 256];
            match client.read(&mut answer) {
                Ok(read) => assert!(answer[..read].iter().all(|byte| *byte == *owner as u8)),
                Err(error) => assert_eq!(error.kind(), ErrorKind::WouldBlock),
            }
        }
        while live.len() > random.below(12) as usize {
            let key = *live.keys().next().unwrap();
            let (owner, _client) = live.remove(&key).unwrap();
            let data = if random.below(3) == 0 { reactor.close_after(key, LAST) } else { reactor.close(key) };
            assert_eq!(data, Some(owner));
            assert!(reactor.get(key).is_none());
        }
    }
    assert!(slots.values().any(|&users| users > 100), "slots were used again");
    for key in live.keys() {
        reactor.close(*key);
    }
    settle(&mut reactor);
}
