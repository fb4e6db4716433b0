//! Signals: the server's commands, whatever the parent has done with them, and how many of them are one.

use std::fs::File;
use std::io::Read;
use std::net::TcpListener;
use std::process::Command;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use nix::pty::openpty;
use rustix::process::{Pid, Signal, kill_process};

use crate::harness::{MONOLOCK, Server, field, wait_for};

const LEASE: Duration = Duration::from_secs(60);

/// Signals that come within this time of each other are one: less than what the server has, for the sake of a
/// slow machine.
const TOGETHER: Duration = Duration::from_millis(100);

fn server_under(parent: &[&str]) -> Server {
    let mut command = Command::new(parent[0]);
    command.args(&parent[1..]).args([&*MONOLOCK, "-listen", "127.0.0.1:0", "-ops-listen", "127.0.0.1:0"]);
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
fn a_log_that_may_not_grow_does_not_end_a_start() {
    let log = tempfile::NamedTempFile::new().unwrap();
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut command = Command::new("prlimit");
    command.args(["--fsize=0", &MONOLOCK, "-listen", &taken.local_addr().unwrap().to_string()]);
    // A line before the port is opened.
    command.env("MONOLOCK_MISTYPED", "").stderr(log.reopen().unwrap());
    assert_eq!(command.status().unwrap().code(), Some(71), "its own status, and no signal");
}

#[test]
fn a_server_in_the_background_of_a_terminal_that_stops_such_writers_goes_on() {
    let pty = openpty(None, None).unwrap();
    let script = r#"stty tostop; set -m; "$0" -listen 127.0.0.1:0 & echo "pid=$! "; while kill -0 $!; do sleep 0.1; done"#;
    let mut command = Command::new("setsid");
    command.args(["--ctty", "--wait", "bash", "-c", script, &MONOLOCK]);
    command.stdin(pty.slave.try_clone().unwrap()).stderr(pty.slave.try_clone().unwrap()).stdout(pty.slave);
    let mut shell = command.spawn().unwrap();
    // It keeps our copies of what it gave the child.
    drop(command);
    let shown = Arc::new(Mutex::new(String::new()));
    let (mut master, writer) = (File::from(pty.master), Arc::clone(&shown));
    thread::spawn(move || {
        let mut bytes = [0; 4096];
        // The end of a terminal is an error: EIO.
        while let Ok(len @ 1..) = master.read(&mut bytes) {
            writer.lock().unwrap().push_str(&String::from_utf8_lossy(&bytes[..len]));
        }
    });
    let pid = wait_for("the server's number", || field(&shown.lock().unwrap(), "pid"));
    let server = Pid::from_raw(pid.parse().unwrap()).unwrap();
    let ended = || {
        kill_process(server, Signal::KILL).unwrap();
        shell.wait().unwrap()
    };
    let _ended = Deferred(Some(ended));
    wait_for("its first line", || shown.lock().unwrap().contains("listening").then_some(()));
}

/// Done also when a test fails.
struct Deferred<T, F: FnOnce() -> T>(Option<F>);

impl<T, F: FnOnce() -> T> Drop for Deferred<T, F> {
    fn drop(&mut self) {
        self.0.take().expect("dropped once")();
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
        thread::yield_now();
    }
    assert!(sent > 1);
    assert_eq!(server.exit().code(), Some(0));
    assert!(!server.log().iter().any(|line| line.contains("second signal")), "{:?}", server.log());
}

#[test]
fn timeout_which_signals_the_process_and_then_its_group_ends_the_server_in_order() {
    for _ in 0..2 {
        let mut server = server_under(&["timeout", "--verbose", "1000"]);
        let (_holder, _) = server.hold("lock", LEASE);
        server.signal(Signal::TERM);
        // The server's own status, by way of timeout.
        assert_eq!(server.exit().code(), Some(0), "{:?}", server.log());
    }
}
