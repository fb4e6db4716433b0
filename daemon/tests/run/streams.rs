//! The command's streams are those of `monolock run`, and nothing else is open to it.

use std::fs;
use std::io::Write;
use std::process::{Command, Stdio};

use crate::harness::Server;
use crate::runs::{LONG, LONG_LEASE, Run, locked};

#[test]
fn the_command_has_the_very_streams_of_monolock_run() {
    let server = Server::start();
    let script = "exec 3>\"$REPORT\"; for n in 0 1 2; do link=$(readlink /proc/$$/fd/$n); echo \"$link\" >&3; done; read -r _";
    let mut run = Run::start(locked(server.address, LONG, "lock", &["sh", "-c", script]));
    for number in 0..3 {
        let stream = fs::read_link(format!("/proc/{}/fd/{number}", run.pid().as_raw_pid())).unwrap();
        assert_eq!(run.line(), stream.to_str().unwrap());
    }
    run.end_input();
    run.ended();
}

#[test]
fn what_goes_through_the_command_comes_out_whole_and_alone() {
    let server = Server::start();
    let bytes: Vec<u8> = (0..1_000_000_u32).map(|index| (index % 251) as u8).collect();
    // It waits first, since waiting is what monolock could have said something about.
    let (holder, _) = server.hold("lock", LONG_LEASE);
    let mut run = Run::start(locked(server.address, LONG, "lock", &["sh", "-c", "echo heard >&2; exec cat"]));
    server.wait_for_metric("monolock_waiters", 1.0);
    holder.close();
    run.stdin().write_all(&bytes).unwrap();
    run.end_input();
    let ended = run.ended();
    assert_eq!((ended.code, &*ended.stderr), (Some(0), "heard\n"));
    assert!(ended.stdout == bytes, "{} bytes of {} came, or others", ended.stdout.len(), bytes.len());
}

#[test]
fn the_command_inherits_no_other_descriptor() {
    let server = Server::start();
    let look = "cd /proc/$$/fd; echo *";
    let piped = |mut command: Command| {
        command.stdin(Stdio::null()).stderr(Stdio::piped());
        String::from_utf8(command.output().unwrap().stdout).unwrap()
    };
    let mut alone = Command::new("sh");
    alone.args(["-c", look]);
    assert_eq!(piped(locked(server.address, LONG, "lock", &["sh", "-c", look])), piped(alone));
}

#[test]
fn the_command_has_the_environment_and_the_directory_of_monolock_run() {
    let server = Server::start();
    let directory = tempfile::tempdir().unwrap();
    let mut command = locked(server.address, LONG, "lock", &["sh", "-c", "pwd -P; printenv MINE"]);
    command.current_dir(&directory).env("MINE", "a b");
    let output = command.output().unwrap();
    let here = fs::canonicalize(&directory).unwrap();
    assert_eq!(String::from_utf8(output.stdout).unwrap(), format!("{}\na b\n", here.display()));
}
