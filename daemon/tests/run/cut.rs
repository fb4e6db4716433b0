//! A network that is cut: the command is dead before the server can give the lock to somebody else.

use std::process::Command;
use std::time::{Duration, Instant};

use crate::harness::{Server, wait_for};
use crate::loss::{LEASE, LOST, stubborn};
use crate::runs::only_line;

/// Set for the run of a test inside a network namespace of its own.
const INSIDE: &str = "MONOLOCK_TEST_INSIDE_NAMESPACE";

fn done(command: &mut Command) {
    let status = command.env(INSIDE, "1").status();
    assert!(status.as_ref().is_ok_and(std::process::ExitStatus::success), "{command:?}: {status:?}");
}

fn nft(arguments: &[&str]) {
    done(Command::new("nft").args(arguments));
}

#[test]
#[ignore = "needs root and nft; .ci/run runs it"]
fn a_stubborn_group_that_is_cut_off_is_dead_when_the_next_one_has_the_lock() {
    if std::env::var_os(INSIDE).is_none() {
        let test = "cut::a_stubborn_group_that_is_cut_off_is_dead_when_the_next_one_has_the_lock";
        let mut inside = Command::new("unshare");
        inside.arg("--net").arg(std::env::current_exe().unwrap());
        return done(inside.args(["--exact", test, "--ignored", "--nocapture"]));
    }
    done(Command::new("ip").args(["link", "set", "lo", "up"]));
    let server = Server::start();
    let mut run = stubborn(&server);
    let mut next = server.wait_in_line("lock", Duration::from_secs(600));
    let heartbeats = || server.metric("monolock_heartbeats_total");
    let before = heartbeats();
    wait_for("a heartbeat", || (heartbeats() > before).then_some(()));
    // The server's answers no longer arrive at the run, and its heartbeats not at the server.
    let (ours, all) = (next.stream.local_addr().unwrap().port(), server.address.port());
    nft(&["add", "table", "inet", "test"]);
    nft(&["add", "chain", "inet", "test", "in", "{ type filter hook input priority 0; }"]);
    for rule in [
        format!("tcp sport {all} tcp dport != {ours} drop"),
        format!("tcp dport {all} tcp sport != {ours} drop"),
    ] {
        nft(&["add", "rule", "inet", "test", "in", &rule]);
    }
    let cut = Instant::now();

    assert_eq!(run.line(), "terminated");
    let dead = run.report_end();
    next.acquired();
    let granted = Instant::now();
    assert!(dead < granted, "dead {:?} after the lock moved on", dead - granted);
    assert!(dead <= cut + LEASE * 95 / 100, "dead {:?} after the cut", dead - cut);
    let ended = run.ended();
    assert_eq!(ended.code, LOST);
    assert!(only_line(&ended).contains("did not confirm"), "{ended:?}");
    run.nothing_is_left();
}
