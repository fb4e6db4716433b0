//! Peers that send more than a turn can take, and those beside them.

use std::io::{ErrorKind, Write};
use std::net::TcpStream;

use crate::common::*;
use reactor::{Config, Key, Reactor};

/// Few buffers, so that two busy peers fill them in a turn: the kernel lets one receive fill up to 32 before
/// the next.
const BUFFERS: u16 = 64;

const FLOODERS: usize = 40;

/// Every peer is served in so many turns, twice over: each turn, two are.
const TURNS_MAX: usize = FLOODERS;

/// A peer whose input fills every buffer between here and there.
fn flooder(reactor: &mut Reactor<u64>) -> (Key, TcpStream) {
    let (key, mut client) = connect(reactor);
    client.set_nonblocking(true).unwrap();
    loop {
        match client.write(&[2; 4096]) {
            Ok(_) => {}
            Err(error) if error.kind() == ErrorKind::WouldBlock => return (key, client),
            Err(error) => panic!("{error}"),
        }
    }
}

#[test]
fn a_peer_that_sends_a_byte_is_heard_in_its_turn_beside_many_that_send_without_pause() {
    let mut reactor = reactor(Config { buffers: BUFFERS, ..Config::default() });
    let (quiet, mut client) = connect(&mut reactor);
    let _flooders: Vec<_> = (0..FLOODERS).map(|_| flooder(&mut reactor)).collect();
    for _ in 0..5 {
        client.write_all(&[2]).unwrap();
        let turns = (1..).find(|_| is_heard_in_a_turn(&mut reactor, quiet)).unwrap();
        assert!(turns <= TURNS_MAX, "heard after {turns} turns");
    }
}

fn is_heard_in_a_turn(reactor: &mut Reactor<u64>, quiet: Key) -> bool {
    let mut is_heard = false;
    reactor.wait(Some(PATIENCE)).unwrap();
    while let Some(seen) = reactor.next_event().map(Seen::of) {
        let Seen::Received(key, _) = seen else { panic!("{seen:?}") };
        is_heard |= key == quiet;
        // Whoever is answered has something to be planned for in the next turn.
        reactor.send(key, &[0x11]);
    }
    is_heard
}
