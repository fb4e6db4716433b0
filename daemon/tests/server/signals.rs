//! Signals: the server's commands, whatever the parent has done with them, and how many of them are one.

use std::process::Command;
use std::time::{Duration, Instant};

use rustix::process::Signal;

use crate::harness::{MONOLOCK, Server};

const LEASE: Duration = Duration::from_secs(60);

/// Signals that come within this time of each other are one: less than what the server has, for the sake of a slow machine.
const TOGETHER: Duration = Duration::from_millis(100);

fn server_under(parent: &[&str]) -> Server {
    let mut command = Command::new(parent[0]);
    command.args(&parent[1..]).args([MONOLOCK, "-listen", "127.0.0.1:0", "-ops-listen", "127.0.0.1:0"]);
    Server::spawn(command)
}

#[test]
fn a_server_obeys_signals_that_its_parent_has_blocked_or_ignored() {
    for parent in ["--block-signal", "--ignore-signal"] {
        for end in [Signal::TERM, Signal::INT] {
            let mut server = server_under(&["env", parent]);
            let (mut holder, token) = server.hold("lock", LEASE);
            server.signal(Signal::HUP);
            server.log_line("SIGHUP");
            holder.heartbeat();
            assert_eq!(holder.acquired(), token);
            drop(holder);
            server.signal(end);
            assert_eq!(server.exit().code(), Some(0), "{parent}");
        }
    }
}

#[test]
fn a_reload_that_was_asked_for_while_the_signal_was_blocked_is_done_and_ends_nothing() {
    let pends = ["env", "--block-signal=HUP", "sh", "-c", r#"kill -HUP $$ && exec "$0" "$@""#];
    let mut server = server_under(&pends);
    server.log_line("SIGHUP");
    assert!(server.is_alive());
}

#[test]
fn a_log_that_may_not_grow_is_no_end_when_the_parent_has_blocked_or_ignored_that_signal() {
    for parent in ["--block-signal=XFSZ", "--ignore-signal=XFSZ", "--default-signal=XFSZ"] {
        let folder = tempfile::tempdir().unwrap();
        let log = folder.path().join("audit.log");
        let mut server = server_under(&[
            "prlimit",
            "--fsize=0",
            "env",
            parent,
            "sh",
            "-c",
            r#"exec "$@" -audit-log "$0""#,
            log.to_str().unwrap(),
        ]);
        let (mut holder, token) = server.hold("lock", LEASE);
        server.log_line("audit log");
        holder.heartbeat();
        assert_eq!(holder.acquired(), token, "{parent}");
    }
}

#[test]
fn signals_that_come_together_are_one() {
    let mut server = Server::start();
    // It does not read: the end takes its time.
    let (_holder, _) = server.hold("lock", LEASE);
    let started = Instant::now();
    let mut sent = 0;
    while started.elapsed() < TOGETHER && sent < 200 {
        server.signal(if sent % 2 == 0 { Signal::TERM } else { Signal::INT });
        sent += 1;
        std::thread::yield_now();
    }
    assert!(sent > 1);
    assert_eq!(server.exit().code(), Some(0));
    assert!(!server.log().iter().any(|line| line.contains("second signal")), "{:?}", server.log());
}

#[test]
fn timeout_which_signals_the_process_and_then_its_group_ends_the_server_in_order() {
    for _ in 0..10 {
        let mut server = server_under(&["timeout", "--verbose", "1000"]);
        let (_holder, _) = server.hold("lock", LEASE);
        server.signal(Signal::TERM);
        // The server's own status, by way of timeout.
        assert_eq!(server.exit().code(), Some(0), "{:?}", server.log());
    }
}
