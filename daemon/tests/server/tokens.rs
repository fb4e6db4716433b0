//! Tokens over restarts: the token file.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use durable::Record;
use tempfile::tempdir;

use crate::harness::{MONOLOCK, Server, run_to_end};

const LEASE: Duration = Duration::from_secs(60);

/// Far ahead of every clock.
const AHEAD: u64 = 1 << 52;

fn with_file(path: &Path) -> Server {
    Server::with(&["-token-file", path.to_str().unwrap()])
}

fn ceiling(path: &Path) -> u64 {
    Record::<u64>::new(path, "token-ceiling").read().unwrap().expect("the server has written it")
}

/// The exit status and the only line of a server that does not start.
fn refused(path: &Path) -> (i32, String) {
    let mut command = Command::new(MONOLOCK);
    command.args(["-listen", "127.0.0.1:0", "-token-file"]).arg(path);
    let (status, stderr) = run_to_end(&mut command);
    assert_eq!(stderr.lines().count(), 1, "one line: {stderr}");
    (status.code().expect("an exit status"), stderr)
}

#[test]
fn tokens_rise_over_kills_whatever_the_clock_shows() {
    let dir = tempdir().unwrap();
    let path = dir.path().join("tokens");
    Record::<u64>::new(&path, "token-ceiling").write(&AHEAD).unwrap();
    let mut last = AHEAD;
    for _ in 0..3 {
        let server = with_file(&path);
        for lock in ["a", "b"] {
            let (_, token) = server.hold(lock, LEASE);
            assert!(token.0 > last && token.0 <= ceiling(&path), "{token} after {last}");
            last = token.0;
        }
        let reached = ceiling(&path);
        drop(server);
        last = reached;
    }
}

#[test]
fn a_new_file_is_ahead_of_the_first_grant_and_rises_with_use() {
    let dir = tempdir().unwrap();
    let path = dir.path().join("tokens");
    let server = with_file(&path);
    let first = ceiling(&path);
    let (_, token) = server.hold("a", LEASE);
    assert!(token.0 < first);
    let mut count = 0;
    crate::harness::wait_for("the ceiling to rise", || {
        count += 1;
        assert!(server.hold(&format!("lock-{count}"), LEASE).1.0 <= ceiling(&path));
        (ceiling(&path) > first).then_some(())
    });
}

#[test]
fn a_file_that_is_damaged_or_none_of_ours_is_refused_with_what_to_do() {
    let dir = tempdir().unwrap();
    let path = dir.path().join("tokens");
    Record::<u64>::new(&path, "token-ceiling").write(&AHEAD).unwrap();
    let whole = fs::read(&path).unwrap();
    for text in [&whole[..whole.len() - 3], &b"root:x:0:0\n"[..], b""] {
        fs::write(&path, text).unwrap();
        let (status, line) = refused(&path);
        assert_eq!(status, 78, "{line}");
        assert!(line.contains("-token-file") && line.contains("put a copy back, or move it away"), "{line}");
        assert_eq!(fs::read(&path).unwrap(), text, "it is not touched");
    }
    let nowhere = dir.path().join("no/such/tokens");
    let (status, line) = refused(&nowhere);
    assert_eq!(status, 71, "{line}");
    assert!(line.contains("-token-file") && line.contains("No such file or directory"), "{line}");
}

#[test]
fn a_second_server_with_the_same_file_waits_for_the_first_to_end_and_then_says_who_has_it() {
    let dir = tempdir().unwrap();
    let path = dir.path().join("tokens");
    let first = with_file(&path);
    let started = Instant::now();
    let (status, line) = refused(&path);
    assert_eq!(status, 71, "{line}");
    assert!(started.elapsed() >= Duration::from_secs(5), "a restart may overlap");
    let holder = format!("in use by another process ({}): each server needs", first.pid().as_raw_nonzero());
    assert!(line.contains(&holder), "{line}");
}
