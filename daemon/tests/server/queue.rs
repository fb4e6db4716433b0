//! The queue: strictly FIFO, and the lock moves the moment its holder goes, whatever ends it.

use std::io::{Read, Write};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use protocol::{ACQUIRED_BYTES, ServerFrame, Token, decode_server_frame};

use crate::harness::{Peer, Server, acquire, wait_for};

const LEASE: Duration = Duration::from_secs(60);

/// How soon the lock must have moved when its holder is gone. The measuring tool prints the strict figures.
const AT_ONCE: Duration = Duration::from_millis(50);

/// Attempts at a timing that a busy machine may spoil: the fastest counts, since a server that is late by
/// design is late each time.
const ATTEMPTS: usize = 5;

/// The shortest time from `end` to the grant of the waiter.
fn fastest_hand_over(mut end: impl FnMut(&str) -> (Peer, Instant)) -> Duration {
    let hand_over = |attempt| {
        let name = format!("hand-over-{attempt}");
        let (mut waiter, ended) = end(&name);
        waiter.acquired();
        ended.elapsed()
    };
    (0..ATTEMPTS).map(hand_over).min().expect("several attempts")
}

#[test]
fn a_closed_connection_hands_over_at_once() {
    let server = Server::start();
    let fastest = fastest_hand_over(|name| {
        let (holder, _) = server.hold(name, LEASE);
        let waiter = server.wait_in_line(name, LEASE);
        let ended = Instant::now();
        holder.close();
        (waiter, ended)
    });
    assert!(fastest < AT_ONCE, "{fastest:?}");
}

#[test]
fn a_reset_connection_hands_over_at_once() {
    let server = Server::start();
    let fastest = fastest_hand_over(|name| {
        let (holder, _) = server.hold(name, LEASE);
        let waiter = server.wait_in_line(name, LEASE);
        let ended = Instant::now();
        holder.reset();
        (waiter, ended)
    });
    assert!(fastest < AT_ONCE, "{fastest:?}");
}

#[test]
fn a_holder_whose_process_is_killed_hands_over_at_once() {
    let server = Server::start();
    let fastest = fastest_hand_over(|name| {
        // bash's /dev/tcp: a process that has a connection and nothing else, and says what it got first.
        let port = server.address.port();
        let script =
            format!("exec 3<>/dev/tcp/127.0.0.1/{port}; cat >&3; head -c {ACQUIRED_BYTES} <&3; sleep 1000");
        let mut command = Command::new("bash");
        command.args(["-c", &script]).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut holder = command.spawn().expect("bash is there");
        holder.stdin.take().expect("piped above").write_all(&acquire(name, LEASE)).unwrap();
        let mut frame = [0; ACQUIRED_BYTES];
        holder.stdout.take().expect("piped above").read_exact(&mut frame).unwrap();
        assert!(
            matches!(decode_server_frame(&frame), Ok(Some((ServerFrame::Acquired(_), _)))),
            "{frame:02x?}"
        );
        let mut waiter = server.connect();
        waiter.send(&acquire(name, LEASE));
        waiter.waiting();
        let ended = Instant::now();
        holder.kill().unwrap();
        holder.wait().unwrap();
        (waiter, ended)
    });
    assert!(fastest < AT_ONCE, "{fastest:?}");
}

#[test]
fn waiters_are_granted_in_the_order_in_which_they_came() {
    let server = Server::with(&["-shards", "2"]);
    let (mut holder, mut last) = server.hold("fifo", LEASE);
    let waiters: Vec<Peer> = (0..100).map(|_| server.wait_in_line("fifo", LEASE)).collect();
    server.wait_for_metric("monolock_waiters", 100.0);
    for mut waiter in waiters {
        holder.close();
        let token = waiter.acquired();
        assert!(token > last, "tokens increase");
        last = token;
        holder = waiter;
    }
}

#[test]
fn waiters_that_leave_do_not_disturb_the_order_of_the_rest() {
    let server = Server::start();
    let (holder, _) = server.hold("fifo", LEASE);
    let mut waiters: Vec<Peer> = (0..9).map(|_| server.wait_in_line("fifo", LEASE)).collect();
    // The first, the last, and some between.
    for index in [8, 5, 4, 0] {
        waiters.remove(index).close();
    }
    server.wait_for_metric("monolock_waiters", 5.0);
    let mut holder = holder;
    for mut waiter in waiters {
        holder.close();
        waiter.acquired();
        holder = waiter;
    }
}

#[test]
fn tokens_increase_across_all_locks_and_shards() {
    let server = Server::with(&["-shards", "4"]);
    let mut last = Token(0);
    for round in 0..200 {
        let (holder, token) = server.hold(&format!("lock-{}", round % 17), LEASE);
        assert!(token > last, "{token} after {last}");
        last = token;
        let name = format!("lock-{}", round % 17);
        holder.close();
        // The lock is free again before the next round asks for it, or its claim would wait.
        wait_for(&format!("{name} to be free"), || {
            (server.metric("monolock_locks_held") == 0.0).then_some(())
        });
    }
}

#[test]
fn a_token_is_the_wall_clock_time_of_the_grant() {
    let server = Server::start();
    let now = || std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
    let before = now();
    let (_holder, token) = server.hold("lock", LEASE);
    let after = now();
    let units = |time: Duration| Token::from_unix_ns(u64::try_from(time.as_nanos()).unwrap());
    // A grant is stamped by the turn that makes it, which may have begun a little before it was asked for.
    assert!(token >= units(before - Duration::from_secs(1)) && token <= units(after), "{token}");
}

#[test]
fn a_server_started_anew_grants_larger_tokens() {
    let server = Server::start();
    let (_holder, token) = server.hold("lock", LEASE);
    drop(server);
    let server = Server::start();
    let (_holder, later) = server.hold("lock", LEASE);
    assert!(later > token);
}

#[test]
fn a_lock_on_one_shard_is_the_same_lock_whichever_way_it_is_reached() {
    let server = Server::with(&["-shards", "4"]);
    let (holder, _) = server.hold("one", LEASE);
    let waiters: Vec<Peer> = (0..8).map(|_| server.wait_in_line("one", LEASE)).collect();
    assert_eq!(waiters.len(), 8);
    drop(holder);
    server.wait_for_metric("monolock_acquires_total", 2.0);
    server.wait_for_metric("monolock_locks_held", 1.0);
    server.wait_for_metric("monolock_waiters", 7.0);
}
