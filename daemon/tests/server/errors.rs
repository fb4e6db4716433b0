//! Every ERROR: its code, the order of checks, and that the client can read it.

use std::io::{ErrorKind, Write};
use std::time::Duration;

use protocol::ErrorCode;

use crate::harness::{Server, acquire};

const LEASE: Duration = Duration::from_secs(60);

/// An ACQUIRE with any fields.
fn raw_acquire(version: u8, lease_ms: u32, name_len: u16, name: &[u8]) -> Vec<u8> {
    let mut bytes = vec![1, version];
    bytes.extend(lease_ms.to_be_bytes());
    bytes.extend(name_len.to_be_bytes());
    bytes.extend(name);
    bytes
}

#[test]
fn a_bad_first_frame_is_answered_with_its_code_in_the_order_of_checks() {
    let server = Server::start();
    let cases: [(&str, Vec<u8>, ErrorCode); 11] = [
        ("a heartbeat first", vec![2], ErrorCode::NOT_ACQUIRE),
        ("a server's frame first", vec![0x12], ErrorCode::NOT_ACQUIRE),
        ("an unknown type first", vec![0xff], ErrorCode::NOT_ACQUIRE),
        ("another version, answered before the rest", vec![1, 2], ErrorCode::UNSUPPORTED_VERSION),
        ("version before lease", raw_acquire(0, 0, 0, b""), ErrorCode::UNSUPPORTED_VERSION),
        ("lease before name", raw_acquire(1, 0, 0, b""), ErrorCode::LEASE_NOT_POSITIVE),
        ("lease before a long name", raw_acquire(1, 0, 999, b""), ErrorCode::LEASE_NOT_POSITIVE),
        ("an empty name", raw_acquire(1, 1, 0, b""), ErrorCode::EMPTY_NAME),
        ("a long name, answered before the name", raw_acquire(1, 1, 256, b""), ErrorCode::NAME_TOO_LONG),
        ("the longest length", raw_acquire(1, 1, u16::MAX, b""), ErrorCode::NAME_TOO_LONG),
        ("a name that is not UTF-8", raw_acquire(1, 1, 2, b"a\xff"), ErrorCode::NAME_NOT_UTF8),
    ];
    for (what, bytes, code) in cases {
        eprintln!("{what}");
        let mut peer = server.connect();
        peer.send(&bytes);
        peer.refused(code);
    }
}

#[test]
fn every_error_sent_is_counted_under_its_code() {
    let server = Server::start();
    for _ in 0..3 {
        let mut peer = server.connect();
        peer.send(&[2]);
        peer.refused(ErrorCode::NOT_ACQUIRE);
    }
    server.wait_for_metric("monolock_protocol_errors_total{code=\"0x11\"}", 3.0);
    assert_eq!(server.metric("monolock_protocol_errors_total{code=\"0x18\"}"), 0.0);
}

#[test]
fn a_second_acquire_is_a_duplicate_and_releases_the_lock() {
    let server = Server::start();
    let (mut holder, token) = server.hold("lock", LEASE);
    let mut waiter = server.wait_in_line("lock", LEASE);
    holder.send(&acquire("lock", LEASE));
    holder.refused(ErrorCode::DUPLICATE_ACQUIRE);
    assert!(waiter.acquired() > token);
}

#[test]
fn an_unknown_type_after_the_acquire_is_answered_after_the_heartbeats_before_it() {
    let server = Server::start();
    let (mut holder, token) = server.hold("lock", LEASE);
    holder.send(&[2, 2, 0x11, 2, 2]);
    assert_eq!(holder.acquired(), token);
    assert_eq!(holder.acquired(), token);
    holder.refused(ErrorCode::UNKNOWN_TYPE);
}

#[test]
fn a_waiter_that_breaks_the_protocol_loses_its_place_only() {
    let server = Server::start();
    let (holder, _) = server.hold("lock", LEASE);
    let mut bad = server.wait_in_line("lock", LEASE);
    let mut good = server.wait_in_line("lock", LEASE);
    bad.send(&[0]);
    bad.refused(ErrorCode::UNKNOWN_TYPE);
    holder.close();
    good.acquired();
}

/// What the kernel still takes of 60 KB that nobody reads.
fn send_60_kb(peer: &mut crate::harness::Peer) {
    match peer.stream.write_all(&[2; 60 * 1024]) {
        Ok(()) => {}
        // The server may be done with this connection already.
        Err(error) if matches!(error.kind(), ErrorKind::BrokenPipe | ErrorKind::ConnectionReset) => {}
        Err(error) => panic!("{error}"),
    }
}

#[test]
fn an_error_is_readable_although_60_kb_came_after_a_bad_first_frame() {
    let server = Server::start();
    let mut peer = server.connect();
    peer.send(&[9]);
    send_60_kb(&mut peer);
    peer.refused(ErrorCode::NOT_ACQUIRE);
}

#[test]
fn an_error_is_readable_although_60_kb_came_after_a_violation() {
    let server = Server::start();
    let (mut peer, _) = server.hold("lock", LEASE);
    peer.send(&[9]);
    send_60_kb(&mut peer);
    peer.refused(ErrorCode::UNKNOWN_TYPE);
}

#[test]
fn a_refused_client_that_neither_reads_nor_closes_is_let_go() {
    let server = Server::with(&["-io-timeout", "200ms"]);
    let mut refused = server.connect();
    refused.send(&[9]);
    // Nothing is read here; the server gives up on its own and the descriptor comes free.
    server.wait_for_metric("monolock_protocol_errors_total{code=\"0x11\"}", 1.0);
    let before = server.metric("process_open_fds");
    crate::harness::wait_for("the descriptor of the refused connection to come free", || {
        (server.metric("process_open_fds") < before).then_some(())
    });
}
