//! Tests in a network namespace of their own. They need root.

use std::process::Command;

/// Set for the run of a test inside a network namespace of its own.
const INSIDE: &str = "TEST_INSIDE_NAMESPACE";

/// Runs the test `name` again in a network namespace of its own; true in that run, which finds loopback up.
pub(crate) fn in_own_network(name: &str) -> bool {
    if std::env::var_os(INSIDE).is_some() {
        run("ip", &["link", "set", "lo", "up"]);
        return true;
    }
    let test = std::env::current_exe().unwrap();
    run_with(Command::new("unshare").arg("--net").arg(test).args([
        "--exact",
        name,
        "--ignored",
        "--nocapture",
    ]));
    false
}

pub(crate) fn run(program: &str, arguments: &[&str]) {
    run_with(Command::new(program).args(arguments));
}

fn run_with(command: &mut Command) {
    let status = command.env(INSIDE, "1").status();
    assert!(status.as_ref().is_ok_and(std::process::ExitStatus::success), "{command:?}: {status:?}");
}
