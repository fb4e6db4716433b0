//! The tool from outside: its processes and exit codes.

use std::fs;
use std::process::{Command, Output, Stdio};
use std::thread;
use std::time::{Duration, Instant};

const TOOL: &str = env!("CARGO_BIN_EXE_monolock-soak");

/// A server that takes all flags and never listens.
const DEAF: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/programs/deaf");

const PATIENCE: Duration = Duration::from_secs(10);

fn soak_with(server: &str) -> (Output, String) {
    let output = Command::new(TOOL).args(["--restart-only", "--server", server]).output().unwrap();
    let message = String::from_utf8(output.stderr.clone()).unwrap();
    (output, message)
}

#[test]
fn a_missing_server_is_one_clear_line_and_no_verdict() {
    let (output, message) = soak_with("/nonexistent/monolock");
    assert_eq!(output.status.code(), Some(2));
    assert_eq!(message.lines().count(), 1, "{message}");
    assert!(message.contains("/nonexistent/monolock") && message.contains("--server"), "{message}");
}

#[test]
fn a_server_that_ends_at_once_is_reported_with_its_last_words() {
    // It takes none of a server's flags and says so.
    let (output, message) = soak_with("/bin/cat");
    assert_eq!(output.status.code(), Some(2));
    assert!(message.contains("ended") && message.contains("cat:"), "{message}");
}

#[test]
fn a_server_ends_with_the_soak_that_started_it_even_if_that_is_killed() {
    let mut soak =
        Command::new(TOOL).args(["--restart-only", "--server", DEAF]).stderr(Stdio::null()).spawn().unwrap();
    let children = format!("/proc/{0}/task/{0}/children", soak.id());
    let server = wait_for("the server", || {
        let server = fs::read_to_string(&children).unwrap().split_whitespace().next()?.to_owned();
        let has_begun = fs::read_to_string(format!("/proc/{server}/comm")).ok()?.trim() == "sleep";
        has_begun.then_some(server)
    });
    soak.kill().unwrap();
    soak.wait().unwrap();
    wait_for("the server's end", || has_ended(&server).then_some(()));
}

/// Whether nothing but its status may be left.
fn has_ended(pid: &str) -> bool {
    let state = fs::read_to_string(format!("/proc/{pid}/stat"));
    state.map_or(true, |state| state.rsplit(") ").next().is_some_and(|rest| rest.starts_with(['Z', 'X'])))
}

#[track_caller]
fn wait_for<T>(what: &str, look: impl Fn() -> Option<T>) -> T {
    let start = Instant::now();
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(start.elapsed() < PATIENCE, "{what} does not come");
        thread::sleep(Duration::from_millis(5));
    }
}
