//! Which changes of an interface's addresses are a departure, and which are none.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use protocol::ServerFrame;
use rustix::process::Signal;
use rustls::pki_types::ServerName;

use crate::addresses::{LONG, MOVING, claim, flap, has_sessions, hold, server};
use crate::harness::{MONOLOCK, Peer, Server, acquire, wait_for};
use crate::network::{in_own_network, run};
use testkit::certificates::{Certificates, Says};

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
    let is_up = |interface: &str| said(&["-o", "link", "show", interface]).contains("state UP");
    wait_for("the cable", || (is_up("v0") && is_up("v1")).then_some(()));
}

/// What `ip` says.
fn said(arguments: &[&str]) -> String {
    String::from_utf8(Command::new("ip").args(arguments).output().unwrap().stdout).unwrap()
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
        let shown = Command::new("ip").args(["-o", "link", "show", interface]).output().unwrap();
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
    let mut child = Command::new("unshare").args(["--net", "sleep", "1000"]).spawn().unwrap();
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

#[test]
#[ignore = "needs root and iproute2, which .ci/run has"]
fn nothing_is_kept_to_be_sent_to_the_client_of_a_session_whose_address_has_left() {
    if !in_own_network("stays::nothing_is_kept_to_be_sent_to_the_client_of_a_session_whose_address_has_left")
    {
        return;
    }
    let server = server();
    let _holder = hold_from_loopback(&server, MOVING, "jobs");
    ip("addr del 192.0.2.10/32 dev lo");
    has_sessions(&server, 0.0);
    let port = format!("sport = :{}", server.address.port());
    let sockets =
        || String::from_utf8(Command::new("ss").args(["-Htn", &port]).output().unwrap().stdout).unwrap();
    // A FIN that nobody confirms would be sent again and again for minutes.
    wait_for("the end of the socket", || (!sockets().contains(MOVING)).then_some(()));
}

#[test]
#[ignore = "needs root and iproute2, which .ci/run has"]
fn a_tls_handshake_that_is_half_done_when_the_address_leaves_and_comes_back_gives_no_session() {
    if !in_own_network(
        "stays::a_tls_handshake_that_is_half_done_when_the_address_leaves_and_comes_back_gives_no_session",
    ) {
        return;
    }
    let files = Certificates::new();
    files.issue("server", Says::default());
    let [certificate, key] = ["server.pem", "server.key"].map(|file| files.path(file));
    ip("addr add 192.0.2.10/32 dev lo");
    let mut command = Command::new(MONOLOCK);
    command.args(["-listen", ":0", "-ops-listen", "127.0.0.1:0", "-log-level", "debug"]);
    command.args(["-tls-cert", certificate.to_str().unwrap(), "-tls-key", key.to_str().unwrap()]);
    let mut server = Server::spawn(command);
    let config = testkit::tls::client(&files, &rustls::version::TLS13, None);
    let mut tls = rustls::ClientConnection::new(config, ServerName::try_from("localhost").unwrap()).unwrap();
    let mut socket = TcpStream::connect((MOVING, server.address.port())).unwrap();
    tls.write_tls(&mut socket).unwrap();
    while tls.is_handshaking() {
        tls.read_tls(&mut socket).unwrap();
        tls.process_new_packets().unwrap();
    }
    // The server waits for the client's Finished.
    flap();
    is_heard(&server);
    tls.writer().write_all(&acquire("jobs", LONG)).unwrap();
    while tls.wants_write() {
        tls.write_tls(&mut socket).unwrap();
    }
    server.log_line("its local address has left while it was set up");
    assert_eq!(server.metric("monolock_acquires_total"), 0.0);
}

#[test]
#[ignore = "needs root and iproute2, which .ci/run has"]
fn no_session_survives_a_move_there_and_back_in_a_storm_of_other_changes() {
    const MOVES: usize = 20;
    if !in_own_network("stays::no_session_survives_a_move_there_and_back_in_a_storm_of_other_changes") {
        return;
    }
    cable();
    let mut server = server();
    // After a loss, one that came a moment ago might be on its second stay.
    server.log_line("every local address has been here for a while");
    let mut other = hold(&server, "127.0.0.1", "other", LONG);
    let stormy = AtomicBool::new(true);
    thread::scope(|scope| {
        let _end = End(&stormy);
        scope.spawn(|| {
            let each = |verb: &str| {
                let line = |n| format!("addr {verb} 10.1.{}.{}/32 dev v0\n", n / 250, n % 250 + 1);
                (0..2000).map(line).collect::<String>()
            };
            let path = std::env::temp_dir().join(format!("storm-{}", std::process::id()));
            std::fs::write(&path, each("add") + &each("del")).unwrap();
            while stormy.load(Ordering::Relaxed) {
                run("ip", &["-batch", path.to_str().unwrap()]);
            }
            std::fs::remove_file(path).unwrap();
        });
        for n in 0..MOVES {
            // One that begins while messages are lost may end with those of the stay before.
            let tries = (0..).map(|again| claim(&server, MOVING, &format!("jobs-{n}-{again}"), LONG));
            let _old = tries.into_iter().find(|peer| peer.stream.peek(&mut [0]).is_ok_and(|len| len > 0));
            // Each second time the server is asleep over it, and misses messages.
            if n % 2 == 0 {
                server.signal(Signal::STOP);
                flap();
                thread::sleep(Duration::from_millis(100));
                server.signal(Signal::CONT);
            } else {
                flap();
            }
            has_sessions(&server, 1.0);
        }
    });
    is_served(&mut other);
    let lost = server.log().iter().filter(|line| line.contains("messages about addresses were lost")).count();
    println!("messages were lost {lost} times");
}

/// Ends what goes on beside a test, also when that fails.
struct End<'a>(&'a AtomicBool);

impl Drop for End<'_> {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Relaxed);
    }
}

/// Where this test's program, started anew, forbids itself netlink and becomes the server.
const CONFINED: &str = "TEST_WITHOUT_NETLINK";

#[test]
fn a_server_that_may_not_ask_the_kernel_for_addresses_serves_and_says_what_is_lost() {
    if std::env::var_os(CONFINED).is_some() {
        // socket(AF_NETLINK, …) fails with EAFNOSUPPORT, as under RestrictAddressFamilies= of systemd.
        let filter = serde_json::json!({ "server": {
            "mismatch_action": "allow", "match_action": { "errno": 97 },
            "filter": [{ "syscall": "socket", "args": [{ "index": 0, "type": "dword", "op": "eq", "val": 16 }] }],
        } });
        let architecture = std::env::consts::ARCH.try_into().expect("an architecture that seccomp knows");
        let filters = seccompiler::compile_from_json(filter.to_string().as_bytes(), architecture).unwrap();
        seccompiler::apply_filter_all_threads(&filters["server"]).expect("the filter is taken");
        let mut command = Command::new(MONOLOCK);
        command.args(["-listen", "127.0.0.1:0", "-ops-listen", "127.0.0.1:0"]).env_remove(CONFINED);
        panic!("{}", std::os::unix::process::CommandExt::exec(&mut command));
    }
    let mut command = Command::new(std::env::current_exe().unwrap());
    let test = "stays::a_server_that_may_not_ask_the_kernel_for_addresses_serves_and_says_what_is_lost";
    command.args([test, "--exact", "--nocapture"]).env(CONFINED, "1");
    let mut server = Server::spawn(command);
    server.log_line("the kernel does not tell which addresses leave this host");
    assert_eq!(server.metric("monolock_addresses_watched"), 0.0);
    let (mut holder, _) = server.hold("jobs", LONG);
    is_served(&mut holder);
}

#[test]
#[ignore = "needs root and iproute2, which .ci/run has"]
fn thousands_of_sessions_end_while_others_flood_and_hold_up_neither_heartbeats_nor_expiry() {
    const SESSIONS: usize = 5000;
    const FLOODING: usize = 40;
    const LEASE: Duration = Duration::from_millis(500);
    /// No figure, but a sign of something that waits for something: the machine may be busy.
    const LATE_MAX: Duration = Duration::from_secs(2);
    if !in_own_network(
        "stays::thousands_of_sessions_end_while_others_flood_and_hold_up_neither_heartbeats_nor_expiry",
    ) {
        return;
    }
    testkit::process::raise_nofile().unwrap();
    let server = server();
    let on_address: Vec<Peer> =
        (0..SESSIONS).map(|n| hold(&server, MOVING, &format!("jobs-{n}"), LONG)).collect();
    let flood: Vec<TcpStream> =
        (0..FLOODING).map(|n| hold(&server, "127.0.0.1", &format!("flood-{n}"), LONG).stream).collect();
    let mut probe = hold(&server, "127.0.0.1", "probe", LONG);
    has_sessions(&server, (SESSIONS + FLOODING + 1) as f64);
    let goes_on = AtomicBool::new(true);
    thread::scope(|scope| {
        let _end = End(&goes_on);
        scope.spawn(|| {
            let mut answers = [0; 65_536];
            flood.iter().for_each(|socket| socket.set_nonblocking(true).unwrap());
            while goes_on.load(Ordering::Relaxed) {
                for mut socket in &flood {
                    let _ = socket.write(&[protocol::HEARTBEAT[0]; 1024]);
                    while socket.read(&mut answers).is_ok_and(|len| len == answers.len()) {}
                }
            }
        });
        let round = |probe: &mut Peer| {
            let asked = Instant::now();
            is_served(probe);
            asked.elapsed()
        };
        // A holder that is silent from here on, and one that waits for its lock.
        let expiry = |name: &str| {
            let _silent = hold(&server, "127.0.0.1", name, LEASE);
            let heard = Instant::now();
            let mut waiter = claim(&server, "127.0.0.1", name, LONG);
            assert_eq!(waiter.frame(), ServerFrame::Waiting);
            assert!(matches!(waiter.frame(), ServerFrame::Acquired(_)));
            heard.elapsed().saturating_sub(LEASE)
        };
        let before = (0..200).map(|_| round(&mut probe)).max().unwrap();
        let late_before = expiry("before");
        let (mut ended, mut worst, mut late) = (Duration::ZERO, Duration::ZERO, Duration::ZERO);
        thread::scope(|scope| {
            let expires = scope.spawn(|| expiry("during"));
            // So that the lease ends about when the sessions do.
            thread::sleep(LEASE.saturating_sub(Duration::from_millis(30)));
            let left = Instant::now();
            ip("addr del 192.0.2.10/32 dev lo");
            let probe = &mut probe;
            let probes = scope.spawn(move || {
                let mut worst = Duration::ZERO;
                while left.elapsed() < Duration::from_secs(1) {
                    worst = worst.max(round(probe));
                }
                worst
            });
            let series = "monolock_connections_active";
            wait_for("their ends", || (server.metric(series) <= (FLOODING + 4) as f64).then_some(()));
            ended = left.elapsed();
            (worst, late) = (probes.join().unwrap(), expires.join().unwrap());
        });
        let load = std::fs::read_to_string("/proc/loadavg").unwrap();
        println!(
            "{SESSIONS} sessions ended {ended:?} after `ip addr del` began; worst heartbeat {worst:?} ({before:?} \
             before), an expiry late by {late:?} ({late_before:?} before); load {load}"
        );
        assert!(worst < LATE_MAX && late < LATE_MAX && ended < LATE_MAX);
    });
    assert_eq!(server.metric("monolock_locks_held"), (SESSIONS + FLOODING + 1) as f64, "all stay reserved");
    drop(on_address);
}
