//! The check of a soak's logs finds planted faults, and nothing in what is right.

mod administrator;
mod audit;
mod logs;

use std::fs;
use std::path::{Path, PathBuf};

use tempfile::TempDir;

use logs::{HOLDER, Logs, SOAKED, assert_broken, assert_clean, check, granted, held, waiter_1, waiter_2};

#[test]
fn logs_in_order_pass_and_their_figures_are_told() {
    let text = Logs::in_order().assert_clean();
    assert!(text.contains("claims 3  grants 3  handovers 2"), "{text}");
    assert!(text.contains("accepted 2  refused as stale: 0 within"), "{text}");
    assert!(text.contains("longest wait 469 ms"), "{text}");
}

#[test]
fn a_grant_while_another_client_believes_that_it_holds_the_lock_is_found() {
    let logs = Logs::in_order();
    let early = ["399 0 acquired 200 269ms", "500 0 released 269ms"];
    logs.write("client-1.0", &[&waiter_1()[..], &early].concat())
        .assert_broken("was granted while 0.0#0 holds it");
}

#[test]
fn a_client_that_was_stopped_believes_until_its_last_confirmation_is_eight_tenths_of_its_lease_old() {
    let logs = Logs::in_order();
    logs.write("acts", &["0 server-start 0", "5 server-listening", "300 stop 0.0"])
        .write("client-0.0", &HOLDER);
    logs.assert_broken("was granted while 0.0#0 holds it");

    let late = |at: &str| {
        let acquired = format!("{at} 0 acquired 200 1000ms");
        let lines = [&waiter_1()[..], &[&acquired, "1200 0 released 1000ms"]].concat();
        logs.audit(&[held(100, 4000, 11, 1058), held(200, 4001, 1058, 1200)]);
        logs.write("client-1.0", &lines).write("client-2.0", &[]);
    };
    late("1058");
    logs.assert_broken("was granted while 0.0#0 holds it");
    late("1059");
    logs.assert_clean();
}

#[test]
fn a_client_that_was_killed_believes_nothing_after_that() {
    let logs = Logs::in_order();
    logs.write("acts", &["0 server-start 0", "5 server-listening", "399 kill 0.0"])
        .write("client-0.0", &HOLDER);
    logs.assert_clean();
}

#[test]
fn an_older_token_is_found() {
    let logs = Logs::in_order();
    let older = ["401 0 acquired 99 269ms", "500 0 released 269ms"];
    logs.write("client-1.0", &[&waiter_1()[..], &older].concat()).assert_broken("token 99 came after 100");
}

#[test]
fn a_token_that_goes_back_from_lock_to_lock_or_is_used_twice_is_found() {
    for (token, how) in
        [("99", "token 99 was granted after token 300"), ("300", "token 300 was granted twice")]
    {
        let logs = Logs::in_order();
        let acquired = format!("702 0 acquired {token} 701ms");
        let other =
            ["700 0 opening 1 1000", "701 0 acquire 127.0.0.1:4003", &acquired, "703 0 released 701ms"];
        logs.write("client-3.0", &other).assert_broken(how);
    }
}

#[test]
fn a_waiter_that_is_overtaken_is_found() {
    let logs = Logs::in_order();
    let late = ["501 0 acquired 300 269ms", "600 0 released 269ms"];
    let early = ["401 0 acquired 200 280ms", "500 0 released 280ms"];
    logs.write("client-1.0", &[&waiter_1()[..], &late].concat());
    logs.write("client-2.0", &[&waiter_2()[..], &early].concat());
    logs.assert_broken("1.0#0 was overtaken by 2.0#0, which came later");
}

#[test]
fn a_waiter_that_is_overtaken_and_never_granted_is_found_by_what_it_was_told_later() {
    let logs = Logs::in_order();
    let early = ["401 0 acquired 200 280ms", "500 0 released 280ms"];
    logs.write("client-2.0", &[&waiter_2()[..], &early].concat());
    logs.audit(&[held(100, 4000, 11, 400), held(200, 4002, 400, 500)]);
    logs.write("client-1.0", &waiter_1()).assert_clean();
    logs.write("client-1.0", &[&waiter_1()[..], &["412 0 confirmed 410ms"]].concat());
    logs.assert_broken("1.0#0 was overtaken by 2.0#0");
}

#[test]
fn a_claim_that_is_closed_without_a_word_while_it_is_confirmed_is_found() {
    for cause in ["closed", "broken"] {
        let logs = Logs::in_order();
        let lost = format!("380 0 lost {cause} 269ms");
        logs.write("client-1.0", &[&waiter_1()[..], &[lost.as_str()]].concat());
        logs.assert_broken("closed without ERROR though it was confirmed");

        logs.write(
            "acts",
            &["0 server-start 0", "5 server-listening", "379 server-term", "900 server-ended"],
        );
        logs.assert_broken("closed without ERROR at a shutdown in order");
    }
}

#[test]
fn the_end_of_its_server_ends_a_claim() {
    let logs = Logs::in_order();
    let acts = ["0 server-start 0", "5 server-listening", "399 server-kill", "400 server-ended"];
    logs.write("acts", &acts);
    logs.write("client-0.0", &[&HOLDER[..], &["400 0 lost closed 259ms"]].concat());
    logs.write("client-1.0", &[&waiter_1()[..], &["400 0 lost broken 269ms"]].concat());
    logs.write("client-2.0", &[&waiter_2()[..], &["401 0 lost closed 280ms"]].concat());
    logs.assert_clean();
}

#[test]
fn a_close_before_its_server_was_told_to_end_is_found() {
    let logs = Logs::in_order();
    logs.write("acts", &["0 server-start 0", "5 server-listening", "399 server-kill", "400 server-ended"]);
    logs.write("client-1.0", &[&waiter_1()[..], &["398 0 lost closed 269ms"]].concat());
    logs.assert_broken("closed without ERROR though it was confirmed");
}

/// A client that is stopped when its server is killed believes on, while the next server grants its lock to
/// another.
fn two_lives(token: &str, writes: &[&str]) -> Logs {
    let logs = Logs::in_order();
    let first =
        ["0 server-start 0", "5 server-listening", "300 stop 0.0", "310 server-kill", "320 server-ended"];
    // The lock of the first life goes with its server.
    let first_granted = granted(11, 4000, 100);
    let start = format!("330 server-start {}", first_granted.len());
    logs.audit(&[first_granted, held(token.parse().unwrap(), 4003, 352, 450)]);
    logs.write("acts", &[&first[..], &[&start, "340 server-listening"]].concat());
    logs.write("client-0.0", &HOLDER);
    let cut = [
        "20 0 opening 0 1000",
        "21 0 acquire 127.0.0.1:4001",
        "22 0 waiting 21ms",
        "311 0 lost closed 269ms",
    ];
    let acquired = format!("353 1 acquired {token} 352ms");
    let again = ["351 1 opening 0 1000", "352 1 acquire 127.0.0.1:4003", &acquired, "450 1 released 352ms"];
    logs.write("client-1.0", &[&cut[..], &again].concat()).write("client-2.0", &[]);
    logs.write("register-0", writes);
    logs
}

#[test]
fn across_lives_of_the_server_the_token_decides_and_must_grow() {
    let text = two_lives("200", &["15ms 0.0 0 100", "360ms 1.0 1 200", "299ms 0.0 0 100"]).assert_clean();
    assert!(
        text.contains("accepted 2  refused as stale: 0 within a server's life, 1 across lives"),
        "{text}"
    );
    assert!(text.contains("restart by SIGKILL: 30 ms to the next listening; of 1 1 queued again"), "{text}");
    assert!(text.contains("all 13 ms"), "{text}");
    let logs = two_lives("99", &[]);
    logs.assert_broken("token 99 came after 100");
    logs.assert_broken("though a token was granted that is not smaller");
}

#[test]
fn errors_that_nobody_asked_for_and_a_broken_protocol_are_found() {
    let shutdown = "a shutdown that nobody asked for";
    for (cause, how) in [("error-1", shutdown), ("error-3", "ERROR 3"), ("violation", "broke the protocol")] {
        let logs = Logs::in_order();
        let lost = format!("380 0 lost {cause} 269ms");
        logs.write("client-1.0", &[&waiter_1()[..], &[lost.as_str()]].concat()).assert_broken(how);
    }
}

#[test]
fn a_heartbeat_that_is_not_answered_is_found_unless_its_client_was_stopped() {
    let logs = Logs::in_order();
    let silent = [&waiter_1()[..], &["1070 0 lost timeout 269ms"]].concat();
    logs.write("client-1.0", &silent).assert_broken("not answered in time");
    let stopped = ["0 server-start 0", "5 server-listening", "300 stop 1.0", "1069 continue 1.0"];
    logs.write("acts", &stopped).assert_clean();
}

#[test]
fn a_lock_that_nobody_is_granted_while_someone_waits_is_found() {
    let logs = Logs::in_order();
    // Three leases for the longest hold and an expiry, and three seconds.
    logs.write("client-2.0", &[&waiter_2()[..], &["6402 0 confirmed 6401ms"]].concat()).assert_clean();
    logs.write("client-2.0", &[&waiter_2()[..], &["6403 0 confirmed 6402ms"]].concat());
    logs.assert_broken("nobody was granted the lock for 6001 ms");
}

#[test]
fn a_write_without_the_lock_is_found() {
    for wrong in ["11ms 0.0 0 100", "400ms 0.0 0 100", "15ms 0.0 0 101", "15ms 1.0 0 200"] {
        Logs::in_order().write("register-0", &[wrong]).assert_broken("without holding the lock");
    }
    Logs::in_order().write("register-0", &["15ms 7.0 0 100"]).assert_broken("is not known");
}

#[test]
fn a_register_refuses_and_counts_what_comes_after_a_newer_token() {
    let logs = Logs::in_order();
    logs.write("register-0", &["15ms 0.0 0 100", "410ms 1.0 0 200", "300ms 0.0 0 100", "420ms 1.0 0 200"]);
    let text = logs.assert_clean();
    assert!(text.contains("accepted 3  refused as stale: 1 within"), "{text}");
}

#[test]
fn a_torn_last_line_passes_and_any_other_wrong_line_is_an_error() {
    let logs = Logs::in_order();
    let path = logs.file("client-2.0");
    let whole = fs::read_to_string(&path).unwrap();
    fs::write(&path, format!("{whole}700000000 1 open")).unwrap();
    logs.assert_clean();
    fs::write(&path, format!("{whole}700000000 1 open\n")).unwrap();
    assert_eq!(check(logs.path()).0, 2);
}

/// A copy of the real logs.
fn soaked() -> TempDir {
    let copy = tempfile::tempdir().unwrap();
    for file in fs::read_dir(SOAKED).unwrap() {
        let file = file.unwrap();
        fs::copy(file.path(), copy.path().join(file.file_name())).unwrap();
    }
    copy
}

/// A grant of lock 0 as its client logged it.
struct Granted {
    file: PathBuf,
    number: String,
    token: String,
}

/// The grants of lock 0 in the first server's life, by token.
fn grants(dir: &Path) -> Vec<Granted> {
    let acts = fs::read_to_string(dir.join("acts.log")).unwrap();
    let end = acts.lines().find(|line| line.ends_with("server-term")).unwrap();
    let at_ns = |line: &str| line.split(' ').next().unwrap().parse::<u64>().unwrap();
    let mut found = Vec::new();
    for file in fs::read_dir(dir).unwrap().map(|file| file.unwrap().path()) {
        let text = fs::read_to_string(&file).unwrap();
        let mut lock = "";
        for words in text.lines().map(|line| line.split(' ').collect::<Vec<_>>()) {
            match words[..] {
                [_, _, "opening", named, _] => lock = named,
                [at, number, "acquired", token, _] if lock == "0" && at_ns(at) < at_ns(end) => {
                    found.push(Granted { file: file.clone(), number: number.into(), token: token.into() });
                }
                _ => {}
            }
        }
    }
    found.sort_by(|a, b| a.token.cmp(&b.token));
    assert!(found.len() > 4, "the soak was too short");
    found
}

#[test]
fn the_logs_of_a_real_soak_pass() {
    assert_clean(Path::new(SOAKED));
}

#[test]
fn two_tokens_exchanged_in_real_logs_are_found() {
    let copy = soaked();
    let grants = grants(copy.path());
    let (first, second) = (&grants[1].token, &grants[2].token);
    for file in fs::read_dir(copy.path()).unwrap().map(|file| file.unwrap().path()) {
        let text = fs::read_to_string(&file).unwrap();
        fs::write(&file, text.replace(first, "?").replace(second, first).replace('?', second)).unwrap();
    }
    assert_broken(copy.path(), "came after");
}

#[test]
fn a_hold_in_real_logs_that_goes_on_past_its_release_is_found() {
    let copy = soaked();
    let grants = grants(copy.path());
    let is_release = |line: &str, grant: &Granted| {
        let words: Vec<&str> = line.split(' ').collect();
        words[1] == grant.number && words[2] == "released"
    };
    let released = |grant: &&Granted| {
        fs::read_to_string(&grant.file).unwrap().lines().any(|line| is_release(line, grant))
    };
    let longer = grants[..grants.len() - 1].iter().find(released).unwrap();
    let text = fs::read_to_string(&longer.file).unwrap();
    let kept: Vec<&str> = text.lines().filter(|line| !is_release(line, longer)).collect();
    fs::write(&longer.file, kept.join("\n") + "\n").unwrap();
    assert_broken(copy.path(), "was granted while");
}

#[test]
fn any_line_that_is_missing_in_the_last_life_of_a_real_audit_log_is_found() {
    let copy = soaked();
    let acts = fs::read_to_string(copy.path().join("acts.log")).unwrap();
    let mut starts = acts.lines().filter_map(|line| line.split_once(" server-start "));
    let start: usize = starts.next_back().unwrap().1.parse().unwrap();
    let path = copy.path().join("audit.log");
    let text = fs::read_to_string(&path).unwrap();
    let (before, last) = text.split_at(start);
    let lines: Vec<&str> = last.split_inclusive('\n').collect();
    assert!(lines.len() > 10, "the soak was too short");
    for missing in 0..lines.len() {
        let kept = [&lines[..missing], &lines[missing + 1..]].concat();
        fs::write(&path, before.to_owned() + &kept.concat()).unwrap();
        assert_broken(copy.path(), "audit log");
    }
}
