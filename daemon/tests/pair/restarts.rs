//! A node that restarts: what it may resume, and what it may not.

use rustix::process::Signal;
use testkit::harness::wait_for;

use crate::nodes::{A, B, Pair, fencer};

#[test]
fn an_active_node_that_is_killed_resumes_when_its_peer_confirms() {
    let mut pair = Pair::start();
    pair.done(A, &["promote"]);
    let (_, first) = pair.hold(A, "jobs");
    pair.kill(A);
    pair.run(A);
    pair.becomes(A, "active");
    assert!(pair.hold(A, "jobs").1 > first);
    assert!(pair.is_closed(B));
}

#[test]
fn an_active_node_resumes_alone_if_nobody_can_have_been_promoted_without_its_answer() {
    let mut pair = Pair::start();
    pair.know_each_other();
    pair.done(A, &["promote"]);
    let (_, first) = pair.hold(A, "jobs");
    pair.kill(B);
    pair.kill(A);
    pair.run(A);
    pair.becomes(A, "active");
    assert!(pair.hold(A, "jobs").1 > first);
}

#[test]
fn a_node_whose_peer_could_have_cut_its_power_does_not_resume_alone() {
    let mut pair = Pair::prepare();
    let levels = fencer(&pair.path("fence-a"), "exit 1");
    pair.flags[B] = vec!["-fencer".into(), levels];
    pair.run(A);
    pair.run(B);
    pair.know_each_other();
    pair.done(A, &["promote"]);
    pair.kill(B);
    pair.kill(A);
    pair.run(A);
    wait_for("the reason", || {
        pair.status(A).reason.filter(|reason| reason.contains("may have been promoted"))
    });
    assert!(pair.is_closed(A));
    let forced = pair.done(A, &["promote", "--force-unfenced"]);
    assert!(forced.contains("must be stopped") && forced.contains("active"), "{forced}");
    pair.hold(A, "jobs");
}

#[test]
fn a_restart_does_not_undo_what_happened_meanwhile() {
    let mut pair = Pair::start();
    pair.done(A, &["promote"]);
    pair.done(B, &["promote"]);
    pair.kill(A);
    pair.run(A);
    pair.know_each_other();
    pair.becomes(B, "active");
    assert!(pair.is_closed(A));
}

#[test]
fn a_node_that_is_stopped_in_order_hands_nothing_over_and_resumes() {
    let mut pair = Pair::start();
    pair.done(A, &["promote"]);
    pair.server(A).signal(Signal::TERM);
    assert!(pair.server(A).exit().success());
    assert!(pair.is_closed(B), "nobody has asked it to take over");
    pair.run(A);
    pair.becomes(A, "active");
}
