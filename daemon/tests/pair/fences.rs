//! How the other node is kept from acting, and what is no proof of that.

use std::fs;

use testkit::harness::wait_for;

use crate::nodes::{A, B, Pair, fencer};

#[test]
fn a_peer_that_does_not_answer_proves_nothing() {
    let mut pair = Pair::start();
    pair.know_each_other();
    pair.done(A, &["promote"]);
    // Killed: its port refuses connections, which might be a firewall as well.
    pair.kill(A);
    let (status, text) = pair.operate(B, &["promote"]);
    assert!(matches!(status, 1 | 3), "{text}");
    assert!(pair.is_closed(B));
    let shown = pair.operate(B, &["status"]).1;
    assert!(shown.contains("--force-unfenced") && shown.contains("proves nothing"), "{shown}");
    pair.run(A);
    pair.done(B, &["promote"]);
    assert!(pair.is_closed(A));
}

#[test]
fn a_command_that_confirms_is_a_fence() {
    let mut pair = Pair::prepare();
    let levels = fencer(&pair.path("fence-b"), "");
    pair.flags[B] = vec!["-fencer".into(), levels];
    pair.run(A);
    pair.run(B);
    pair.know_each_other();
    pair.done(A, &["promote"]);
    let (_, first) = pair.hold(A, "jobs");
    pair.kill(A);
    pair.done(B, &["promote", "--auto"]);
    assert_eq!(fs::read_to_string(pair.path("fence-b.calls")).unwrap(), "off a\nstatus a\n");
    assert!(pair.hold(B, "jobs").1 > first, "counted on from what was known of the ceiling");
}

#[test]
fn a_node_whose_fences_all_fail_stays_closed_says_why_and_goes_on_trying() {
    let mut pair = Pair::prepare();
    let levels = fencer(&pair.path("fence-b"), "echo the plug does not answer >&2; exit 1");
    pair.flags[B] = vec!["-fencer".into(), levels];
    pair.run(A);
    pair.run(B);
    pair.know_each_other();
    pair.done(A, &["promote"]);
    pair.kill(A);
    let (status, text) = pair.operate(B, &["promote", "--auto"]);
    assert_eq!(status, 3, "{text}");
    assert_eq!(pair.operate(B, &["status"]).0, 3);
    assert!(pair.is_closed(B));
    let shown = pair.operate(B, &["status"]).1;
    assert!(shown.contains("the plug does not answer"), "{shown}");
    // The plug is mended: the next round has it.
    fencer(&pair.path("fence-b"), "");
    pair.becomes(B, "active");
    pair.hold(B, "jobs");
}

#[test]
fn a_node_that_has_not_heard_its_peer_since_it_booted_does_not_shoot_it() {
    let mut pair = Pair::prepare();
    let levels = fencer(&pair.path("fence-b"), "");
    pair.flags[B] = vec!["-fencer".into(), levels];
    pair.run(B);
    let (status, text) = pair.operate(B, &["promote", "--auto"]);
    assert!(matches!(status, 1 | 3), "{text}");
    assert!(text.contains("--force-unfenced"), "{text}");
    assert!(!pair.path("fence-b.calls").exists(), "nobody was shot");
    assert!(pair.is_closed(B));
}

#[test]
fn who_answers_under_the_peers_name_has_to_be_the_peer() {
    let mut pair = Pair::prepare();
    // A's address for its peer is its own: as if the address that moves had been given.
    pair.run(B);
    let own = pair.command(A).get_args().skip_while(|arg| *arg != "-ha-listen").nth(1).unwrap().to_owned();
    pair.flags[A] =
        vec!["-peer".into(), format!("b={}", own.to_str().unwrap()), "-ha-allow".into(), "a,b".into()];
    pair.run(A);
    let (status, text) = pair.operate(A, &["promote"]);
    assert!(matches!(status, 1 | 3), "{text}");
    wait_for("the reason", || {
        let silence = pair.status(A).peer.silence?;
        silence.contains("address that moves").then_some(())
    });
    assert!(pair.is_closed(A));
}
