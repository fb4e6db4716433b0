//! Turns: the command runs under the lock and nowhere else, and the next one has it the moment the last one
//! ends.

use std::io::Write;
use std::time::{Duration, Instant};

use rustix::process::Signal;

use crate::harness::Server;
use crate::runs::{AT_ONCE, ATTEMPTS, LONG, LONG_LEASE, Run, locked, run_to_end};

#[test]
fn the_command_runs_only_once_the_lock_is_held() {
    let server = Server::start();
    let (holder, held_token) = server.hold("lock", LONG_LEASE);
    let mut run = Run::script(&server, LONG, "lock", "echo $MONOLOCK_TOKEN; read -r _");
    server.wait_for_metric("monolock_waiters", 1.0);
    assert!(run.is_silent_for(AT_ONCE), "it runs without the lock");
    holder.close();
    let token: u64 = run.line().parse().expect("a number");
    assert!(token > held_token.0);
    let mut next = server.wait_in_line("lock", LONG_LEASE);
    run.end_input();
    assert!(next.acquired().0 > token);
    run.ended();
}

#[test]
fn the_command_is_told_its_lock_and_a_token_that_grows_from_run_to_run() {
    let server = Server::start();
    let mut last = 0_u64;
    for name in ["lock", "lock", "another", "lock"] {
        let ended =
            run_to_end(locked(server.address, LONG, name, &["printenv", "MONOLOCK_TOKEN", "MONOLOCK_LOCK"]));
        assert_eq!((ended.code, &*ended.stderr), (Some(0), ""));
        let printed = String::from_utf8(ended.stdout).unwrap();
        let (token, lock) = printed.trim_end().split_once('\n').expect("two variables");
        assert_eq!(lock, name);
        let token = token.parse().expect("a number");
        assert!(token > last, "{token} after {last}");
        last = token;
    }
}

#[test]
fn a_name_is_taken_byte_by_byte() {
    let server = Server::start();
    for name in [
        "two words",
        " lead",
        "trail\n",
        "a\nb\tc",
        "a/b",
        "da-sh",
        "ünï©ode",
        "'\"$(x)`\\",
        &"x".repeat(255),
    ] {
        let script = "printenv MONOLOCK_LOCK; exec >\"$REPORT\"; echo; read -r _; exit 0";
        let mut run = Run::start(locked(server.address, LONG, name, &["sh", "-c", script]));
        run.line();
        server.wait_in_line(name, LONG_LEASE).close();
        if name.trim() != name {
            server.hold(name.trim(), LONG_LEASE).0.close();
        }
        run.end_input();
        let ended = run.ended();
        assert_eq!((ended.code, String::from_utf8(ended.stdout).unwrap()), (Some(0), format!("{name}\n")));
    }
}

#[test]
fn the_next_run_has_the_lock_the_moment_the_first_ones_command_ends() {
    let server = Server::start();
    let hand_over = |attempt| {
        let name = format!("lock-{attempt}");
        let mut first = Run::holding(&server, LONG, &name);
        let mut second = Run::script(&server, LONG, &name, "echo runs; read -r _; exit 0");
        server.wait_for_metric("monolock_waiters", 1.0);
        assert!(second.has_not_reported());
        first.end_input();
        let ended = first.report_end();
        let (_, begun) = second.line_at();
        assert_eq!(first.ended().code, Some(0));
        second.end_input();
        assert_eq!(second.ended().code, Some(0));
        begun.saturating_duration_since(ended)
    };
    let fastest = (0..ATTEMPTS).map(hand_over).min().unwrap();
    assert!(fastest < AT_ONCE, "{fastest:?}");
}

#[test]
fn the_next_run_has_the_lock_at_once_when_the_first_is_killed() {
    let server = Server::start();
    let hand_over = |attempt| {
        let name = format!("lock-{attempt}");
        let first = Run::holding(&server, LONG, &name);
        let mut second = Run::script(&server, LONG, &name, "echo runs; read -r _; exit 0");
        server.wait_for_metric("monolock_waiters", 1.0);
        let killed = Instant::now();
        first.signal(Signal::KILL);
        let (_, begun) = second.line_at();
        begun.saturating_duration_since(killed)
    };
    let fastest = (0..ATTEMPTS).map(hand_over).min().unwrap();
    assert!(fastest < AT_ONCE, "{fastest:?}");
}

#[test]
fn what_the_command_leaves_running_is_dead_before_the_next_one_runs() {
    let server = Server::start();
    // The one left behind does not hear SIGTERM, and would live for as long as the test's end of its input.
    let script = "exec 4<&0; trap '' TERM; cat <&4 & echo $!; exit 3";
    let mut first = Run::script(&server, LONG, "lock", script);
    let left_over = first.line();
    let look = "cat /proc/$1/stat 2>/dev/null || echo gone";
    let mut next = Run::start(locked(server.address, LONG, "lock", &["sh", "-c", look, "sh", &left_over]));
    next.end_input();
    let seen = String::from_utf8(next.ended().stdout).unwrap();
    let state = seen.rsplit_once(") ").map_or(seen.trim(), |(_, rest)| &rest[..1]);
    assert!(["gone", "Z", "X"].contains(&state), "{seen}");
    first.report_end();
    assert_eq!(first.ended().code, Some(3));
}

#[test]
fn what_the_command_leaves_running_may_end_by_sigterm_under_the_lock() {
    let server = Server::start();
    let script = "exec 4<&0
        (trap 'echo tidying; read -r _ <&4; exit 0' TERM; echo up; sleep 60 & wait) &
        read -r _; exit 3";
    let mut run = Run::script(&server, LONG, "lock", script);
    assert_eq!(run.line(), "up");
    let mut next = server.wait_in_line("lock", LONG_LEASE);
    run.stdin().write_all(b"\n").unwrap();
    assert_eq!(run.line(), "tidying");
    // A small part of the second that it has.
    assert!(next.is_silent_for(Duration::from_millis(50)), "the lock moved on before everybody had ended");
    run.end_input();
    run.report_end();
    next.acquired();
    assert_eq!(run.ended().code, Some(3));
}

#[test]
fn a_command_that_cannot_start_does_not_keep_the_lock() {
    let server = Server::start();
    let (holder, _) = server.hold("lock", LONG_LEASE);
    let mut run = Run::start(locked(server.address, LONG, "lock", &["/nonexistent"]));
    server.wait_for_metric("monolock_waiters", 1.0);
    let mut next = server.wait_in_line("lock", LONG_LEASE);
    holder.close();
    next.acquired();
    assert_eq!(run.ended().code, Some(127));
}

#[test]
fn heartbeats_keep_a_lock_for_longer_than_two_leases() {
    let server = Server::start();
    let kept = |attempt| {
        let name = format!("lock-{attempt}");
        let mut run = Run::holding(&server, "3s", &name);
        let mut waiter = server.wait_in_line(&name, LONG_LEASE);
        let kept = waiter.is_silent_for(Duration::from_secs(7));
        run.end_input();
        kept && run.ended().code == Some(0)
    };
    // A second attempt for a machine that stood still for more than a second.
    assert!((0..2).any(kept));
}
