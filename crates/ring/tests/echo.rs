//! Bytes in, bytes out, over loopback sockets.

mod common;

use std::io::{Read, Write};

use common::*;
use ring::Config;

fn echo(reactor: &mut ring::Reactor<u64>, seen: Seen) {
    if let Seen::Received(key, bytes) = seen {
        *reactor.get_mut(key).unwrap() += bytes.len() as u64;
        reactor.send(key, &bytes);
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
        let mut bytes = [0; 64];
        if let Ok(read) = client.read(&mut bytes) {
            answer.extend_from_slice(&bytes[..read]);
        }
        answer == b"hello"
    });
    assert_eq!(reactor.get(key), Some(&5));
}
