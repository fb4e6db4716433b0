//! Ending: who is told what, in which order, and how long the ops endpoints last.

use std::net::TcpStream;
use std::thread;
use std::time::{Duration, Instant};

use protocol::ErrorCode;
use rustix::process::Signal;

use crate::harness::{Closed, Peer, Server, wait_for};

const LEASE: Duration = Duration::from_secs(60);

/// With two sessions each: more than a shard ends in one turn, or lets drain when clients are refused one by
/// one.
const LOCKS: usize = 700;

#[test]
fn sigterm_tells_every_session_promotes_nobody_and_exits_with_0() {
    for signal in [Signal::TERM, Signal::INT] {
        let mut server = Server::with(&["-shards", "1"]);
        let mut holders: Vec<Peer> =
            (0..LOCKS).map(|index| server.hold(&format!("lock-{index}"), LEASE).0).collect();
        let mut waiters: Vec<Peer> =
            (0..LOCKS).map(|index| server.wait_in_line(&format!("lock-{index}"), LEASE)).collect();
        holders.iter_mut().chain(&mut waiters).for_each(Peer::heartbeat);
        holders.iter_mut().for_each(|holder| {
            holder.acquired();
        });
        waiters.iter_mut().for_each(Peer::waiting);
        server.signal(signal);
        for peer in holders.iter_mut().chain(&mut waiters) {
            // Nothing before the ERROR: a waiter is not promoted by a session that shutdown itself ends.
            peer.refused(ErrorCode::SHUTTING_DOWN);
        }
        drop((holders, waiters));
        assert_eq!(server.exit().code(), Some(0));
    }
}

#[test]
fn health_turns_503_at_once_and_the_ops_endpoints_outlast_the_sessions() {
    let mut server = Server::start();
    assert_eq!(server.get("/healthz"), (200, "ok\n".to_owned()));
    assert_eq!(server.get("/readyz").0, 200);
    let (mut holder, _) = server.hold("lock", LEASE);
    server.signal(Signal::TERM);
    holder.refused(ErrorCode::SHUTTING_DOWN);
    drop(holder);
    let (status, reasons) = server.get("/readyz");
    assert_eq!(status, 503);
    assert!(reasons.contains("shutting down"), "{reasons}");
    assert_eq!(server.get("/healthz").0, 503);
    // Every session is ended and still the figures are there.
    server.wait_for_metric("monolock_releases_total{reason=\"shutdown\"}", 1.0);
    server.wait_for_metric("monolock_connections_active", 0.0);
    assert_eq!(server.exit().code(), Some(0));
}

#[test]
fn the_port_is_closed_at_once_and_not_when_the_last_client_has_gone() {
    let mut server = Server::start();
    // Neither of them reads or closes: both drains last as long as they may.
    let _idle = server.connect();
    let (_holder, _) = server.hold("lock", LEASE);
    server.wait_for_metric("monolock_connections_accepted_total", 2.0);
    let address = server.address;
    server.signal(Signal::TERM);
    server.log_line("shutting down");
    // Connections in the kernel's queue at that moment are reset; from then on there is nobody.
    wait_for("the port to close", || TcpStream::connect(address).is_err().then_some(()));
    let (status, _) = server.get("/healthz");
    assert_eq!(status, 503);
    assert!(server.log().iter().all(|line| !line.contains("every session is ended")), "{:?}", server.log());
    assert_eq!(server.exit().code(), Some(0));
}

#[test]
fn a_connection_that_has_not_sent_its_frame_is_told_too() {
    let mut server = Server::start();
    let mut silent = server.connect();
    server.wait_for_metric("monolock_connections_accepted_total", 1.0);
    server.signal(Signal::TERM);
    silent.refused(ErrorCode::SHUTTING_DOWN);
    drop(silent);
    assert_eq!(server.exit().code(), Some(0));
}

#[test]
fn clients_that_do_not_read_do_not_hold_up_the_end() {
    let mut server = Server::start();
    let held: Vec<_> = (0..20).map(|index| server.hold(&format!("lock-{index}"), LEASE)).collect();
    let asked = Instant::now();
    server.signal(Signal::TERM);
    assert_eq!(server.exit().code(), Some(0));
    // One second for the drain, one for the ops endpoints, and a busy machine.
    assert!(asked.elapsed() < Duration::from_secs(6), "{:?}", asked.elapsed());
    drop(held);
}

#[test]
fn a_second_signal_ends_at_once() {
    let mut server = Server::start();
    // It does not read: the end in order takes a second, and another one for the ops endpoints.
    let (_holder, _) = server.hold("lock", LEASE);
    server.signal(Signal::TERM);
    server.log_line("shutting down");
    // What comes along with the first one does not count: who loses patience asks again.
    wait_for("the end", || {
        server.signal(Signal::TERM);
        (!server.is_alive()).then_some(())
    });
    // In order it would be 0.
    assert_eq!(server.exit().code(), Some(130));
    assert!(server.log().iter().any(|line| line.contains("second signal")), "{:?}", server.log());
}

#[test]
fn sighup_changes_nothing_for_a_server_without_files() {
    let mut server = Server::start();
    let (mut holder, token) = server.hold("lock", LEASE);
    server.signal(Signal::HUP);
    server.log_line("SIGHUP");
    holder.heartbeat();
    assert_eq!(holder.acquired(), token);
}

#[test]
fn a_killed_server_closes_every_connection() {
    let server = Server::with(&["-shards", "2"]);
    let mut held: Vec<_> = (0..100).map(|index| server.hold(&format!("lock-{index}"), LEASE).0).collect();
    thread::spawn(move || drop(server));
    for peer in &mut held {
        assert!(matches!(peer.closed(), Closed::Fin | Closed::Reset));
    }
}
