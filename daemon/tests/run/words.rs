//! What is said of a wait: everything with -v, what a person wonders at on a terminal, and nothing elsewhere.

use std::fs::File;
use std::io::{BufRead, BufReader, Read, pipe};
use std::process::Command;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;
use std::time::{Duration, Instant};

use nix::pty::openpty;
use rustix::process::Signal;

use crate::harness::{MONOLOCK, PATIENCE, Server};
use crate::runs::{LONG_LEASE, Run, monolock_run, only_line, run_to_end};

const SCRIPT: &str = "exec >\"$REPORT\"; echo runs; read -r _; exit 0";

fn waiter(server: &Server, flags: &[&str]) -> Command {
    let address = server.address.to_string();
    monolock_run(&[&["--address", &address], flags, &["lock", "--", "sh", "-c", SCRIPT]].concat())
}

/// What a run says, line by line.
pub(crate) struct Heard(Receiver<String>);

impl Heard {
    /// Reads to the end, or to an error: that is how a terminal ends.
    pub(crate) fn new(stderr: impl Read + Send + 'static) -> Self {
        let (sender, lines) = channel();
        thread::spawn(move || {
            for line in BufReader::new(stderr).lines().map_while(Result::ok) {
                let _ = sender.send(line);
            }
        });
        Self(lines)
    }

    /// The next line.
    pub(crate) fn line(&self) -> String {
        self.0.recv_timeout(PATIENCE).expect("a line")
    }

    /// Waits until nobody can say anything more; nothing may be said before.
    pub(crate) fn end(&self) {
        assert_eq!(self.0.recv_timeout(PATIENCE), Err(RecvTimeoutError::Disconnected));
    }
}

/// A run whose words are read line by line.
pub(crate) fn heard(command: Command) -> (Run, Heard) {
    let (reader, writer) = pipe().unwrap();
    (Run::start_with_stderr(command, writer), Heard::new(reader))
}

/// The same at a terminal.
fn heard_at_a_terminal(command: Command) -> (Run, Heard) {
    let pty = openpty(None, None).expect("a terminal");
    (Run::start_with_stderr(command, pty.slave), Heard::new(File::from(pty.master)))
}

#[test]
fn with_v_the_wait_the_lost_place_and_the_token_are_told_with_lock_and_server() {
    let mut server = Server::start();
    let address = server.address;
    let (_holder, _) = server.hold("lock", LONG_LEASE);
    let (mut run, said) = heard(waiter(&server, &["-v"]));
    let line = said.line();
    assert!(line.contains(&format!("waiting for \"lock\" at {address} since 2")), "{line}");
    assert!(line.contains("monolock inspect \"lock\""), "{line}");
    server.signal(Signal::TERM);
    server.exit();
    let line = said.line();
    assert!(line.contains("lost the place") && line.contains("shutting down"), "{line}");
    let mut command = Command::new(MONOLOCK);
    command.args(["-listen", &address.to_string(), "-ops-listen", "127.0.0.1:0"]);
    let _server = Server::spawn(command);
    assert_eq!(run.line(), "runs");
    // Attempts while nobody listened are told too.
    let line = std::iter::repeat_with(|| said.line()).find(|line| !line.contains("trying again"));
    let line = line.expect("an endless iterator");
    assert!(line.contains(&format!("acquired \"lock\" at {address} after ")), "{line}");
    assert!(line.contains(", token "), "{line}");
    run.end_input();
    assert_eq!(run.ended().code, Some(0));
    said.end();
}

#[test]
fn a_lock_that_is_taken_is_left_to_the_status_unless_v_asks_for_words_or_a_wait_was_in_vain() {
    let server = Server::start();
    let _holder = server.hold("lock", LONG_LEASE);
    for flags in [&["--try"][..], &["-q", "-n"]] {
        let ended = run_to_end(waiter(&server, flags));
        assert_eq!((ended.code, &*ended.stderr), (Some(75), ""), "{flags:?}");
    }
    for flags in [&["-v", "--try"][..], &["--wait", "100ms"], &["-q", "--wait", "100ms"]] {
        let ended = run_to_end(waiter(&server, flags));
        assert_eq!(ended.code, Some(75));
        let line = only_line(&ended);
        assert!(line.contains(&format!("\"lock\" at {}", server.address)), "{line}");
        assert!(line.contains("another client holds it"), "{line}");
    }
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
    let begun = Instant::now();
    let (mut run, said) = heard_at_a_terminal(waiter(&server, &[]));
    let line = said.line();
    assert!(begun.elapsed() >= Duration::from_secs(2), "{line}");
    assert!(line.contains("waiting for \"lock\" at "), "{line}");
    holder.close();
    assert_eq!(run.line(), "runs");
    let line = said.line();
    assert!(line.contains("acquired \"lock\" at "), "{line}");
    run.end_input();
    assert_eq!(run.ended().code, Some(0));
    said.end();
}

#[test]
fn a_person_at_a_terminal_who_wants_quiet_has_it() {
    let server = Server::start();
    let (holder, _) = server.hold("lock", LONG_LEASE);
    let (mut run, said) = heard_at_a_terminal(waiter(&server, &["-q"]));
    assert!(run.is_silent_for(Duration::from_millis(2500)));
    holder.close();
    assert_eq!(run.line(), "runs");
    run.end_input();
    assert_eq!(run.ended().code, Some(0));
    said.end();
}
