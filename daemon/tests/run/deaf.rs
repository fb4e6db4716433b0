//! A standard error that takes no more, or is closed: it costs messages and nothing else.

use std::io::{PipeReader, PipeWriter, pipe};
use std::process::Command;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::Signal;

use crate::harness::{Server, wait_for};
use crate::loss::{LOST, STUBBORN};
use crate::runs::{ATTEMPTS, LONG, Run, locked, monolock_run, reporting, wait_until_stopped};
use crate::status::deserted;

const LEASE: Duration = Duration::from_secs(1);

fn is_full(pipe: &PipeWriter) -> bool {
    let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
    poll(&mut [PollFd::new(pipe, PollFlags::OUT)], Some(&at_once)) == Ok(0)
}

/// A pipe that nobody reads, filled up by a command that goes on writing.
fn full(command: Command) -> (Run, PipeReader) {
    let (reader, writer) = pipe().unwrap();
    let run = Run::start_with_stderr(command, writer.try_clone().unwrap());
    wait_for("a full standard error", || is_full(&writer).then_some(()));
    (run, reader)
}

/// A pipe whose reader is gone.
fn broken(command: Command) -> Run {
    let (reader, writer) = pipe().unwrap();
    drop(reader);
    Run::start_with_stderr(command, writer)
}

#[test]
fn a_stubborn_group_that_filled_standard_error_is_dead_within_nine_tenths_of_the_lease() {
    let attempt = |_| {
        let server = Server::start();
        let script = reporting(&format!("cat /dev/zero >&2 & {STUBBORN}"));
        let (mut run, _reader) = full(locked(server.address, "1s", "lock", &["sh", "-c", &script]));
        assert_eq!([run.line(), run.line()], ["ready", "ready"]);
        server.signal(Signal::STOP);
        wait_until_stopped(server.pid());
        let stopped = Instant::now();
        // A busy machine may find the loss too late for SIGTERM.
        let dead = run.report_end_after_all();
        assert_eq!(run.ended().code, LOST);
        dead.saturating_duration_since(stopped)
    };
    let in_time = (0..ATTEMPTS).map(attempt).any(|lived| lived <= LEASE * 9 / 10);
    assert!(in_time, "late {ATTEMPTS} times");
}

#[test]
fn a_lost_claim_stops_the_command_when_standard_error_is_closed_too() {
    let server = Server::start();
    let script = reporting("exec 4<&0; cat <&4 & trap 'echo terminated; exit 0' TERM; echo ready; wait");
    let mut run = broken(locked(server.address, LONG, "lock", &["sh", "-c", &script]));
    run.line();
    server.signal(Signal::TERM);
    assert_eq!(run.line(), "terminated");
    run.report_end();
    assert_eq!(run.ended().code, LOST);
}

#[test]
fn a_closed_standard_error_changes_no_status() {
    let server = Server::start();
    let mut misled = monolock_run(&["lock", "--", "true"]);
    misled.env("MONOLOCK_ADDRESS", "nowhere");
    let (_socket, nobody) = deserted();
    for (command, code) in [
        (locked(server.address, LONG, "lock", &["/nonexistent/command"]), 127),
        (locked(server.address, LONG, "lock", &["/"]), 126),
        (monolock_run(&["--address", &nobody.to_string(), "--try", "lock", "--", "true"]), 69),
        (locked(server.address, LONG, "", &["true"]), 64),
        (misled, 64),
        (monolock_run(&["lock"]), 64),
    ] {
        assert_eq!(broken(command).ended().code, Some(code));
    }
}
