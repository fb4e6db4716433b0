//! Nodes with agents: a server that hangs or is gone does not keep the other one closed.

use std::time::{Duration, Instant};

use rustix::process::Signal;
use testkit::harness::wait_for;

use crate::nodes::{A, B, Pair};

/// Two nodes with agents, of which A is active and both are fit to have the address.
fn active() -> Pair {
    let mut pair = Pair::prepare();
    for node in [A, B] {
        pair.run_agent(node);
        pair.run(node);
    }
    pair.done(A, &["promote"]);
    for node in [A, B] {
        pair.is_healthy_soon(node, true);
    }
    pair
}

#[test]
fn a_server_that_is_killed_is_gone_by_its_agents_word() {
    let mut pair = active();
    let (_, first) = pair.hold(A, "jobs");
    pair.kill(A);
    let killed = Instant::now();
    pair.is_healthy_soon(A, false);
    pair.done(B, &["promote", "--auto"]);
    println!("active {:?} after the other was killed", killed.elapsed());
    assert!(pair.hold(B, "jobs").1 > first);
    // It restarts: what was promised meanwhile stands.
    pair.run(A);
    pair.know_each_other();
    assert!(pair.is_closed(A));
    pair.becomes(B, "active");
}

#[test]
fn a_server_that_hangs_loses_the_address_and_is_killed_when_the_other_is_promoted() {
    let mut pair = active();
    let (_, first) = pair.hold(A, "jobs");
    pair.server(A).signal(Signal::STOP);
    let stopped = Instant::now();
    pair.is_healthy_soon(A, false);
    pair.done(B, &["promote", "--auto"]);
    println!("active {:?} after the other hung", stopped.elapsed());
    assert!(pair.hold(B, "jobs").1 > first);
    assert_eq!(std::os::unix::process::ExitStatusExt::signal(&pair.server(A).exit()), Some(9));
}

#[test]
fn a_switchover_takes_the_health_file_away_and_it_comes_back() {
    let pair = active();
    // The check script of B tells where the address is; both have this one.
    pair.operate(B, &["promote", "--keep", "--address", "127.0.0.1"]);
    pair.done(A, &["switchover"]);
    pair.becomes(B, "active");
    assert!(pair.is_healthy(B));
    pair.is_healthy_soon(A, true);
}

#[test]
fn a_server_without_its_agent_is_not_ready_and_takes_the_health_file_away() {
    let mut pair = active();
    let (mut holder, _) = pair.hold(A, "jobs");
    pair.kill_agent(A);
    pair.is_healthy_soon(A, false);
    wait_for("the reason", || {
        let (status, text) = pair.servers[A].as_ref().unwrap().get("/readyz");
        (status == 503 && text.contains("agent")).then_some(())
    });
    holder.heartbeat();
    holder.acquired();
    pair.run_agent(A);
    pair.is_healthy_soon(A, true);
}

#[test]
fn a_planned_reboot_hands_over_by_the_peers_word_alone() {
    let mut pair = active();
    let (_, first) = pair.hold(A, "jobs");
    pair.server(A).signal(Signal::TERM);
    assert!(pair.server(A).exit().success());
    let asked = Instant::now();
    pair.done(B, &["promote", "--auto"]);
    assert!(asked.elapsed() < Duration::from_secs(10));
    assert!(pair.hold(B, "jobs").1 > first);
}
