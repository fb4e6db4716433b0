//! What operators and scripts have two nodes do.

use std::thread;
use std::time::{Duration, Instant};

use protocol::{ErrorCode, ServerFrame};

use crate::nodes::{A, B, Pair};

#[test]
fn a_node_grants_nothing_until_it_is_promoted_and_the_other_one_stays_closed() {
    let mut pair = Pair::start();
    for node in [A, B] {
        assert_eq!(pair.operate(node, &["status"]).0, 1);
        assert!(pair.is_closed(node));
    }
    assert!(pair.done(A, &["promote"]).contains("active in term 1.a"));
    assert_eq!(pair.operate(A, &["status"]).0, 0);
    pair.hold(A, "jobs");
    assert!(pair.is_closed(B));
    assert_eq!(pair.operate(B, &["status"]).0, 1);
}

#[test]
fn a_promotion_closes_the_peer_first_and_tokens_go_on_rising() {
    let mut pair = Pair::start();
    pair.done(A, &["promote"]);
    let (mut holder, first) = pair.hold(A, "jobs");
    assert!(pair.done(B, &["promote"]).contains("active in term 2.b"));
    assert!(matches!(holder.frame(), ServerFrame::Error { code: ErrorCode::SHUTTING_DOWN, .. }));
    assert!(pair.is_closed(A));
    let (_, second) = pair.hold(B, "jobs");
    assert!(second > first, "{second} after {first}");
    // And back: no session of the first time is left, and tokens rise within one process too.
    pair.done(A, &["promote"]);
    let (_, third) = pair.hold(A, "jobs");
    assert!(third > second, "{third} after {second}");
}

#[test]
fn a_switchover_opens_the_other_node_within_a_tenth_of_a_second() {
    let mut pair = Pair::start();
    pair.done(A, &["promote"]);
    let (mut holder, first) = pair.hold(A, "jobs");
    let done = std::thread::scope(|scope| {
        let switched = scope.spawn(|| pair.operate(A, &["switchover"]));
        holder.frame();
        let closed = Instant::now();
        while pair.operate(B, &["status"]).0 != 0 {
            assert!(closed.elapsed() < Duration::from_secs(30));
        }
        println!("the other node was open {:?} after this one had closed", closed.elapsed());
        switched.join().unwrap()
    });
    assert_eq!(done.0, 0, "{}", done.1);
    assert!(pair.hold(B, "jobs").1 > first);
    assert!(pair.is_closed(A));
    let (status, text) = pair.operate(A, &["switchover"]);
    assert_eq!((status, text.contains("not active")), (1, true), "{text}");
}

#[test]
fn a_demotion_by_hand_holds_until_a_promotion_by_hand() {
    let mut pair = Pair::start();
    pair.know_each_other();
    pair.done(A, &["promote"]);
    pair.done(A, &["demote"]);
    for auto in [&["promote", "--auto"][..], &["promote", "--keep", "--address", "127.0.0.1"]] {
        let (status, text) = pair.operate(A, auto);
        assert_eq!((status, text.contains("demoted by hand")), (1, true), "{auto:?}: {text}");
    }
    pair.kill(A);
    pair.run(A);
    assert_eq!(pair.operate(A, &["promote", "--auto"]).0, 1, "over a restart too");
    pair.done(A, &["promote"]);
    pair.done(A, &["demote", "--auto"]);
    pair.done(A, &["promote", "--auto"]);
    pair.hold(A, "jobs");
}

#[test]
fn a_check_script_promotes_where_the_address_is_and_never_against_an_open_node() {
    let pair = Pair::start();
    let elsewhere = pair.done(A, &["promote", "--keep", "--address", "192.0.2.1"]);
    assert!(elsewhere.contains("not here"), "{elsewhere}");
    assert_eq!(pair.operate(A, &["status"]).0, 1);
    pair.done(A, &["promote", "--keep", "--address", "127.0.0.1"]);
    pair.becomes(A, "active");
    let (status, text) = pair.operate(B, &["promote", "--keep", "--address", "127.0.0.1"]);
    assert_eq!((status, text.contains("it is open")), (1, true), "{text}");
    pair.becomes(A, "active");
}

#[test]
fn a_node_under_hold_is_not_promoted_also_after_a_restart() {
    let mut pair = Pair::start();
    pair.done(B, &["ha", "hold"]);
    let (status, text) = pair.operate(B, &["promote"]);
    assert_eq!((status, text.contains("under hold")), (1, true), "{text}");
    pair.done(A, &["promote"]);
    pair.kill(B);
    pair.run(B);
    assert_eq!(pair.operate(B, &["promote", "--auto"]).0, 1);
    let (status, text) = pair.operate(A, &["switchover"]);
    assert_eq!((status, text.contains("under hold")), (1, true), "{text}");
    pair.hold(A, "jobs");
    pair.done(B, &["ha", "unhold"]);
    pair.done(B, &["promote"]);
    assert!(pair.is_closed(A), "hold is over, and B has closed A");
}

#[test]
fn a_server_without_a_standby_says_so_and_an_api_that_is_not_there_is_unknown() {
    let mut pair = Pair::start();
    pair.kill(A);
    for words in [&["status"][..], &["promote"], &["demote"], &["switchover"], &["ha", "hold"]] {
        let (status, text) = pair.operate(A, words);
        assert_eq!(status, 2, "{words:?}: {text}");
    }
}

#[test]
fn a_standby_is_ready_to_be_promoted_for_as_long_as_it_waits() {
    let mut pair = Pair::start();
    pair.done(A, &["promote"]);
    pair.hold(A, "jobs");
    pair.done(A, &["demote"]);
    // A ceiling that is reached fails after a second.
    let until = Instant::now() + Duration::from_millis(2500);
    while Instant::now() < until {
        for node in [A, B] {
            let (status, text) = pair.server(node).get("/readyz");
            assert_eq!(status, 200, "{text}");
        }
        thread::sleep(Duration::from_millis(100));
    }
}
