//! What an administrator does to claims: force-release and kick.

use protocol::ErrorCode;

use super::{Api, LEASE, address, addresses, queue};
use crate::harness::{Peer, Server, wait_for};

fn in_line(server: &Server, count: usize) -> Vec<Peer> {
    (0..count).map(|_| server.wait_in_line("jobs", LEASE)).collect()
}

#[test]
fn a_release_tells_the_holder_and_grants_the_next_in_line() {
    let (mut server, api) = Api::start(&[]);
    let (mut holder, token) = server.hold("jobs", LEASE);
    let mut waiters = in_line(&server, 3);
    let released = api.release("jobs").ok();
    assert_eq!(released["name"], "jobs");
    assert_eq!(released["released"]["remote_addr"], address(&holder));
    assert_eq!(released["released"]["token"], token.0);
    holder.refused(ErrorCode::CLOSED_BY_ADMINISTRATOR);
    let next = waiters[0].acquired();
    assert!(next > token);
    let lock = api.lock("jobs");
    assert_eq!(lock["holder"]["remote_addr"], address(&waiters[0]));
    assert_eq!(lock["holder"]["token"], next.0);
    assert_eq!(queue(&lock), addresses(&waiters[1..]));
    server.wait_for_metric("monolock_releases_total{reason=\"force\"}", 1.0);

    let line = server.log_line("force-release");
    assert!(line.contains("by=127.0.0.1:") && line.contains("lock=\"jobs\""), "{line}");
    assert!(line.contains("result=\"done\"") && line.contains("WARN"), "{line}");
}

#[test]
fn the_last_release_leaves_nothing_and_the_next_one_finds_nothing() {
    let (mut server, api) = Api::start(&[]);
    let (mut holder, _) = server.hold("jobs", LEASE);
    assert_eq!(api.release("jobs").status, 200);
    holder.refused(ErrorCode::CLOSED_BY_ADMINISTRATOR);
    api.get("/api/locks/jobs").error(404);
    api.release("jobs").error(404);
    server.log_line("result=\"nobody holds this lock\"");
    server.hold("jobs", LEASE);
}

#[test]
fn a_release_of_a_token_takes_the_lock_from_that_holder_and_from_no_successor() {
    let (mut server, api) = Api::start(&[]);
    let (mut first, token) = server.hold("jobs", LEASE);
    let mut second = server.wait_in_line("jobs", LEASE);
    let released = api.release_of("jobs", &token.0.to_string()).ok();
    assert_eq!(released["released"]["token"], token.0);
    first.refused(ErrorCode::CLOSED_BY_ADMINISTRATOR);
    let next = second.acquired();

    let problem = api.release_of("jobs", &token.0.to_string()).error(409);
    assert_eq!(problem, format!("the holder's token is {next}, not {token}"));
    server.log_line(&format!("result=\"{problem}\""));
    second.heartbeat();
    assert_eq!(second.acquired(), next, "it still holds");
    second.close();
    wait_for("the lock to be free", || (api.get("/api/locks/jobs").status == 404).then_some(()));
    api.release_of("jobs", &next.0.to_string()).error(404);
}

#[test]
fn a_release_takes_no_parameter_but_one_token() {
    let (server, api) = Api::start(&[]);
    let (mut holder, token) = server.hold("jobs", LEASE);
    for query in
        ["token=", "token=-1", "token=+1", "token=x", "tokens=1", "token=1&token=1", "match=a", "token"]
    {
        let problem = api.request("POST", &format!("/api/locks/jobs/release?{query}"), &[]).error(400);
        assert!(problem.contains("token"), "{query}: {problem}");
    }
    holder.heartbeat();
    assert_eq!(holder.acquired(), token);
    assert_eq!(api.request("POST", "/api/locks/jobs/release?", &[]).status, 200);
}

#[test]
fn a_kicked_waiter_is_told_and_the_others_keep_their_order() {
    let (mut server, api) = Api::start(&[]);
    let (holder, _) = server.hold("jobs", LEASE);
    let mut waiters = in_line(&server, 4);
    let mut kicked = waiters.remove(1);
    let answer = api.kick("jobs", &address(&kicked)).ok();
    assert_eq!(answer["name"], "jobs");
    assert_eq!(answer["kicked"]["remote_addr"], address(&kicked));
    kicked.refused(ErrorCode::CLOSED_BY_ADMINISTRATOR);
    assert_eq!(queue(&api.lock("jobs")), addresses(&waiters));
    let line = server.log_line("kick");
    assert!(
        line.contains(&format!("waiter={}", address(&kicked))) && line.contains("result=\"done\""),
        "{line}"
    );

    holder.close();
    for waiter in &mut waiters {
        waiter.acquired();
        assert_eq!(api.release("jobs").status, 200);
        waiter.refused(ErrorCode::CLOSED_BY_ADMINISTRATOR);
    }
}

#[test]
fn the_audit_log_has_an_action_before_its_effects() {
    let log = tempfile::NamedTempFile::new().unwrap();
    let (server, api) = Api::start(&["-audit-log", log.path().to_str().unwrap()]);
    let (holder, _) = server.hold("jobs", LEASE);
    let waiters = in_line(&server, 2);
    assert_eq!(api.kick("jobs", &address(&waiters[0])).status, 200);
    assert_eq!(api.release("jobs").status, 200);
    let expected = [
        ("granted", address(&holder)),
        ("kick_waiter", address(&waiters[0])),
        ("force_release", address(&holder)),
        ("released", address(&holder)),
        ("granted", address(&waiters[1])),
    ];
    let expected = expected.map(|(event, address)| format!("{event} {address}"));
    wait_for("five events", || {
        let log = std::fs::read_to_string(log.path()).unwrap();
        let events: Vec<serde_json::Value> =
            log.split_inclusive('\n').filter_map(|line| serde_json::from_str(line).ok()).collect();
        let field = |event: &serde_json::Value, name: &str| event[name].as_str().unwrap().to_owned();
        let shown: Vec<String> =
            events.iter().map(|e| format!("{} {}", field(e, "event"), field(e, "remote_addr"))).collect();
        assert_eq!(shown, expected[..shown.len()]);
        (shown.len() == expected.len()).then_some(())
    });
}

#[test]
fn only_a_waiter_of_this_lock_is_kicked() {
    let (server, api) = Api::start(&[]);
    let (mut holder, token) = server.hold("jobs", LEASE);
    let _other = server.hold("other", LEASE);
    let mut waiter = server.wait_in_line("other", LEASE);
    assert!(api.kick("jobs", &address(&holder)).error(404).contains("does not wait"));
    assert!(api.kick("jobs", &address(&waiter)).error(404).contains("does not wait"));
    holder.heartbeat();
    assert_eq!(holder.acquired(), token);
    waiter.heartbeat();
    waiter.waiting();
}

#[test]
fn a_waiter_is_named_by_any_spelling_of_its_address() {
    let (server, api) = Api::start(&[]);
    let _holder = server.hold("jobs", LEASE);
    let port = |peer: &Peer| peer.stream.local_addr().unwrap().port();
    let waiters = in_line(&server, 2);
    assert_eq!(api.kick("jobs", &format!("127.0.0.1%3A{}", port(&waiters[0]))).status, 200);
    assert_eq!(api.kick("jobs", &format!("%5B::ffff:127.0.0.1%5D:{}", port(&waiters[1]))).status, 200);
}
