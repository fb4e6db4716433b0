//! A command whose exec hangs, as that of a file on a network that is gone does: the claim goes on meanwhile.
//!
//! What makes it hang here is a lease on the file (fcntl F_SETLEASE): the kernel lets nobody open it until
//! the holder gives it back, or 45 s later.

use std::io::{BufRead, BufReader};
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use rustix::process::Signal;
use tempfile::TempDir;

use crate::harness::{Server, wait_for};
use crate::loss::LOST;
use crate::runs::{LONG_LEASE, Run, locked};

/// Holds a lease on a file until its input ends. The kernel's plea to give it back is a signal.
const HOLD: &str = r#"
    use Fcntl;
    $SIG{IO} = "IGNORE";
    open(my $file, "<", $ARGV[0]) or die $!;
    fcntl($file, 1024, F_WRLCK) or die "F_SETLEASE: $!";
    $| = 1;
    print "held\n";
    <STDIN>;"#;

/// A command that reports once it runs, and does not come to that while this lives.
struct Hanging {
    holder: Child,
    path: PathBuf,
    _directory: TempDir,
}

impl Hanging {
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("command");
        // Written by another process: a child forked by a test beside this one would keep it open for
        // writing.
        let write = "printf '#!/bin/sh\\necho runs >\"$REPORT\"\\n' >\"$0\"; chmod +x \"$0\"";
        assert!(Command::new("sh").args(["-c", write]).arg(&path).status().unwrap().success());
        let mut holder = Command::new("perl")
            .args(["-e", HOLD])
            .arg(&path)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("perl is there");
        let mut line = String::new();
        BufReader::new(holder.stdout.take().expect("piped above")).read_line(&mut line).unwrap();
        assert_eq!(line, "held\n");
        Self { holder, path, _directory: directory }
    }

    /// Begins to run it under the lock; returns once it hangs.
    fn run(&self, server: &Server, lease: &str) -> Run {
        let run = Run::start(locked(server.address, lease, "lock", &[self.path.to_str().unwrap()]));
        let inode = format!(":{} ", std::fs::metadata(&self.path).unwrap().ino());
        wait_for("an exec that waits for the file", || {
            let locks = std::fs::read_to_string("/proc/locks").unwrap();
            locks.lines().any(|lock| lock.contains("BREAKING") && lock.contains(&inode)).then_some(())
        });
        run
    }

    /// Lets the command start.
    fn let_go(&mut self) {
        drop(self.holder.stdin.take());
        let _ = self.holder.wait();
    }
}

impl Drop for Hanging {
    fn drop(&mut self) {
        self.let_go();
    }
}

#[test]
fn the_claim_is_kept_while_the_command_hangs_before_it_starts() {
    let server = Server::start();
    let mut hanging = Hanging::new();
    let mut run = hanging.run(&server, "3s");
    let mut next = server.wait_in_line("lock", LONG_LEASE);
    assert!(next.is_silent_for(Duration::from_secs(4)), "the lock moved on");
    hanging.let_go();
    assert_eq!(run.line(), "runs");
    run.report_end();
    next.acquired();
    assert_eq!(run.ended().code, Some(0));
}

#[test]
fn a_command_that_hangs_before_it_starts_never_starts_once_the_claim_is_lost() {
    let server = Server::start();
    let mut hanging = Hanging::new();
    let mut run = hanging.run(&server, "600s");
    server.signal(Signal::KILL);
    // Its end is that of everybody who has its standard error, the command's process too.
    assert_eq!(run.ended().code, LOST);
    hanging.let_go();
    assert!(run.has_not_reported());
}

#[test]
fn a_signal_ends_a_command_that_hangs_before_it_starts() {
    let server = Server::start();
    let hanging = Hanging::new();
    let mut run = hanging.run(&server, "600s");
    run.signal(Signal::TERM);
    assert_eq!(run.ended().code, Some(128 + Signal::TERM.as_raw()));
    server.wait_for_metric("monolock_locks_held", 0.0);
    assert!(run.has_not_reported());
}
