//! What an administrator did explains what clients saw, and nothing else does.

use crate::logs::{HOLDER, Logs, event, granted, held, released, waiter_1, waiter_2};

const STARTED: [&str; 2] = ["0 server-start 0", "5 server-listening"];

/// The first holder's lock is taken away between 300 and 310.
fn forced() -> Logs {
    let logs = Logs::in_order();
    logs.write("acts", &[&STARTED[..], &["300 force-release 0", "310 answered released 100"]].concat());
    logs.write("client-0.0", &[&HOLDER[..], &["306 0 lost error-2 259ms"]].concat());
    logs.write(
        "client-1.0",
        &[&waiter_1()[..], &["306 0 acquired 200 269ms", "500 0 released 269ms"]].concat(),
    );
    let more = r#","token":100"#;
    let forced = event(305, "force_release", 4000, more) + &released(305, 4000, 100, 294, "force");
    let first = granted(11, 4000, 100);
    logs.audit(&[first, forced, held(200, 4001, 305, 500), held(300, 4002, 500, 600)]);
    logs
}

/// The first waiter is removed between 300 and 310.
fn kicked() -> Logs {
    let logs = Logs::in_order();
    let kick = ["300 kick-waiter 0", "310 answered kicked 127.0.0.1:4001"];
    logs.write("acts", &[&STARTED[..], &kick].concat());
    logs.write("client-1.0", &[&waiter_1()[..], &["306 0 lost error-2 269ms"]].concat());
    let first = granted(11, 4000, 100) + &event(305, "kick_waiter", 4001, "");
    logs.audit(&[first, released(400, 4000, 100, 389, "graceful"), held(300, 4002, 500, 600)]);
    logs
}

const UNEXPLAINED: &str = "closed by an administrator who did nothing to it";

#[test]
fn a_force_release_and_a_kick_explain_the_ends_that_they_made() {
    let text = forced().assert_clean();
    assert!(text.contains("deeds 1  force-releases that hit 1  kicks that hit 0"), "{text}");
    assert!(text.contains("force_release 1  granted 3  released 3 (graceful 2  force 1)"), "{text}");
    let text = kicked().assert_clean();
    assert!(text.contains("deeds 1  force-releases that hit 0  kicks that hit 1"), "{text}");
}

#[test]
fn an_end_by_an_administrator_without_a_deed_is_found() {
    for logs in [forced(), kicked()] {
        logs.write("acts", &STARTED).assert_broken(UNEXPLAINED);
    }
    for answer in ["nobody", "released 99"] {
        forced().edit("acts", "released 100", answer).assert_broken(UNEXPLAINED);
    }
    kicked().edit("acts", "127.0.0.1:4001", "127.0.0.1:4002").assert_broken(UNEXPLAINED);
}

#[test]
fn an_end_before_its_deed_or_at_another_lock_is_found() {
    for (logs, client) in [(forced(), "client-0.0"), (kicked(), "client-1.0")] {
        logs.edit(client, "306000000 0 lost", "299000000 0 lost").assert_broken(UNEXPLAINED);
    }
    forced().edit("acts", "force-release 0", "force-release 1").assert_broken(UNEXPLAINED);
    let logs = kicked();
    logs.edit("acts", "kick-waiter 0", "kick-waiter 1").assert_broken(UNEXPLAINED);
    logs.assert_broken("hit a waiter that is not known");
}

#[test]
fn a_holder_that_reads_its_grant_and_its_end_at_once_is_explained_by_the_audit_log() {
    let logs = forced();
    logs.write(
        "client-0.0",
        &["10 0 opening 0 1000", "11 0 acquire 127.0.0.1:4000", "306 0 lost error-2 10ms"],
    );
    logs.write("register-0", &[]).assert_clean();
    logs.edit("client-0.0", "127.0.0.1:4000", "127.0.0.1:4009").assert_broken(UNEXPLAINED);
}

#[test]
fn a_deed_just_before_a_kill_may_be_missing_in_the_audit_log_and_explains_what_came_before_it() {
    let logs = forced();
    let deed = ["300 force-release 0", "310 answered released 100", "320 server-kill", "330 server-ended"];
    logs.write("acts", &[&STARTED[..], &deed].concat()).audit(&[]);
    let at_once = ["10 0 opening 0 1000", "11 0 acquire 127.0.0.1:4000", "306 0 lost error-2 10ms"];
    logs.write("client-0.0", &at_once).write("register-0", &[]);
    for (client, waiter) in [("client-1.0", waiter_1()), ("client-2.0", waiter_2())] {
        logs.write(client, &[&waiter[..], &["321 0 lost closed 281ms"]].concat());
    }
    let text = logs.assert_clean();
    assert!(text.contains("before a SIGKILL that are not in it 1"), "{text}");
    let after = ["10 0 opening 0 1000", "310 0 acquire 127.0.0.1:4000", "312 0 lost error-2 10ms"];
    logs.write("client-0.0", &after).assert_broken(UNEXPLAINED);
}

#[test]
fn a_belief_ends_where_the_deed_began_that_took_its_lock_away() {
    let logs = forced();
    logs.write("client-0.0", &HOLDER);
    let stop = ["0 server-start 0", "5 server-listening", "270 stop 0.0"];
    let deed = ["306 force-release 0", "310 answered released 100"];
    logs.write("acts", &[&stop[..], &deed].concat()).assert_clean();
    logs.edit("acts", "306000000 force", "307000000 force").assert_broken("was granted while 0.0#0 holds it");
}

#[test]
fn a_confirmation_after_the_deed_is_found() {
    let confirmed = |logs: Logs, client: &str, begin: &[&str]| {
        logs.write(client, &[begin, &["330 0 confirmed 311ms", "340 0 lost error-2 311ms"]].concat());
        logs.assert_broken("it was confirmed after");
        logs.write(client, &[begin, &["330 0 confirmed 310ms", "340 0 lost error-2 310ms"]].concat());
        logs.assert_clean();
    };
    confirmed(forced(), "client-0.0", &HOLDER);
    confirmed(kicked(), "client-1.0", &waiter_1());
}

#[test]
fn a_kick_of_nobody_that_waited_or_of_one_that_was_granted_is_found() {
    kicked().edit("acts", "127.0.0.1:4001", "127.0.0.1:4009").assert_broken("hit a waiter that is not known");
    let logs = kicked();
    let held = ["401 0 acquired 200 269ms", "500 0 released 269ms"];
    logs.write("client-1.0", &[&waiter_1()[..], &held].concat());
    logs.assert_broken("it was granted its lock and kicked from the queue");
}

#[test]
fn an_admin_api_that_fails_or_is_silent_is_found() {
    for why in ["the server cannot answer now", "no answer within 5 s"] {
        let logs = Logs::in_order();
        let (answered, how) = (format!("310 answered failed {why}"), format!("at 300000000 failed: {why}"));
        logs.write("acts", &[&STARTED[..], &["300 force-release 0", &answered]].concat()).assert_broken(&how);
    }
    let logs = Logs::in_order();
    logs.write("acts", &[&STARTED[..], &["300 force-release 0", "310 answered nobody"]].concat());
    logs.assert_clean();
}

#[test]
fn a_deed_without_its_event_and_an_event_without_its_deed_are_found() {
    for logs in [forced(), kicked()] {
        let text = logs.read("audit");
        let kept: Vec<String> = text
            .lines()
            .filter(|line| !line.contains("kick_waiter") && !line.contains("force_release"))
            .map(|line| format!("{line}\n"))
            .collect();
        logs.audit(&kept).assert_broken("is not in the audit log");
    }
    forced().edit("acts", "released 100", "nobody").assert_broken("no administrator was told so");
    kicked().edit("acts", "kicked 127.0.0.1:4001", "nobody").assert_broken("no administrator was told so");
}
