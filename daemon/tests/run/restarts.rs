//! A server that restarts, moves or hangs: who waits comes back; who holds the lock has lost it.

use std::io::Write;
use std::net::{Shutdown, SocketAddr, TcpListener};
use std::process::Command;
use std::time::{Duration, Instant};

use protocol::{ErrorCode, ErrorFrame};
use rustix::process::Signal;

use crate::harness::{MONOLOCK, PATIENCE, Server, wait_for};
use crate::runs::{LONG_LEASE, Run, monolock_run, only_line, run_to_end, wait_until_stopped};
use crate::status::deserted;
use crate::words::heard;

/// A lock that a run waits for without end, with a lease that no test outlasts; the command is told by a
/// line.
fn waiter(address: &str, flags: &[&str]) -> Run {
    let script = "exec >\"$REPORT\"; echo runs; read -r _; exit 0";
    let flags = [&["--address", address], flags, &["lock", "--", "sh", "-c", script]].concat();
    Run::start(monolock_run(&flags))
}

fn listening_on(address: SocketAddr) -> Server {
    let mut command = Command::new(MONOLOCK);
    command.args(["-listen", &address.to_string(), "-ops-listen", "127.0.0.1:0"]);
    Server::spawn(command)
}

#[test]
fn who_waits_survives_the_restart_of_the_server_however_it_ends_and_says_nothing() {
    for (signal, flags) in [(Signal::TERM, &[][..]), (Signal::KILL, &["--wait", "1h"])] {
        let mut server = Server::start();
        let address = server.address;
        let (holder, _) = server.hold("lock", LONG_LEASE);
        let mut run = waiter(&address.to_string(), flags);
        server.wait_for_metric("monolock_waiters", 1.0);
        server.signal(signal);
        server.exit();
        drop(holder);
        let server = listening_on(address);
        assert_eq!(run.line(), "runs");
        server.wait_for_metric("monolock_locks_held", 1.0);
        run.end_input();
        let ended = run.ended();
        assert_eq!(ended.code, Some(0), "{ended:?}");
        // Off a terminal a restart is nothing to write about.
        assert!(ended.stderr.is_empty(), "{ended:?}");
    }
}

#[test]
fn a_command_that_holds_the_lock_is_stopped_when_the_server_restarts() {
    let server = Server::start();
    let mut run = waiter(&server.address.to_string(), &["--wait", "1h"]);
    assert_eq!(run.line(), "runs");
    server.signal(Signal::TERM);
    let ended = run.ended();
    assert_eq!(ended.code, Some(74));
    let line = only_line(&ended);
    assert!(line.contains("lock") && line.contains(&server.address.to_string()), "{line}");
}

#[test]
fn a_server_that_does_not_run_yet_is_told_of_at_once_and_waited_for() {
    let (socket, address) = deserted();
    let script = "exec >\"$REPORT\"; echo runs; read -r _; exit 0";
    let command = monolock_run(&["--address", &address.to_string(), "lock", "--", "sh", "-c", script]);
    let (mut run, said) = heard(command);
    let line = said.line();
    assert!(line.contains(&address.to_string()) && line.contains("trying again"), "{line}");
    drop(socket);
    let _server = listening_on(address);
    assert_eq!(run.line(), "runs");
    // What was said to be wrong is said to be over.
    let line = said.line();
    assert!(line.contains("acquired \"lock\""), "{line}");
    run.end_input();
    assert_eq!(run.ended().code, Some(0));
}

#[test]
fn a_wait_ends_in_its_time_with_69_when_the_server_is_out_of_reach_at_its_end() {
    let (_socket, address) = deserted();
    let begun = Instant::now();
    let wait =
        ["--address", &address.to_string(), "--wait", "700ms", "-E", "3", "lock", "--", "echo", "it ran"];
    let ended = run_to_end(monolock_run(&wait));
    assert!(begun.elapsed() >= Duration::from_millis(700), "{ended:?}");
    assert_eq!((ended.code, &*ended.stdout), (Some(69), &b""[..]));
    let (first, last) = ended.stderr.trim_end().split_once('\n').expect("two lines");
    assert!(first.contains("trying again, until --wait is over"), "{first}");
    assert!(last.contains("did not get") && last.contains(&address.to_string()), "{last}");
}

#[test]
fn a_server_that_hangs_costs_the_place_and_not_the_wait() {
    let server = Server::start();
    let (holder, _) = server.hold("lock", LONG_LEASE);
    let mut run = waiter(&server.address.to_string(), &["--lease", "500ms"]);
    server.wait_for_metric("monolock_waiters", 1.0);
    server.signal(Signal::STOP);
    wait_until_stopped(server.pid());
    // Until it has given up and asked again, over a connection that the kernel takes for the server.
    wait_for("a second connection", || (connections_to(server.address) >= 3).then_some(()));
    server.signal(Signal::CONT);
    holder.close();
    assert_eq!(run.line(), "runs");
    run.end_input();
    assert_eq!(run.ended().code, Some(0));
}

/// Connections that clients have, or had until the server takes notice, to this port of the loopback
/// interface.
fn connections_to(address: SocketAddr) -> usize {
    let port = format!(":{:04X}", address.port());
    let table = std::fs::read_to_string("/proc/net/tcp").unwrap();
    let remote = table.lines().skip(1).filter_map(|line| line.split_ascii_whitespace().nth(2));
    remote.filter(|remote| remote.ends_with(&port)).count()
}

#[test]
fn a_standby_is_asked_again_until_it_serves() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    listener.set_nonblocking(true).unwrap();
    let mut run = waiter(&address.to_string(), &[]);
    for _ in 0..3 {
        let (mut stream, _) = wait_for("an attempt", || listener.accept().ok());
        stream.set_nonblocking(false).unwrap();
        stream.write_all(&ErrorFrame::new(ErrorCode::STANDBY)).unwrap();
        stream.shutdown(Shutdown::Write).unwrap();
        // A close before all is read would be an RST.
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        std::io::copy(&mut stream, &mut std::io::sink()).expect("the end of the attempt");
    }
    drop(listener);
    let _server = listening_on(address);
    assert_eq!(run.line(), "runs");
    run.end_input();
    let ended = run.ended();
    assert_eq!(ended.code, Some(0));
    let (first, last) = ended.stderr.trim_end().split_once('\n').expect("two lines");
    assert!(first.contains("standby") && last.contains("acquired"), "{ended:?}");
}

#[test]
fn a_name_that_does_not_resolve_is_told_of_and_tried_until_the_wait_is_over() {
    let nowhere = "no-such-host.invalid:7070";
    for (flags, lines) in [(&["--try"][..], 1), (&["--wait", "300ms"], 2)] {
        let ended =
            run_to_end(monolock_run(&[&["--address", nowhere], flags, &["lock", "--", "true"]].concat()));
        assert_eq!(ended.code, Some(69), "{ended:?}");
        // A resolver that does not answer is no faster than the wait.
        assert!((1..=lines).contains(&ended.stderr.lines().count()), "{ended:?}");
        assert!(ended.stderr.lines().all(|line| line.contains(nowhere)), "{ended:?}");
    }
}
