//! A lost claim: the whole group is dead in time, whatever it does about SIGTERM.

use std::time::{Duration, Instant};

use rustix::process::{Signal, kill_process};

use crate::harness::{Server, wait_for};
use crate::runs::{
    AT_ONCE, ATTEMPTS, LONG_LEASE, Run, monolock_run, only_line, reporting, wait_until_stopped,
};

/// The documented status of a claim that was lost while the command ran.
pub(crate) const LOST: Option<i32> = Some(74);

/// That of [`stubborn`].
pub(crate) const LEASE: Duration = Duration::from_secs(2);

/// Reports SIGTERM and goes on, with a child and a grandchild that ignore it.
pub(crate) const STUBBORN: &str = "
    exec 4<&0
    trap '' TERM
    sh -c 'cat <&4 & echo ready; exec cat <&4' &
    trap 'echo terminated' TERM
    echo ready
    while kill -0 $!; do wait $!; done 2>/dev/null";

pub(crate) fn stubborn(server: &Server) -> Run {
    let mut run = Run::script(server, "2s", "lock", STUBBORN);
    assert_eq!([run.line(), run.line()], ["ready", "ready"]);
    run
}

#[test]
fn a_server_that_shuts_down_stops_the_command_and_the_status_is_74() {
    let mut server = Server::start();
    let script = "exec 4<&0; cat <&4 & trap 'echo terminated; exit 0' TERM; echo ready; wait";
    let mut run = Run::script(&server, "600s", "lock", script);
    run.line();
    server.signal(Signal::TERM);
    assert_eq!(run.line(), "terminated");
    run.report_end();
    let ended = run.ended();
    assert_eq!(ended.code, LOST);
    let line = only_line(&ended);
    assert!(line.contains("\"lock\"") && line.contains("shutting down"), "{line}");
    assert_eq!(server.exit().code(), Some(0));
}

#[test]
fn a_stubborn_group_of_a_server_that_ends_is_dead_within_nine_tenths_of_the_lease() {
    for signal in [Signal::TERM, Signal::KILL] {
        let attempt = |_| {
            let server = Server::start();
            let mut run = stubborn(&server);
            server.signal(signal);
            let after = Instant::now();
            let (line, _) = run.line_at();
            assert_eq!(line, "terminated");
            let dead = run.report_end();
            let ended = run.ended();
            assert_eq!(ended.code, LOST);
            only_line(&ended);
            dead.saturating_duration_since(after)
        };
        let in_time = (0..ATTEMPTS).map(attempt).any(|lived| lived <= LEASE * 9 / 10);
        assert!(in_time, "{signal:?}");
    }
}

/// One server that stops, right after a heartbeat: how long the group lived from when it can have confirmed
/// nothing any more.
fn lived_after_the_server_stopped(server: &Server) -> Duration {
    let mut run = stubborn(server);
    let heartbeats = || server.metric("monolock_heartbeats_total");
    let before = heartbeats();
    wait_for("a heartbeat", || (heartbeats() > before).then_some(()));
    let stopping = Instant::now();
    server.signal(Signal::STOP);
    wait_until_stopped(server.pid());
    let stopped = Instant::now();

    let (line, terminated) = run.line_at();
    assert_eq!(line, "terminated");
    let dead = run.report_end();
    // The last heartbeat that was answered went out at most one interval, a quarter of the lease, before.
    let earliest = stopping + LEASE * 8 / 10 - LEASE / 4;
    assert!(terminated >= earliest, "SIGTERM {:?} too early", earliest - terminated);
    assert!(dead >= earliest, "SIGKILL {:?} too early", earliest - dead);
    let ended = run.ended();
    assert_eq!(ended.code, LOST);
    assert!(only_line(&ended).contains("did not confirm"), "{ended:?}");
    run.nothing_is_left();
    dead - stopped
}

#[test]
fn a_stubborn_group_is_dead_nine_tenths_of_the_lease_after_the_last_confirmation_of_a_server_that_hangs() {
    let attempt = |_| lived_after_the_server_stopped(&Server::start());
    let in_time = (0..ATTEMPTS).map(attempt).any(|lived| lived <= LEASE * 9 / 10);
    assert!(in_time, "late {ATTEMPTS} times");
}

#[test]
fn the_time_between_sigterm_and_sigkill_is_the_commands_to_end_in() {
    let server = Server::start();
    let script = "trap 'echo terminated; read -r _ <&4; echo tidy; exit 5' TERM
        exec 4<&0; echo ready; (trap '' TERM; exec cat <&4 >/dev/null) & wait";
    let mut run = Run::script(&server, "4s", "lock", script);
    run.line();
    server.signal(Signal::TERM);
    assert_eq!(run.line(), "terminated");
    run.end_input();
    assert_eq!(run.line(), "tidy");
    run.report_end();
    assert_eq!(run.ended().code, LOST, "a status that was not reached under the lock does not count");
}

#[test]
fn the_time_between_sigterm_and_sigkill_can_be_shortened_and_not_stretched() {
    let attempt = |kill_after: &str| {
        let server = Server::start();
        let script = reporting(STUBBORN);
        let address = server.address.to_string();
        let options = ["--address", &address, "--lease", "2s", "--kill-after", kill_after];
        let mut run =
            Run::start(monolock_run(&[&options[..], &["lock", "--", "sh", "-c", &script]].concat()));
        assert_eq!([run.line(), run.line()], ["ready", "ready"]);
        server.signal(Signal::TERM);
        let (line, terminated) = run.line_at();
        assert_eq!(line, "terminated");
        let dead = run.report_end();
        assert_eq!(run.ended().code, LOST);
        dead - terminated
    };
    let fastest = (0..ATTEMPTS).map(|_| attempt("100ms")).min().unwrap();
    assert!(fastest <= Duration::from_millis(300), "{fastest:?}");
    assert!((0..ATTEMPTS).any(|_| attempt("1h") <= LEASE * 9 / 10));
}

#[test]
fn a_run_that_was_stopped_beyond_its_lease_together_with_its_guardian_kills_the_group_when_it_goes_on() {
    let server = Server::start();
    let attempt = |attempt| {
        let name = format!("lock-{attempt}");
        let mut run = Run::script(&server, "2s", &name, STUBBORN);
        assert_eq!([run.line(), run.line()], ["ready", "ready"]);
        let guardian = run.guardian();
        kill_process(guardian, Signal::STOP).unwrap();
        run.signal(Signal::STOP);
        wait_until_stopped(guardian);
        wait_until_stopped(run.pid());
        let mut next = server.wait_in_line(&name, LONG_LEASE);
        next.acquired();
        let goes_on = Instant::now();
        run.signal(Signal::CONT);
        let dead = run.report_end();
        let ended = run.ended();
        assert_eq!(ended.code, LOST, "{ended:?}");
        only_line(&ended);
        run.nothing_is_left();
        dead.saturating_duration_since(goes_on)
    };
    assert!((0..ATTEMPTS).map(attempt).any(|lived| lived <= AT_ONCE), "late {ATTEMPTS} times");
}
