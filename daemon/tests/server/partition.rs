//! A client that is cut off: its silence is not its end.

use std::time::{Duration, Instant};

use crate::admin::{Api, address};
use crate::harness::{Peer, Server, wait_for};
use crate::network::{in_own_network, run};

/// Drops packets on their way in: `rule` says which.
fn drop_packets(rule: &str) {
    run("nft", &["add", "rule", "inet", "test", "in", rule, "drop"]);
}

/// Prepares this namespace for [`cut_off`].
fn expect_cut_off_clients() {
    // Of this namespace: the kernel gives up about 1.4 s after an answer that nobody confirms.
    std::fs::write("/proc/sys/net/ipv4/tcp_retries2", "1").unwrap();
    run("nft", &["add", "table", "inet", "test"]);
    run("nft", &["add", "chain", "inet", "test", "in", "{ type filter hook input priority 0; }"]);
}

/// Cuts a holder off, whose last heartbeat was sent and heard at these times, and waits until the kernel
/// gives it up. One other session is there.
fn cut_off(server: &Server, holder: &mut Peer) -> (Instant, Instant) {
    // Of this connection alone: a scrape may get the holder's port for its own.
    let (holders, servers) = (holder.stream.local_addr().unwrap().port(), server.address.port());
    drop_packets(&format!("tcp sport {servers} tcp dport {holders}"));
    let sent = Instant::now();
    holder.heartbeat();
    server.wait_for_metric("monolock_heartbeats_total", 1.0);
    let heard = Instant::now();
    drop_packets(&format!("tcp sport {holders} tcp dport {servers}"));

    wait_for("the kernel to give the connection up", || {
        (server.metric("monolock_connections_active") == 1.0).then_some(())
    });
    (sent, heard)
}

#[test]
#[ignore = "needs root and nft; .ci/run runs it"]
fn a_holder_that_is_cut_off_keeps_its_lock_to_the_end_of_its_lease_and_no_longer() {
    const LEASE: Duration = Duration::from_secs(4);
    /// Late by an expiry and a busy machine.
    const LATE_MAX: Duration = Duration::from_millis(500);
    if !in_own_network(
        "partition::a_holder_that_is_cut_off_keeps_its_lock_to_the_end_of_its_lease_and_no_longer",
    ) {
        return;
    }
    expect_cut_off_clients();
    let folder = tempfile::tempdir().unwrap();
    let log = folder.path().join("audit.log");
    let server = Server::with(&["-audit-log", log.to_str().unwrap()]);
    let (mut holder, token) = server.hold("lock", LEASE);
    let address = address(&holder);
    let mut waiter = server.wait_in_line("lock", Duration::from_secs(60));

    let (sent, heard) = cut_off(&server, &mut holder);
    assert!(sent.elapsed() < LEASE, "it was given up before its lease was over");
    assert_eq!(server.metric("monolock_locks_held"), 1.0, "the lock stays reserved");
    waiter.acquired();
    assert!(sent.elapsed() >= LEASE, "granted {:?} after the last heartbeat", sent.elapsed());
    assert!(heard.elapsed() < LEASE + LATE_MAX, "granted {:?} after the last heartbeat", heard.elapsed());
    server.wait_for_metric("monolock_releases_total{reason=\"expired\"}", 1.0);
    // Its connection is gone for long, and still the log knows whose lock it was.
    let released = format!("\"remote_addr\":\"{address}\",\"token\":{},", token.0);
    wait_for("the audit log to tell of the end", || {
        let text = std::fs::read_to_string(&log).unwrap();
        text.lines().find(|line| line.contains("\"released\"") && line.contains(&released)).map(drop)
    });
}

#[test]
#[ignore = "needs root and nft; .ci/run runs it"]
fn a_reserved_lock_is_shown_with_its_last_holder_and_can_be_released() {
    const LEASE: Duration = Duration::from_secs(60);
    if !in_own_network("partition::a_reserved_lock_is_shown_with_its_last_holder_and_can_be_released") {
        return;
    }
    expect_cut_off_clients();
    let (server, api) = Api::start(&[]);
    let (mut holder, token) = server.hold("lock", LEASE);
    let mut waiter = server.wait_in_line("lock", LEASE);
    cut_off(&server, &mut holder);
    let lock = api.lock("lock");
    assert_eq!(lock["holder"]["remote_addr"], address(&holder));
    assert_eq!(lock["holder"]["token"], token.0);
    let released = api.release("lock").ok();
    assert_eq!(released["released"], lock["holder"]);
    assert!(waiter.acquired() > token);
    assert_eq!(api.lock("lock")["holder"]["remote_addr"], address(&waiter));
}
