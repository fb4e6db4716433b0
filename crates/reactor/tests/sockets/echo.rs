//! Bytes in, bytes out, over loopback sockets.

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;

use crate::common::*;
use reactor::{Config, Reactor};
use testkit::random::Random;

fn echo(reactor: &mut Reactor<u64>, seen: Seen) {
    if let Seen::Received(key, bytes) = seen {
        *reactor.get_mut(key).unwrap() += bytes.len() as u64;
        reactor.send(key, &bytes);
    }
}

/// Reads what is there; the stream is non-blocking.
fn read_available(client: &mut TcpStream, into: &mut Vec<u8>) {
    let mut bytes = [0; 4096];
    match client.read(&mut bytes) {
        Ok(read) => into.extend_from_slice(&bytes[..read]),
        Err(error) => assert_eq!(error.kind(), ErrorKind::WouldBlock),
    }
}

#[test]
fn what_is_received_can_be_sent_back() {
    let mut reactor = reactor(Config::default());
    let (key, mut client) = connect(&mut reactor);
    client.write_all(b"hello").unwrap();
    let mut answer = Vec::new();
    client.set_nonblocking(true).unwrap();
    drive(&mut reactor, echo, |_| {
        read_available(&mut client, &mut answer);
        answer == b"hello"
    });
    assert_eq!(reactor.get(key), Some(&5));
}

#[test]
fn a_stream_survives_splitting_and_gluing() {
    let mut random = Random::of_one_run();
    let mut reactor = reactor(Config::default());
    let (_, mut client) = connect(&mut reactor);
    client.set_nonblocking(true).unwrap();
    let stream: Vec<u8> = (0..200_000u32).map(|at| (at * 7 + at / 251) as u8).collect();
    let (mut written, mut answer) = (0, Vec::new());
    drive(&mut reactor, echo, |_| {
        let end = (written + 1 + random.below(3_000) as usize).min(stream.len());
        written += client.write(&stream[written..end]).unwrap_or(0);
        read_available(&mut client, &mut answer);
        answer.len() == stream.len()
    });
    assert!(answer == stream);
}

fn everyone_gets_its_own_answers(config: Config, connections: usize) {
    let mut reactor = reactor(config);
    let mut clients: Vec<_> = (0..connections).map(|_| connect(&mut reactor).1).collect();
    for client in &clients {
        client.set_nonblocking(true).unwrap();
    }
    for round in 0..3 {
        let own = |at: usize| ((at + round) as u32).to_be_bytes();
        for (at, client) in clients.iter_mut().enumerate() {
            client.write_all(&own(at)).unwrap();
        }
        let mut answers = vec![Vec::new(); connections];
        drive(&mut reactor, echo, |_| {
            for (client, answer) in clients.iter_mut().zip(&mut answers) {
                if answer.len() < 4 {
                    read_available(client, answer);
                }
            }
            answers.iter().all(|answer| answer.len() == 4)
        });
        assert!(answers.iter().enumerate().all(|(at, answer)| answer[..] == own(at)));
    }
    assert_eq!(reactor.open(), connections);
}

#[test]
fn a_thousand_connections_get_their_own_answers() {
    everyone_gets_its_own_answers(Config::default(), 1000);
}

#[test]
fn more_connections_than_direct_descriptors_work() {
    everyone_gets_its_own_answers(Config { sockets_max: 10, ..Config::default() }, 50);
    everyone_gets_its_own_answers(Config { sockets_max: 0, ..Config::default() }, 5);
}

#[test]
fn more_completions_than_the_queue_holds_lose_nothing() {
    everyone_gets_its_own_answers(Config { completions: 16, ..Config::default() }, 300);
}

#[test]
fn more_data_than_buffers_loses_nothing() {
    everyone_gets_its_own_answers(Config { buffers: 4, ..Config::default() }, 300);
}

#[test]
fn a_storm_on_four_buffers_stays_in_order() {
    let mut reactor = reactor(Config { buffers: 4, completions: 16, ..Config::default() });
    let stream: Vec<u8> = (0..30_000u32).map(|at| (at * 7 + at / 251) as u8).collect();
    let mut clients: Vec<_> = (0..20).map(|_| connect(&mut reactor)).collect();
    for (_, client) in &mut clients {
        client.write_all(&stream).unwrap();
    }
    let mut received = vec![Vec::new(); clients.len()];
    let at = |key| clients.iter().position(|(known, _)| *known == key).unwrap();
    let total = std::cell::Cell::new(0);
    drive(
        &mut reactor,
        |_, seen| {
            let Seen::Received(key, bytes) = seen else { panic!("{seen:?}") };
            received[at(key)].extend_from_slice(&bytes);
            total.set(total.get() + bytes.len());
        },
        |_| total.get() == 20 * stream.len(),
    );
    assert!(received.iter().all(|received| *received == stream));
}
