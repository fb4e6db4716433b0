//! What an audit log may not show, by itself and against what the clients saw.

use crate::logs::{HOLDER, Logs, event, granted, held, released, waiter_1, waiter_2};

/// The log of [`Logs::in_order`] with one thing changed.
#[track_caller]
fn changed(from: &str, to: &str) -> Logs {
    let logs = Logs::in_order();
    logs.edit("audit", from, to);
    logs
}

fn first_release() -> String {
    released(400, 4000, 100, 389, "graceful")
}

#[test]
fn a_second_holder_is_found_and_so_is_the_release_of_none() {
    changed(&first_release(), "").assert_broken("while it is held by");
    changed(&granted(400, 4001, 200), "").assert_broken("is not about the holder");
    let other_token = released(400, 4000, 99, 389, "graceful");
    changed(&first_release(), &other_token).assert_broken("is not about the holder");
    let other_peer = released(400, 4001, 100, 389, "graceful");
    changed(&first_release(), &other_peer).assert_broken("is not about the holder");
    changed(&first_release(), &first_release().repeat(2)).assert_broken("is not about the holder");
}

#[test]
fn a_token_that_is_not_larger_than_the_one_before_is_found() {
    for token in [100, 99] {
        changed(&held(200, 4001, 400, 500), &held(token, 4001, 400, 500))
            .assert_broken("that is not smaller");
    }
    let in_lock_1 = held(300, 4002, 500, 600).replace("soak-0", "soak-1");
    let twice = held(300, 4002, 500, 600) + &in_lock_1;
    changed(&held(300, 4002, 500, 600), &twice).assert_broken("token 300 is granted twice");
    // A smaller token of another lock, and much later.
    let in_lock_1 = |at_ms| held(50, 4002, at_ms, at_ms).replace("soak-0", "soak-1");
    for (at_ms, is_found) in [(1011, false), (1012, true)] {
        let logs = changed(&held(300, 4002, 500, 600), &(held(300, 4002, 500, 600) + &in_lock_1(at_ms)));
        logs.write("client-3.0", &["30 0 opening 1 1000", "31 0 acquire 127.0.0.1:4002"]);
        if is_found {
            logs.assert_broken("token 100 is granted 1001 ms before a smaller one");
        } else {
            logs.assert_clean();
        }
    }
}

#[test]
fn times_that_go_back_or_do_not_fit_the_durations_are_found() {
    let early = released(10, 4000, 100, 0, "graceful");
    changed(&first_release(), &early).assert_broken("comes after");
    let long = released(400, 4000, 100, 389 + 250, "graceful");
    changed(&first_release(), &long).assert_clean();
    let longer = released(400, 4000, 100, 389 + 251, "graceful");
    changed(&first_release(), &longer).assert_broken("comes 389 ms after its grant");
    let waited = |ms: u64| granted(400, 4001, 200).replace("\"wait_ms\":0", &format!("\"wait_ms\":{ms}"));
    changed(&granted(400, 4001, 200), &waited(380)).assert_clean();
    let how = "it waited 380 ms, and the audit log says 381 ms";
    changed(&granted(400, 4001, 200), &waited(381)).assert_broken(how);
}

#[test]
fn a_forced_release_has_its_force_release_directly_before_it_and_no_other_one_has() {
    let by_force = released(400, 4000, 100, 389, "force");
    let deed = |token: u64, port| event(400, "force_release", port, &format!(r#","token":{token}"#));
    for (wrong, how) in [
        (by_force.clone(), "comes after Some"),
        (deed(100, 4000) + &first_release(), "comes after Some"),
        (deed(99, 4000) + &by_force, "is not about the holder"),
        (deed(100, 4001) + &by_force, "is not about the holder"),
        (
            deed(100, 4000) + &event(400, "kick_waiter", 4002, "") + &by_force,
            "is not followed by its release",
        ),
        (event(300, "kick_waiter", 4000, "") + &first_release(), "is about the holder"),
    ] {
        changed(&first_release(), &wrong).assert_broken(how);
    }
}

#[test]
fn what_a_soak_gives_no_reason_for_is_found() {
    let wrong = [
        "{\"time\":\"1970-01-01T00:00:00.400000Z\",\"event\":\"lost\",\"count\":2}\n".to_owned(),
        event(400, "denied", 4000, ""),
        event(400, "kick_waiter", 4001, "").replace("soak-0", "other"),
        "{\"time\":\"1970-01-01T00:00:00.4\n".to_owned(),
        "\n".to_owned(),
    ];
    for wrong in wrong {
        changed(&first_release(), &(first_release() + &wrong)).assert_broken("this has no place here");
    }
    for reason in ["io_timeout", "unreachable"] {
        let other = released(400, 4000, 100, 389, reason);
        changed(&first_release(), &other).assert_broken("this has no place here");
    }
}

/// One life that ends by this signal while the third client holds the lock.
fn cut(signal: &str, last: &str) -> Logs {
    let logs = Logs::in_order();
    let acts = ["0 server-start 0", "5 server-listening", &format!("550 {signal}"), "560 server-ended"];
    logs.write("acts", &acts);
    let cause = if signal == "server-term" { "error-1" } else { "closed" };
    let lost = format!("551 0 lost {cause} 280ms");
    logs.write("client-2.0", &[&waiter_2()[..], &["501 0 acquired 300 280ms", &lost]].concat());
    let before = [held(100, 4000, 11, 400), held(200, 4001, 400, 500), granted(500, 4002, 300)];
    logs.audit(&[&before[..], &[last.to_owned()]].concat());
    logs
}

#[test]
fn a_shutdown_in_order_releases_what_is_held_and_nothing_comes_after_it() {
    let at_shutdown = released(550, 4002, 300, 50, "shutdown");
    cut("server-term", &at_shutdown).assert_clean();
    cut("server-term", "").assert_broken("has no release, and the server ended in order");
    cut("server-kill", "").assert_clean();
    let after = at_shutdown + &held(400, 4001, 551, 552);
    cut("server-term", &after).assert_broken("after its release at the shutdown comes");
}

#[test]
fn only_a_kill_tears_a_line_and_the_next_life_begins_a_new_one() {
    let torn = "{\"time\":\"1970-01-01T00:00:00.55";
    cut("server-term", torn).assert_broken("its last line is torn");
    cut("server-kill", torn).assert_clean();
    let go_on = |glue: &str| {
        let logs = cut("server-kill", torn);
        let start = format!("570 server-start {}", logs.read("audit").len());
        let acts = ["0 server-start 0", "5 server-listening", "550 server-kill", "560 server-ended"];
        logs.write("acts", &[&acts[..], &[&start, "575 server-listening"]].concat());
        let again = ["580 0 opening 0 1000", "581 0 acquire 127.0.0.1:4003", "582 0 acquired 400 581ms"];
        logs.write("client-3.0", &[&again[..], &["590 0 released 581ms"]].concat());
        logs.audit(&[logs.read("audit"), glue.to_owned(), held(400, 4003, 581, 590)]);
        logs
    };
    go_on("\n").assert_clean();
    go_on("").assert_broken("went on within a torn line");
}

#[test]
fn a_life_that_is_killed_between_the_newline_and_its_first_event_leaves_no_torn_line() {
    let logs = cut("server-kill", "{\"time\":\"1970-01-01T00:00:00.55");
    let begin = logs.read("audit").len();
    let [second, third] = [format!("570 server-start {begin}"), format!("576 server-start {}", begin + 1)];
    let first = ["0 server-start 0", "5 server-listening", "550 server-kill", "560 server-ended"];
    let killed = [second.as_str(), "571 server-listening", "572 server-kill", "573 server-ended"];
    logs.write("acts", &[&first[..], &killed, &[&third, "577 server-listening"]].concat());
    let again = ["580 0 opening 0 1000", "581 0 acquire 127.0.0.1:4003", "582 0 acquired 400 581ms"];
    logs.write("client-3.0", &[&again[..], &["590 0 released 581ms"]].concat());
    logs.audit(&[logs.read("audit"), "\n".to_owned(), held(400, 4003, 581, 590)]);
    logs.assert_clean();
}

#[test]
fn a_log_that_was_cut_is_an_error() {
    let logs = Logs::in_order();
    logs.write("acts", &["0 server-start 100000", "5 server-listening"]);
    assert_eq!(crate::check(logs.path()).0, 2);
}

#[test]
fn a_grant_that_a_client_read_and_the_log_lacks_is_found() {
    let missing = "its grant, token 200, is not in the audit log";
    changed(&held(200, 4001, 400, 500), "").assert_broken(missing);
    changed(&held(300, 4002, 500, 600), "").assert_broken("token 300, is not in the audit log");
}

#[test]
fn the_last_events_before_a_kill_may_be_missing_and_are_counted() {
    let lacking = |token: u64, port, from_ms, to_ms, killed_ms: u64| {
        let logs = Logs::in_order();
        let killed = [format!("{killed_ms} server-kill"), format!("{} server-ended", killed_ms + 1)];
        let acts = ["0 server-start 0", "5 server-listening", &killed[0], &killed[1]];
        logs.write("acts", &acts).edit("audit", &held(token, port, from_ms, to_ms), "");
        logs
    };
    let text = lacking(300, 4002, 500, 600, 1001).assert_clean();
    assert!(text.contains("last 500 ms before a SIGKILL that are not in it 1"), "{text}");
    lacking(300, 4002, 500, 600, 1002).assert_broken("token 300, is not in the audit log");
    // What came after it at the same lock was written.
    lacking(200, 4001, 400, 500, 700).assert_broken("token 200, is not in the audit log");
}

#[test]
fn a_grant_to_another_address_or_lock_than_the_client_says_is_found() {
    let says = "the audit log says";
    changed(&held(200, 4001, 400, 500), &held(200, 4002, 400, 500)).assert_broken(says);
    let in_lock_1 = held(200, 4001, 400, 500).replace("soak-0", "soak-1");
    changed(&held(200, 4001, 400, 500), &in_lock_1).assert_broken(says);
}

#[test]
fn a_grant_that_nobody_read_is_counted_and_one_that_nobody_asked_for_is_found() {
    let logs = Logs::in_order();
    let text = logs.write("client-1.0", &waiter_1()).assert_clean();
    assert!(text.contains("grants that no client read 1 "), "{text}");
    logs.write("client-1.0", &[]).assert_broken("and no client asked for it from there");
}

#[test]
fn a_client_that_was_told_another_reason_than_the_log_is_found() {
    let wrong = released(550, 4002, 300, 50, "graceful");
    cut("server-term", &wrong).assert_broken("it was told of the shutdown, and the audit log says Graceful");
}

#[test]
fn a_lease_that_ends_early_is_found() {
    // Granted at 11, read at 12; the last heartbeat that was answered went out at 259, for a lease of a
    // second.
    for (held_ms, is_early) in [(1247, false), (1246, true)] {
        let logs = Logs::in_order();
        logs.write("acts", &["0 server-start 0", "5 server-listening", "262 stop 0.0"]);
        logs.write("client-0.0", &HOLDER).write("client-1.0", &waiter_1()).write("client-2.0", &waiter_2());
        logs.audit(&[granted(11, 4000, 100), released(11 + held_ms, 4000, 100, held_ms, "expired")]);
        if is_early {
            logs.assert_broken("it expired after 1246 ms, and 1247 ms were its own");
        } else {
            logs.assert_clean();
        }
    }
}
