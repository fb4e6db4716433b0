//! A local address leaves: what happens to the sessions on it, and to their locks.

use std::io::Write;
use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};

use protocol::ServerFrame;
use rustix::process::Signal;

use crate::harness::{MONOLOCK, Peer, Server, acquire, wait_for};
use crate::network::{in_own_network, run};

/// The address that moves.
pub(crate) const MOVING: &str = "192.0.2.10";
const MOVING_V6: &str = "2001:db8::10";

const SHORT: Duration = Duration::from_millis(1500);
pub(crate) const LONG: Duration = Duration::from_secs(60);

/// A server on every address of this namespace, which has the one that moves.
pub(crate) fn server() -> Server {
    run("ip", &["addr", "add", "192.0.2.10/32", "dev", "lo"]);
    run("ip", &["addr", "add", "2001:db8::10/128", "dev", "lo", "nodad"]);
    let mut command = std::process::Command::new(MONOLOCK);
    command.args(["-listen", ":0", "-ops-listen", "127.0.0.1:0", "-log-level", "debug"]);
    Server::spawn(command)
}

/// A claim on this lock over that address.
pub(crate) fn claim(server: &Server, over: &str, lock: &str, lease: Duration) -> Peer {
    let over: IpAddr = over.parse().unwrap();
    let mut peer = Peer::connect(SocketAddr::new(over, server.address.port()));
    peer.send(&acquire(lock, lease));
    peer
}

pub(crate) fn hold(server: &Server, over: &str, lock: &str, lease: Duration) -> Peer {
    let mut holder = claim(server, over, lock, lease);
    assert!(matches!(holder.frame(), ServerFrame::Acquired(_)));
    holder
}

pub(crate) fn has_sessions(server: &Server, count: f64) {
    wait_for(&format!("{count} sessions"), || {
        (server.metric("monolock_connections_active") == count).then_some(())
    });
}

/// The address leaves and is back as fast as the kernel does both.
pub(crate) fn flap() {
    let batch = "addr del 192.0.2.10/32 dev lo\naddr add 192.0.2.10/32 dev lo\n";
    let path = std::env::temp_dir().join(format!("flap-{}", std::process::id()));
    std::fs::write(&path, batch).unwrap();
    run("ip", &["-batch", path.to_str().unwrap()]);
    std::fs::remove_file(path).unwrap();
}

#[test]
#[ignore = "needs root and iproute2, which .ci/run has"]
fn a_holder_whose_address_leaves_keeps_its_lock_until_its_lease_is_over_and_a_waiter_leaves() {
    if !in_own_network(
        "addresses::a_holder_whose_address_leaves_keeps_its_lock_until_its_lease_is_over_and_a_waiter_leaves",
    ) {
        return;
    }
    let server = server();
    let granted = Instant::now();
    let _holder = hold(&server, MOVING, "jobs", SHORT);
    let mut first = claim(&server, MOVING, "jobs", LONG);
    assert_eq!(first.frame(), ServerFrame::Waiting);
    let mut second = claim(&server, "127.0.0.1", "jobs", LONG);
    assert_eq!(second.frame(), ServerFrame::Waiting);

    run("ip", &["addr", "del", "192.0.2.10/32", "dev", "lo"]);
    has_sessions(&server, 1.0);
    assert!(matches!(second.frame(), ServerFrame::Acquired(_)));
    assert!(granted.elapsed() >= SHORT, "and the lock moves with the lease");
    server.wait_for_metric("monolock_releases_total{reason=\"address_lost\"}", 1.0);
}

#[test]
#[ignore = "needs root and iproute2, which .ci/run has"]
fn a_session_does_not_survive_a_move_there_and_back() {
    if !in_own_network("addresses::a_session_does_not_survive_a_move_there_and_back") {
        return;
    }
    let server = server();
    for over in [MOVING, MOVING_V6] {
        let held = Instant::now();
        let mut old = hold(&server, over, "jobs", SHORT);
        match over {
            MOVING => flap(),
            _ => {
                run("ip", &["addr", "del", "2001:db8::10/128", "dev", "lo"]);
                run("ip", &["addr", "add", "2001:db8::10/128", "dev", "lo", "nodad"]);
            }
        }
        has_sessions(&server, 0.0);
        // Nothing was kept to tell it: it hears of its end when it speaks. (Or has heard, and cannot speak.)
        let _ = old.stream.write(&protocol::HEARTBEAT);
        old.closed();
        // The second stay: a new session is not granted before the old lease is over, and lives.
        let mut new = claim(&server, over, "jobs", LONG);
        let first = new.frame();
        let granted = if first == ServerFrame::Waiting { new.frame() } else { first };
        assert!(matches!(granted, ServerFrame::Acquired(_)));
        assert!(held.elapsed() >= SHORT);
        new.heartbeat();
        assert!(matches!(new.frame(), ServerFrame::Acquired(_)));
        new.close();
        has_sessions(&server, 0.0);
    }
}

#[test]
#[ignore = "needs root and iproute2, which .ci/run has"]
fn a_move_there_and_back_among_thousands_of_changes_that_overflow_is_noticed() {
    if !in_own_network("addresses::a_move_there_and_back_among_thousands_of_changes_that_overflow_is_noticed")
    {
        return;
    }
    let mut server = server();
    // One that came a moment ago might be on its second stay.
    server.log_line("every local address has been here for a while");
    let mut old = hold(&server, MOVING, "jobs", LONG);
    let mut other = hold(&server, "127.0.0.1", "other", LONG);
    server.signal(Signal::STOP);
    let path = std::env::temp_dir().join(format!("storm-{}", std::process::id()));
    let others = |verb: &str| {
        (0..3000)
            .map(|n| format!("addr {verb} 10.1.{}.{}/32 dev lo\n", n / 250, n % 250 + 1))
            .collect::<String>()
    };
    let moved = "addr del 192.0.2.10/32 dev lo\naddr add 192.0.2.10/32 dev lo\n";
    std::fs::write(&path, [&others("add"), moved, &others("del")].concat()).unwrap();
    run("ip", &["-batch", path.to_str().unwrap()]);
    std::fs::remove_file(path).unwrap();
    server.signal(Signal::CONT);
    has_sessions(&server, 1.0);
    old.closed();
    other.heartbeat();
    assert!(matches!(other.frame(), ServerFrame::Acquired(_)), "its address stayed");
}

#[test]
#[ignore = "needs root and iproute2, which .ci/run has"]
fn an_address_that_stays_on_another_interface_or_only_gets_another_lifetime_has_not_left() {
    if !in_own_network(
        "addresses::an_address_that_stays_on_another_interface_or_only_gets_another_lifetime_has_not_left",
    ) {
        return;
    }
    let mut server = server();
    run("ip", &["link", "add", "v0", "type", "veth", "peer", "name", "v1"]);
    run("ip", &["addr", "add", "192.0.2.10/32", "dev", "v0"]);
    run("ip", &["addr", "add", "192.0.2.77/32", "dev", "v0"]);
    let mut holder = hold(&server, MOVING, "jobs", LONG);
    let mut anywhere = hold(&server, "127.0.0.2", "any", LONG);
    run("ip", &["addr", "change", "192.0.2.10/32", "dev", "lo", "valid_lft", "500", "preferred_lft", "100"]);
    run("ip", &["addr", "del", "192.0.2.10/32", "dev", "lo"]);
    // What comes after it has been heard of.
    run("ip", &["addr", "del", "192.0.2.77/32", "dev", "v0"]);
    server.log_line("192.0.2.77");
    for peer in [&mut holder, &mut anywhere] {
        peer.heartbeat();
        assert!(matches!(peer.frame(), ServerFrame::Acquired(_)));
    }
    // With its interface goes the address.
    run("ip", &["link", "del", "v0"]);
    has_sessions(&server, 1.0);
    anywhere.heartbeat();
    assert!(matches!(anywhere.frame(), ServerFrame::Acquired(_)));
}

#[test]
#[ignore = "needs root and iproute2, which .ci/run has"]
fn a_connection_whose_address_left_while_it_was_set_up_never_becomes_a_session() {
    if !in_own_network(
        "addresses::a_connection_whose_address_left_while_it_was_set_up_never_becomes_a_session",
    ) {
        return;
    }
    let mut server = server();
    let frame = acquire("jobs", LONG);
    let mut peer = Peer::connect(SocketAddr::new(MOVING.parse().unwrap(), server.address.port()));
    peer.send(&frame[..5]);
    server.wait_for_metric("monolock_connections_accepted_total", 1.0);
    flap();
    server.log_line(MOVING);
    peer.send(&frame[5..]);
    peer.closed();
    server.log_line("its local address has left while it was set up");
    assert_eq!(server.metric("monolock_acquires_total"), 0.0);
    hold(&server, MOVING, "jobs", LONG);
}
