//! Leases: never early, hardly late, heard before expired.

use std::io::Write;
use std::thread;
use std::time::{Duration, Instant};

use nix::sys::ptrace;
use nix::sys::wait::WaitPidFlag;
use nix::unistd::Pid;
use protocol::{ErrorCode, HEARTBEAT, acquired};
use rustix::process::{Signal, WaitOptions, waitpid};

use crate::harness::{Closed, PATIENCE, Peer, Server, wait_for};

const LONG: Duration = Duration::from_secs(60);

#[test]
fn a_silent_holder_is_expired_after_its_lease_and_not_before() {
    let server = Server::start();
    let lease = Duration::from_millis(300);
    // The fastest of several: a busy machine may be late, a server that is early is early each time.
    let mut latest_allowed = false;
    for attempt in 0..5 {
        let name = format!("silent-{attempt}");
        let sent = Instant::now();
        let (mut holder, _) = server.hold(&name, lease);
        let granted_by = Instant::now();
        let mut waiter = server.wait_in_line(&name, LONG);
        waiter.acquired();
        let at = Instant::now();
        assert!(at - sent > lease, "expired after {:?}", at - sent);
        latest_allowed |= at - granted_by <= lease + Duration::from_millis(20);
        assert_eq!(holder.closed(), Closed::Fin, "the peer of an expired session sees FIN");
    }
    assert!(latest_allowed, "each of 5 expiries was later than 20 ms after the lease");
    server.wait_for_metric("monolock_releases_total{reason=\"expired\"}", 5.0);
}

#[test]
fn a_heartbeat_counts_from_when_it_is_heard() {
    let server = Server::start();
    let lease = Duration::from_millis(1500);
    let (mut holder, token) = server.hold("lock", lease);
    let mut waiter = server.wait_in_line("lock", LONG);
    let mut last_sent = Instant::now();
    for _ in 0..3 {
        assert!(waiter.is_silent_for(lease / 2), "the holder heartbeats");
        last_sent = Instant::now();
        holder.heartbeat();
        assert_eq!(holder.acquired(), token);
    }
    waiter.acquired();
    assert!(last_sent.elapsed() > lease);
}

#[test]
fn a_silent_waiter_loses_its_place_and_its_connection() {
    let server = Server::start();
    let (holder, _) = server.hold("lock", LONG);
    let mut silent = server.wait_in_line("lock", Duration::from_millis(200));
    let mut patient = server.wait_in_line("lock", LONG);
    assert_eq!(silent.closed(), Closed::Fin);
    server.wait_for_metric("monolock_waiters", 1.0);
    holder.close();
    patient.acquired();
}

#[test]
fn the_lease_of_a_promoted_waiter_counts_from_the_grant() {
    let server = Server::start();
    let lease = Duration::from_millis(2000);
    let (holder, _) = server.hold("lock", LONG);
    let mut waiter = server.wait_in_line("lock", lease);
    let mut next = server.wait_in_line("lock", LONG);
    thread::sleep(lease / 2);
    let promoted = Instant::now();
    holder.close();
    waiter.acquired();
    next.acquired();
    assert!(promoted.elapsed() > lease, "{:?}", promoted.elapsed());
}

#[test]
fn the_shortest_lease_ends_and_does_not_hang() {
    let server = Server::start();
    let (mut holder, _) = server.hold("lock", Duration::from_millis(1));
    assert_eq!(holder.closed(), Closed::Fin);
    server.wait_for_metric("monolock_locks_held", 0.0);
}

#[test]
fn a_peer_that_never_reads_is_dropped_after_the_io_timeout_and_its_lock_moves() {
    let server = Server::with(&["-io-timeout", "500ms"]);
    let (mut holder, _) = server.hold("stuck", LONG);
    let mut waiter = server.wait_in_line("stuck", LONG);
    let mut bystander = server.hold("other", LONG).0;

    fill(&mut holder);
    let blocked = Instant::now();
    waiter.acquired();
    assert!(blocked.elapsed() < PATIENCE);
    server.wait_for_metric("monolock_releases_total{reason=\"io_timeout\"}", 1.0);
    bystander.heartbeat();
    bystander.acquired();
}

#[test]
fn a_session_paused_by_back_pressure_outlives_its_lease_and_gets_every_answer_in_order() {
    let server = Server::with(&["-io-timeout", "30s"]);
    let lease = Duration::from_millis(500);
    let (mut holder, token) = server.hold("paused", lease);
    let sent = fill(&mut holder);
    // Unread for three leases: the server cannot hear this session, and must not hold that against it.
    let mut waiter = server.wait_in_line("paused", LONG);
    assert!(waiter.is_silent_for(lease * 3));
    holder.repeated(&acquired(token), sent);
    drop(holder);
    waiter.acquired();
}

/// Sends heartbeats until neither side takes more: their answers fill the way back, and the server stops
/// reading. Returns how many were sent.
fn fill(peer: &mut Peer) -> u64 {
    peer.stream.set_write_timeout(Some(Duration::from_millis(300))).unwrap();
    let mut sent = 0_u64;
    while let Ok(written @ 1..) = peer.stream.write(&[2; 16 * 1024]) {
        sent += written as u64;
        assert!(sent < 1 << 30, "the server never stops reading");
    }
    sent
}

#[test]
fn a_connection_without_a_first_frame_is_closed_after_the_io_timeout() {
    let server = Server::with(&["-io-timeout", "300ms"]);
    let mut silent = server.connect();
    let mut slow = server.connect();
    slow.send(&[1, 1, 0]);
    let connected = Instant::now();
    silent.closed();
    slow.closed();
    assert!(connected.elapsed() > Duration::from_millis(250), "{:?}", connected.elapsed());
}

/// Stops the server for `duration`, as a hypervisor or a debugger would.
fn stop_for(server: &Server, duration: Duration, meanwhile: impl FnOnce()) {
    server.signal(Signal::STOP);
    wait_for("the server to stop", || {
        let status =
            std::fs::read_to_string(format!("/proc/{}/stat", server.pid().as_raw_nonzero())).unwrap();
        let state = status.rsplit(") ").next().and_then(|rest| rest.chars().next());
        (state == Some('T')).then_some(())
    });
    meanwhile();
    thread::sleep(duration);
    server.signal(Signal::CONT);
    // A stopped child must not be left to wait for.
    let _ = waitpid(Some(server.pid()), WaitOptions::NOHANG | WaitOptions::CONTINUED);
}

#[test]
fn a_server_stopped_for_two_leases_expires_no_session_that_was_heard_and_all_that_were_not() {
    const SESSIONS: usize = 1000;
    let server = Server::with(&["-shards", "1"]);
    // Long enough to fill a slow machine's server within it.
    let lease = Duration::from_secs(6);
    let mut heard: Vec<Peer> = Vec::new();
    let mut silent: Vec<Peer> = Vec::new();
    for index in 0..SESSIONS {
        heard.push(server.hold(&format!("heard-{index}"), lease).0);
    }
    for index in 0..50 {
        silent.push(server.hold(&format!("silent-{index}"), lease).0);
    }
    // All leases are as good as new when the server stops.
    for peer in heard.iter_mut().chain(&mut silent) {
        peer.heartbeat();
    }
    for peer in heard.iter_mut().chain(&mut silent) {
        peer.acquired();
    }
    stop_for(&server, lease * 2, || heard.iter_mut().for_each(Peer::heartbeat));
    for peer in &mut heard {
        peer.acquired();
    }
    for peer in &mut silent {
        peer.closed();
    }
    server.wait_for_metric("monolock_releases_total{reason=\"expired\"}", 50.0);
    assert_eq!(server.metric("monolock_locks_held"), SESSIONS as f64);
}

/// Stops a shard's thread, and no other, where it begins to take a connection in: in the middle of a turn.
fn stop_in_a_hand_over(server: &Server, shard: Pid, begin: impl FnOnce()) {
    // The first system call on a socket that is taken in, as the kernel numbers it everywhere.
    const FIONBIO: &str = "0x5421";
    ptrace::seize(shard, ptrace::Options::PTRACE_O_TRACESYSGOOD).unwrap();
    ptrace::interrupt(shard).unwrap();
    let stopped = || nix::sys::wait::waitpid(shard, Some(WaitPidFlag::__WALL)).unwrap();
    stopped();
    begin();
    let path = format!("/proc/{}/task/{shard}/syscall", server.pid().as_raw_nonzero());
    while std::fs::read_to_string(&path).unwrap().split(' ').nth(2) != Some(FIONBIO) {
        ptrace::syscall(shard, None).unwrap();
        stopped();
    }
}

#[test]
fn who_comes_while_a_shard_is_held_up_in_the_middle_of_a_turn_has_a_whole_lease() {
    const LEASE: Duration = Duration::from_millis(800);
    let server = Server::with(&["-shards", "1"]);
    let shard = server.thread("shard-0");
    let mut first = None;
    stop_in_a_hand_over(&server, shard, || first = Some(server.claim("first", LONG)));
    // What happens to the shard, not a wait for something: a machine that is too busy, or a debugger.
    thread::sleep(LEASE);
    let sent = Instant::now();
    let mut late = server.claim("late", LEASE);
    // The intake has one thread and has handed the late one over when it refuses who comes after.
    let mut after = server.connect();
    after.heartbeat();
    after.refused(ErrorCode::NOT_ACQUIRE);
    ptrace::detach(shard, None).unwrap();

    late.acquired();
    assert_eq!(late.closed(), Closed::Fin);
    assert!(sent.elapsed() >= LEASE, "expired {:?} after it came", sent.elapsed());
    first.unwrap().acquired();
}

#[test]
fn a_grant_is_carried_out_before_the_violation_that_came_with_its_heartbeat() {
    let lease = Duration::from_millis(300);
    let log = tempfile::NamedTempFile::new().unwrap();
    let server = Server::with(&["-shards", "1", "-audit-log", log.path().to_str().unwrap()]);
    let (holder, _) = server.hold("lock", LONG);
    let mut rude = server.wait_in_line("lock", lease);
    let mut next = server.wait_in_line("lock", LONG);
    // The lock comes free while its first waiter is overdue: its heartbeat is what grants it.
    stop_for(&server, lease * 2, || {
        drop(holder);
        rude.send(&[HEARTBEAT[0], 0xff]);
    });
    rude.waiting();
    rude.acquired();
    rude.refused(ErrorCode::UNKNOWN_TYPE);
    next.acquired();
    let events = wait_for("three grants in the audit log", || {
        let text = std::fs::read_to_string(log.path()).unwrap();
        let of = |line: &str| serde_json::from_str::<serde_json::Value>(line).unwrap()["event"].to_string();
        let events: Vec<_> = text.lines().map(of).collect();
        (events.len() == 5).then_some(events)
    });
    let [granted, released] = ["\"granted\"", "\"released\""];
    assert_eq!(events, [granted, released, granted, released, granted]);
}
