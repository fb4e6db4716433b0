//! Whether input is on its way.

use std::collections::HashSet;
use std::io::Write;
use std::time::Duration;

use crate::common::*;
use reactor::Config;

#[test]
fn has_unread_is_true_from_the_socket_to_the_event() {
    let mut reactor = reactor(Config::default());
    let (key, mut client) = connect(&mut reactor);
    reactor.wait(Some(Duration::ZERO)).unwrap();
    assert!(!reactor.has_unread(key));
    assert!(reactor.is_reading(key));
    client.write_all(b"x").unwrap();
    assert!(reactor.has_unread(key), "in the socket");
    reactor.wait(None).unwrap();
    assert!(reactor.next_event().is_some());
    assert!(reactor.next_event().is_none());
    assert!(!reactor.has_unread(key));
}

#[test]
#[should_panic(expected = "before the completions were drained")]
fn nobody_is_judged_while_a_completion_may_be_his() {
    let mut reactor = reactor(Config::default());
    let (key, mut client) = connect(&mut reactor);
    client.write_all(b"x").unwrap();
    reactor.wait(None).unwrap();
    reactor.has_unread(key);
}

#[test]
fn what_others_have_sent_is_no_unread_input() {
    for config in [Config::default(), Config { buffers: 32, completions: 16, ..Config::default() }] {
        let mut reactor = reactor(config);
        let (silent, _client) = connect(&mut reactor);
        let mut others: Vec<_> = (0..200).map(|_| connect(&mut reactor)).collect();
        for turn in 0..10 {
            // More than a turn takes, so that the kernel has completions ready whenever it is entered.
            others.iter_mut().for_each(|(_, other)| other.write_all(&[b'x'; 256]).unwrap());
            reactor.wait(None).unwrap();
            let mut events = 0;
            while let Some(seen) = reactor.next_event().map(Seen::of) {
                assert!(matches!(seen, Seen::Received(..)), "{seen:?}");
                events += 1;
            }
            assert!(events > 0 || turn == 0);
            assert!(!reactor.has_unread(silent));
            reactor.submit().unwrap();
        }
    }
}

#[test]
fn has_unread_sees_input_before_the_receive_is_armed() {
    let mut reactor = reactor(Config::default());
    reactor.wait(Some(Duration::ZERO)).unwrap();
    let (key, mut client) = connect(&mut reactor);
    assert!(!reactor.has_unread(key) && !reactor.is_reading(key));
    client.write_all(b"x").unwrap();
    assert!(reactor.has_unread(key));
}

#[test]
fn nobody_of_a_thousand_is_overlooked_while_a_turn_brings_twenty() {
    for config in [Config::default(), Config { buffers: 32, completions: 16, ..Config::default() }] {
        let mut reactor = reactor(config);
        let mut clients: Vec<_> = (0..1000).map(|_| connect(&mut reactor)).collect();
        reactor.wait(Some(Duration::ZERO)).unwrap();
        while reactor.next_event().is_some() {}
        for (_, client) in &mut clients {
            client.write_all(b"x").unwrap();
        }
        let mut waiting: HashSet<_> = clients.iter().map(|(key, _)| *key).collect();
        let mut turns = 0;
        while !waiting.is_empty() {
            reactor.wait(None).unwrap();
            while let Some(seen) = reactor.next_event().map(Seen::of) {
                let Seen::Received(key, _) = seen else { panic!("{seen:?}") };
                assert!(waiting.remove(&key));
            }
            assert!(waiting.iter().all(|key| reactor.has_unread(*key)));
            turns += 1;
        }
        assert!(turns > 10, "{turns} turns: one enter does not bring everything");
        reactor.wait(Some(Duration::ZERO)).unwrap();
        assert!(reactor.next_event().is_none());
        assert!(clients.iter().all(|(key, _)| !reactor.has_unread(*key)));
    }
}
