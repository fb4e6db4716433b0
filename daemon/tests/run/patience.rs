//! `--try` and `--wait`: a wait that is given up has a status of its own and leaves the queue.

use std::time::{Duration, Instant};

use crate::harness::Server;
use crate::runs::{LONG_LEASE, Run, monolock_run, only_line, run_to_end};

/// The documented status of a lock that was not acquired.
const NOT_ACQUIRED: Option<i32> = Some(75);

fn impatient(server: &Server, how: &[&str]) -> std::process::Command {
    let address = server.address.to_string();
    monolock_run(&[&["--address", &address], how, &["lock", "--", "echo", "it ran"]].concat())
}

#[test]
fn a_held_lock_is_tried_once_in_silence_and_a_free_one_runs_the_command() {
    let server = Server::start();
    let (holder, _) = server.hold("lock", LONG_LEASE);
    for how in [&["--try"][..], &["-try"], &["--wait", "0"], &["--wait=0s"]] {
        let ended = run_to_end(impatient(&server, how));
        assert_eq!((ended.code, &*ended.stdout, &*ended.stderr), (NOT_ACQUIRED, &b""[..], ""), "{how:?}");
        server.wait_for_metric("monolock_waiters", 0.0);
    }
    holder.close();
    server.wait_for_metric("monolock_locks_held", 0.0);
    for how in [&["--try"][..], &["--wait", "0"], &["--wait", "10s"]] {
        let ended = run_to_end(impatient(&server, how));
        assert_eq!((ended.code, &*ended.stdout), (Some(0), &b"it ran\n"[..]), "{how:?}: {}", ended.stderr);
    }
}

#[test]
fn a_wait_ends_when_its_time_is_over_and_not_before() {
    let server = Server::start();
    let _holder = server.hold("lock", LONG_LEASE);
    let begun = Instant::now();
    let mut run = Run::start(impatient(&server, &["--wait", "400ms"]));
    server.wait_for_metric("monolock_waiters", 1.0);
    let ended = run.ended();
    assert!(begun.elapsed() >= Duration::from_millis(400), "{:?}", begun.elapsed());
    assert_eq!((ended.code, &*ended.stdout), (NOT_ACQUIRED, &b""[..]));
    assert!(only_line(&ended).contains("another client holds it"), "{ended:?}");
    server.wait_for_metric("monolock_waiters", 0.0);
}

#[test]
fn a_lock_that_comes_free_in_time_is_held_for_longer_than_the_wait() {
    let server = Server::start();
    let (holder, _) = server.hold("lock", LONG_LEASE);
    let address = server.address.to_string();
    let script = "exec >\"$REPORT\"; echo runs; read -r _; exit 4";
    let options = ["--address", &address, "--wait", "3s", "lock", "--", "sh", "-c", script];
    let begun = Instant::now();
    let mut run = Run::start(monolock_run(&options));
    server.wait_for_metric("monolock_waiters", 1.0);
    holder.close();
    assert_eq!(run.line(), "runs");
    assert!(
        run.is_silent_for(
            Duration::from_secs(3).saturating_sub(begun.elapsed()) + Duration::from_millis(100)
        )
    );
    run.end_input();
    assert_eq!(run.ended().code, Some(4));
}

#[test]
fn a_server_that_does_not_answer_in_time_is_69_and_named() {
    let server = Server::start();
    server.signal(rustix::process::Signal::STOP);
    crate::runs::wait_until_stopped(server.pid());
    // The kernel still takes connections for it.
    let ended = run_to_end(impatient(&server, &["--wait", "200ms"]));
    assert_eq!(ended.code, Some(69));
    assert!(only_line(&ended).contains(&server.address.to_string()), "{ended:?}");
}
