//! What is said of a wait: everything with -v, what a person wonders at on a terminal, and nothing elsewhere.

use std::io::{BufRead, BufReader, PipeReader, pipe};
use std::process::Command;

use crate::harness::Server;
use crate::runs::{LONG_LEASE, Run, monolock_run, only_line, run_to_end};

const SCRIPT: &str = "exec >\"$REPORT\"; echo runs; read -r _; exit 0";

fn waiter(server: &Server, flags: &[&str]) -> Command {
    let address = server.address.to_string();
    monolock_run(&[&["--address", &address], flags, &["lock", "--", "sh", "-c", SCRIPT]].concat())
}

/// A run whose words are read line by line.
fn heard(command: Command) -> (Run, impl Iterator<Item = String>) {
    let (reader, writer) = pipe().unwrap();
    (Run::start_with_stderr(command, writer), lines(reader))
}

fn lines(reader: PipeReader) -> impl Iterator<Item = String> {
    BufReader::new(reader).lines().map(Result::unwrap)
}

#[test]
fn with_v_the_wait_the_lost_place_and_the_token_are_told_with_lock_and_server() {
    let mut server = Server::start();
    let address = server.address;
    let (_holder, _) = server.hold("lock", LONG_LEASE);
    let (mut run, mut said) = heard(waiter(&server, &["-v"]));
    let line = said.next().unwrap();
    assert!(line.contains(&format!("waiting for \"lock\" at {address} since 2")), "{line}");
    assert!(line.contains("monolock inspect \"lock\""), "{line}");
    server.signal(rustix::process::Signal::TERM);
    server.exit();
    let line = said.next().unwrap();
    assert!(line.contains("lost the place") && line.contains("shutting down"), "{line}");
    let mut command = Command::new(crate::harness::MONOLOCK);
    command.args(["-listen", &address.to_string(), "-ops-listen", "127.0.0.1:0"]);
    let _server = Server::spawn(command);
    assert_eq!(run.line(), "runs");
    // Attempts while nobody listened are told too.
    let line = said.find(|line| !line.contains("trying again")).unwrap();
    assert!(line.contains(&format!("acquired \"lock\" at {address} after ")), "{line}");
    assert!(line.contains(", token "), "{line}");
    run.end_input();
    assert_eq!((run.ended().code, said.next()), (Some(0), None));
}

#[test]
fn a_lock_that_is_taken_is_told_with_v_and_left_to_the_status_without() {
    let server = Server::start();
    let _holder = server.hold("lock", LONG_LEASE);
    for flags in [&["--try"][..], &["--wait", "100ms"], &["-q", "-n"]] {
        let ended = run_to_end(waiter(&server, flags));
        assert_eq!((ended.code, &*ended.stderr), (Some(75), ""), "{flags:?}");
    }
    let ended = run_to_end(waiter(&server, &["-v", "--try"]));
    assert_eq!(ended.code, Some(75));
    let line = only_line(&ended);
    assert!(line.contains("\"lock\" at ") && line.contains(&server.address.to_string()), "{line}");
}

#[test]
fn the_status_of_a_taken_lock_can_be_chosen() {
    let server = Server::start();
    let _holder = server.hold("lock", LONG_LEASE);
    for how in [&["--try"][..], &["-n"], &["--wait", "100ms"], &["-w", "100ms"]] {
        for (flags, code) in [(&["-E", "0"][..], 0), (&["-E255"], 255), (&["--conflict-exit-code", "9"], 9)] {
            let ended = run_to_end(waiter(&server, &[how, flags].concat()));
            assert_eq!((ended.code, &*ended.stderr), (Some(code), ""), "{how:?} {flags:?}");
        }
    }
}

#[test]
fn a_person_at_a_terminal_is_told_after_two_seconds_that_it_waits_and_then_that_it_has_the_lock() {
    let server = Server::start();
    let (holder, _) = server.hold("lock", LONG_LEASE);
    let pty = nix::pty::openpty(None, None).expect("a terminal");
    let begun = std::time::Instant::now();
    let mut run = Run::start_with_stderr(waiter(&server, &[]), pty.slave);
    // A terminal's end is an error.
    let mut said = BufReader::new(std::fs::File::from(pty.master)).lines().map_while(Result::ok);
    let line = said.next().unwrap();
    assert!(begun.elapsed() >= std::time::Duration::from_secs(2), "{line}");
    assert!(line.contains("waiting for \"lock\" at "), "{line}");
    holder.close();
    assert_eq!(run.line(), "runs");
    let line = said.next().unwrap();
    assert!(line.contains("acquired \"lock\" at "), "{line}");
    run.end_input();
    assert_eq!(run.ended().code, Some(0));

    // Whoever does not want it says so.
    let (holder, _) = server.hold("lock", LONG_LEASE);
    let pty = nix::pty::openpty(None, None).expect("a terminal");
    let mut run = Run::start_with_stderr(waiter(&server, &["-q"]), pty.slave);
    assert!(run.is_silent_for(std::time::Duration::from_millis(2500)));
    holder.close();
    assert_eq!(run.line(), "runs");
    run.end_input();
    assert_eq!(run.ended().code, Some(0));
    let said = BufReader::new(std::fs::File::from(pty.master)).lines().map_while(Result::ok);
    assert_eq!(said.count(), 0);
}
