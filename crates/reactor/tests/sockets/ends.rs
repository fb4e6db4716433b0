//! How connections end, and whose doing it was.

use std::io::Write;
use std::net::TcpStream;
use std::process::{Command, Stdio};
use std::time::Duration;

use crate::common::*;
use reactor::{Config, Ended, Errno, Event};
use rustix::net::sockopt;

fn reset(client: TcpStream) {
    sockopt::set_socket_linger(&client, Some(Duration::ZERO)).unwrap();
    drop(client);
}

fn ends(seen: &[Seen]) -> Vec<Ended> {
    seen.iter().filter_map(|seen| if let Seen::Ended(_, how) = seen { Some(*how) } else { None }).collect()
}

#[test]
fn a_close_is_an_eof_after_the_bytes_before_it() {
    let mut reactor = reactor(Config::default());
    let (key, mut client) = connect(&mut reactor);
    client.write_all(b"bye").unwrap();
    drop(client);
    let seen = collect(&mut reactor, |seen| !ends(seen).is_empty());
    assert_eq!(bytes(&seen), b"bye");
    assert_eq!(seen.last(), Some(&Seen::Ended(key, Ended::Eof)));
    assert_eq!(reactor.close(key), Some(0));
    assert_eq!(reactor.close(key), None, "closing twice is harmless");
    settle(&mut reactor);
    assert_eq!((reactor.open(), reactor.closing()), (0, 0));
}

#[test]
fn a_reset_is_a_reset() {
    let mut reactor = reactor(Config::default());
    let (key, client) = connect(&mut reactor);
    reactor.wait(Some(Duration::ZERO)).unwrap();
    reset(client);
    assert_eq!(collect(&mut reactor, |seen| !seen.is_empty()), [Seen::Ended(key, Ended::Reset)]);
}

#[test]
fn a_reset_before_the_receive_is_armed_is_a_reset() {
    let mut reactor = reactor(Config::default());
    let (key, client) = connect(&mut reactor);
    reset(client);
    assert_eq!(collect(&mut reactor, |seen| !seen.is_empty()), [Seen::Ended(key, Ended::Reset)]);
}

#[test]
fn a_reset_that_a_send_sees_first_is_a_reset() {
    let mut reactor = reactor(Config::default());
    let (key, client) = connect(&mut reactor);
    reset(client);
    // The first submission is the receive or the send, whatever comes first: the cause is the same.
    reactor.send(key, b"late");
    assert_eq!(collect(&mut reactor, |seen| !seen.is_empty()), [Seen::Ended(key, Ended::Reset)]);
    reactor.send(key, b"after the end");
    reactor.close(key);
    settle(&mut reactor);
}

#[test]
fn a_reset_ends_a_connection_that_is_not_read() {
    let mut reactor = reactor(Config::default());
    let (key, mut client) = connect(&mut reactor);
    client.write_all(b"x").unwrap();
    // More than socket buffers take: the receive pauses and a send waits.
    let flood = vec![0; 16 << 20];
    let paused = std::cell::Cell::new(false);
    drive(
        &mut reactor,
        |reactor, seen| {
            if let Seen::Received(key, _) = seen {
                reactor.send(key, &flood);
                paused.set(true);
            }
        },
        |reactor| paused.get() && !reactor.is_reading(key),
    );
    for _ in 0..10 {
        reactor.wait(Some(Duration::from_millis(1))).unwrap();
        assert_eq!(reactor.next_event().map(Seen::of), None);
    }
    assert!(!reactor.is_reading(key));
    reset(client);
    assert_eq!(collect(&mut reactor, |seen| !seen.is_empty()), [Seen::Ended(key, Ended::Reset)]);
    reactor.close(key);
    settle(&mut reactor);
}

#[test]
fn a_reset_behind_input_that_back_pressure_left_unread_comes_after_that_input() {
    const UNREAD_BYTES: usize = 10_000;
    let mut reactor = reactor(Config::default());
    let (key, mut client) = connect(&mut reactor);
    // More than socket buffers take: the receive pauses and a send waits.
    reactor.send(key, &vec![0; 16 << 20]);
    drive(&mut reactor, |_, seen| panic!("{seen:?}"), |reactor| !reactor.is_reading(key));
    for _ in 0..10 {
        reactor.wait(Some(Duration::from_millis(1))).unwrap();
        assert_eq!(reactor.next_event().map(Seen::of), None);
    }
    client.write_all(&[7; UNREAD_BYTES]).unwrap();
    reset(client);
    let seen = collect(&mut reactor, |seen| !ends(seen).is_empty());
    assert_eq!(bytes(&seen), [7; UNREAD_BYTES]);
    assert_eq!(seen.last(), Some(&Seen::Ended(key, Ended::Reset)));
    reactor.close(key);
    settle(&mut reactor);
}

#[test]
fn a_killed_peer_is_gone_at_once() {
    let mut reactor = reactor(Config::default());
    let listener = listener();
    let port = listener.local_addr().unwrap().port();
    let mut peer = Command::new("bash")
        .arg("-c")
        .arg(format!("exec 3<>/dev/tcp/127.0.0.1/{port}; printf x >&3; read -r -u 3"))
        .stdin(Stdio::null())
        .spawn()
        .unwrap();
    let (server, _) = listener.accept().unwrap();
    let key = reactor.insert(server.into(), 0).unwrap();
    assert_eq!(bytes(&collect(&mut reactor, |seen| !seen.is_empty())), b"x");
    peer.kill().unwrap();
    assert_eq!(collect(&mut reactor, |seen| !seen.is_empty()), [Seen::Ended(key, Ended::Eof)]);
    peer.wait().unwrap();
}

#[test]
fn a_timeout_of_the_local_kernel_is_silence() {
    let mut reactor = reactor(Config::default());
    let (server, client) = pair(&listener());
    // A peer whose window stays shut for longer than this: the kernel gives up with ETIMEDOUT.
    sockopt::set_tcp_user_timeout(&server, 300).unwrap();
    let key = reactor.insert(server, 0).unwrap();
    reactor.send(key, &vec![0; 16 << 20]);
    let seen = collect(&mut reactor, |seen| !seen.is_empty());
    assert_eq!(seen, [Seen::Ended(key, Ended::Silent(Errno::TIMEDOUT))]);
    drop(client);
}

#[test]
fn no_event_comes_after_the_end_or_after_a_close() {
    let mut reactor = reactor(Config::default());
    let (key, mut client) = connect(&mut reactor);
    client.write_all(b"data that nobody wants").unwrap();
    reactor.wait(None).unwrap();
    assert_eq!(reactor.close(key), Some(0));
    let deadline = std::time::Instant::now() + PATIENCE;
    while reactor.closing() > 0 {
        assert!(std::time::Instant::now() < deadline);
        assert!(reactor.next_event().is_none());
        let _ = client.write_all(b"more");
        reactor.wait(Some(Duration::from_millis(5))).unwrap();
    }
    assert!(reactor.get(key).is_none());
    assert!(!reactor.has_unread(key) && !reactor.is_reading(key));
    reactor.send(key, b"to nobody");
    assert_eq!(reactor.close_after(key, b""), None);
}

#[test]
fn received_bytes_come_with_the_owners_state() {
    let mut reactor = reactor(Config::default());
    let (key, mut client) = connect(&mut reactor);
    client.write_all(b"12345").unwrap();
    reactor.wait(None).unwrap();
    let Some(Event::Received { key: from, data, bytes }) = reactor.next_event() else { panic!("no bytes") };
    *data = bytes.len() as u64;
    assert_eq!(from, key);
    assert_eq!(reactor.get(key), Some(&5));
}
