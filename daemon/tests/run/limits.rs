//! The limits of the machine: one clear line and 71, and never a panic.

use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::harness::{MONOLOCK, Server};
use crate::runs::{monolock_run, run_to_end};

/// A user who has no process yet, also no dead one that nobody has reaped: a limit counts all of a user's.
fn newcomer() -> String {
    static LAST: AtomicU32 = AtomicU32::new(0);
    (1_000_000_000 + std::process::id() * 100 + LAST.fetch_add(1, Ordering::Relaxed)).to_string()
}

/// Enough for all processes and threads of a run.
const PROCESSES_MAX: u32 = 16;

/// `monolock run` as a user with at most so many processes and threads.
fn confined(processes_max: u32, address: &str) -> Command {
    let mut command = Command::new("setpriv");
    let user = newcomer();
    command.args(["--reuid", &user, "--regid", &user, "--clear-groups", "prlimit"]);
    command.arg(format!("--nproc={processes_max}")).args([&*MONOLOCK, "run", "--wait", "5s", "--address"]);
    command.args([address, "lock", "--", "true"]).env_remove("MONOLOCK_ADDRESS");
    command
}

#[test]
#[ignore = "needs root, to be another user; .ci/run runs it"]
fn a_run_that_gets_no_more_threads_or_processes_says_so_in_one_line_with_71() {
    let server = Server::start();
    let by_name = format!("localhost:{}", server.address.port());
    for address in [&by_name, &server.address.to_string()] {
        let mut codes = Vec::new();
        for processes_max in 1..=PROCESSES_MAX {
            let ended = run_to_end(confined(processes_max, address));
            match ended.code {
                Some(0) => assert_eq!(ended.stderr, "", "{processes_max}"),
                Some(71) => {
                    assert_eq!(ended.stderr.lines().count(), 1, "{processes_max}: {ended:?}");
                    assert!(!ended.stderr.contains("panicked"), "{ended:?}");
                }
                other => panic!("{other:?} with {processes_max} processes: {ended:?}"),
            }
            codes.push(ended.code.unwrap());
        }
        // From some number on there are enough.
        assert!(codes.is_sorted_by(|a, b| a >= b), "{codes:?}");
        assert_eq!((codes[0], codes[codes.len() - 1]), (71, 0), "{codes:?}");
    }
}

#[test]
fn a_run_that_gets_no_more_open_files_says_so_with_71_and_does_not_blame_the_server() {
    let server = Server::start();
    let mut statuses = Vec::new();
    for files_max in 3..40 {
        let mut command = Command::new("prlimit");
        let run =
            monolock_run(&["--wait", "5s", "--address", &server.address.to_string(), "lock", "--", "true"]);
        command.arg(format!("--nofile={files_max}")).arg(run.get_program()).args(run.get_args());
        let ended = run_to_end(command);
        assert!(!ended.stderr.contains("panicked"), "{files_max}: {ended:?}");
        if ended.stderr.contains("monolock run: ") {
            assert_eq!(ended.code, Some(71), "{files_max}: {ended:?}");
        }
        statuses.push(ended.code);
    }
    assert!(statuses.contains(&Some(71)) && statuses.ends_with(&[Some(0)]), "{statuses:?}");
}
