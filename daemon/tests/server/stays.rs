//! Which changes of an interface's addresses are a departure, and which are none.

use std::net::SocketAddr;

use protocol::ServerFrame;
use rustix::process::Signal;

use crate::addresses::{LONG, MOVING, has_sessions, hold, server};
use crate::harness::{Peer, Server, acquire, wait_for};
use crate::network::{in_own_network, run};

fn ip(arguments: &str) {
    run("ip", &arguments.split(' ').collect::<Vec<_>>());
}

/// Two interfaces at the ends of one cable, both up.
fn cable() {
    for option in ["net.ipv6.conf.default.accept_dad", "net.ipv6.conf.all.accept_dad"] {
        std::fs::write(format!("/proc/sys/{}", option.replace('.', "/")), "0").unwrap();
    }
    ip("link add v0 type veth peer name v1");
    ip("link set v0 up");
    ip("link set v1 up");
}

/// Waits until the server has heard of all changes so far: of the departure of another address after them.
fn is_heard(server: &Server) {
    let lines = |server: &Server| server.log().iter().filter(|line| line.contains("192.0.2.77")).count();
    let before = lines(server);
    ip("addr add 192.0.2.77/32 dev lo");
    ip("addr del 192.0.2.77/32 dev lo");
    wait_for("the last departure", || (lines(server) > before).then_some(()));
}

/// A session over this address whose client is at another, which stays.
fn hold_from_loopback(server: &Server, over: &str, lock: &str) -> Peer {
    let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).unwrap();
    let at = |ip: &str, port| SocketAddr::new(ip.parse().unwrap(), port).into();
    socket.bind(&at("127.0.0.1", 0)).unwrap();
    socket.connect(&at(over, server.address.port())).unwrap();
    let mut peer = Peer::over(socket.into());
    peer.send(&acquire(lock, LONG));
    assert!(matches!(peer.frame(), ServerFrame::Acquired(_)));
    peer
}

fn is_served(peer: &mut Peer) {
    peer.heartbeat();
    assert!(matches!(peer.frame(), ServerFrame::Acquired(_)));
}

/// Runs several changes as fast as the kernel does them.
fn at_once(changes: &str) {
    let path = std::env::temp_dir().join(format!("changes-{}", std::process::id()));
    std::fs::write(&path, changes).unwrap();
    run("ip", &["-batch", path.to_str().unwrap()]);
    std::fs::remove_file(path).unwrap();
}

#[test]
#[ignore = "needs root and iproute2, which .ci/run has"]
fn an_address_that_an_interface_has_twice_leaves_with_the_last_of_the_two() {
    if !in_own_network("stays::an_address_that_an_interface_has_twice_leaves_with_the_last_of_the_two") {
        return;
    }
    let server = server();
    ip("addr add 192.0.2.10/24 dev lo");
    let mut holder = hold(&server, MOVING, "jobs", LONG);
    ip("addr del 192.0.2.10/32 dev lo");
    is_heard(&server);
    is_served(&mut holder);
    ip("addr del 192.0.2.10/24 dev lo");
    has_sessions(&server, 0.0);
}

#[test]
#[ignore = "needs root and iproute2, which .ci/run has"]
fn thousands_of_other_addresses_that_leave_at_once_end_no_session() {
    if !in_own_network("stays::thousands_of_other_addresses_that_leave_at_once_end_no_session") {
        return;
    }
    cable();
    let others = (0..3000).map(|n| format!("addr add 10.1.{}.{}/32 dev v0\n", n / 250, n % 250 + 1));
    at_once(&others.collect::<String>());
    let mut server = server();
    server.log_line("every local address has been here for a while");
    let mut holder = hold(&server, MOVING, "jobs", LONG);
    let mut anywhere = hold(&server, "127.0.0.2", "any", LONG);
    server.signal(Signal::STOP);
    ip("link del v0");
    server.signal(Signal::CONT);
    server.log_line("10.1.11.250");
    is_heard(&server);
    is_served(&mut holder);
    is_served(&mut anywhere);
}

#[test]
#[ignore = "needs root and iproute2, which .ci/run has"]
fn a_link_local_address_leaves_with_its_own_interface() {
    if !in_own_network("stays::a_link_local_address_leaves_with_its_own_interface") {
        return;
    }
    cable();
    ip("addr add fe80::10/64 dev v0 nodad");
    ip("addr add fe80::10/64 dev v1 nodad");
    let server = server();
    let over = |interface: &str| {
        let shown =
            std::process::Command::new("ip").args(["-o", "link", "show", interface]).output().unwrap();
        let scope = String::from_utf8(shown.stdout).unwrap().split_once(':').unwrap().0.parse().unwrap();
        std::net::SocketAddrV6::new("fe80::10".parse().unwrap(), server.address.port(), 0, scope)
    };
    let [_gone, mut stays] = [over("v0"), over("v1")].map(|address| {
        let mut peer = Peer::connect(address.into());
        peer.send(&acquire(&format!("jobs-{}", address.scope_id()), LONG));
        assert!(matches!(peer.frame(), ServerFrame::Acquired(_)));
        peer
    });
    ip("addr del fe80::10/64 dev v0");
    is_heard(&server);
    has_sessions(&server, 1.0);
    is_served(&mut stays);
}

#[test]
#[ignore = "needs root and iproute2, which .ci/run has"]
fn an_address_behind_the_first_of_its_network_leaves_with_it_or_is_promoted() {
    if !in_own_network("stays::an_address_behind_the_first_of_its_network_leaves_with_it_or_is_promoted") {
        return;
    }
    cable();
    let server = server();
    for (promotes, sessions) in [("1", 1.0), ("0", 0.0)] {
        std::fs::write("/proc/sys/net/ipv4/conf/v0/promote_secondaries", promotes).unwrap();
        ip("addr add 198.51.100.1/24 dev v0");
        ip("addr add 198.51.100.2/24 dev v0");
        let mut second = hold_from_loopback(&server, "198.51.100.2", promotes);
        ip("addr del 198.51.100.1/24 dev v0");
        is_heard(&server);
        has_sessions(&server, sessions);
        if promotes == "1" {
            is_served(&mut second);
            ip("addr del 198.51.100.2/24 dev v0");
            has_sessions(&server, 0.0);
        }
    }
}

#[test]
#[ignore = "needs root and iproute2, which .ci/run has"]
fn an_interface_takes_its_addresses_along_and_one_that_is_down_keeps_those_of_ipv4() {
    if !in_own_network(
        "stays::an_interface_takes_its_addresses_along_and_one_that_is_down_keeps_those_of_ipv4",
    ) {
        return;
    }
    cable();
    let server = server();
    ip("addr add 198.51.100.1/24 dev v0");
    ip("addr add 2001:db8:1::1/64 dev v0 nodad");
    let mut fourth = hold(&server, "198.51.100.1", "four", LONG);
    let _sixth = hold(&server, "2001:db8:1::1", "six", LONG);
    // The kernel takes the addresses of IPv6 off an interface that goes down, and says so.
    ip("link set v0 down");
    is_heard(&server);
    has_sessions(&server, 1.0);
    ip("link set v0 up");
    is_served(&mut fourth);
    let mut child = std::process::Command::new("unshare").args(["--net", "sleep", "1000"]).spawn().unwrap();
    let has_own = || {
        let of = |who: &str| std::fs::read_link(format!("/proc/{who}/ns/net")).unwrap();
        (of(&child.id().to_string()) != of("self")).then_some(())
    };
    wait_for("the other namespace", has_own);
    ip(&format!("link set v0 netns {}", child.id()));
    has_sessions(&server, 0.0);
    child.kill().unwrap();
    child.wait().unwrap();
}
