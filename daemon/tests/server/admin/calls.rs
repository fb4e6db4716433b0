//! What each call answers, and with which status.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::time::{Duration, SystemTime};

use nix::sys::ptrace;
use nix::sys::wait::{WaitPidFlag, waitpid};
use serde_json::{Value, json};

use super::{Answer, Api, LEASE, address, addresses, queue};
use crate::harness::{PATIENCE, Peer, wait_for};

/// A time of the API; it must be of the last moments.
fn recent(time: &Value) -> SystemTime {
    let text = time.as_str().unwrap();
    assert!(text.ends_with('Z') && text.len() == "2026-01-01T00:00:00.000000Z".len(), "{text}");
    let time = humantime::parse_rfc3339(text).unwrap();
    let age = SystemTime::now().duration_since(time).unwrap_or_default();
    assert!(age < PATIENCE, "{text} is {age:?} ago");
    time
}

#[test]
fn a_lock_is_shown_with_its_holder_and_its_queue_in_order() {
    let (server, api) = Api::start(&[]);
    let (holder, token) = server.hold("jobs", LEASE);
    let waiters: Vec<Peer> = (0..5).map(|_| server.wait_in_line("jobs", LEASE)).collect();
    let lock = api.lock("jobs");
    assert_eq!(lock["name"], "jobs");
    assert_eq!(lock["holder"]["remote_addr"], address(&holder));
    assert_eq!(lock["holder"]["identity"], "");
    assert_eq!(lock["holder"]["lease_ms"], 60_000);
    assert_eq!(lock["holder"]["token"], token.0);
    assert_eq!(queue(&lock), addresses(&waiters));
    let mut times: Vec<SystemTime> = vec![recent(&lock["holder"]["since"])];
    times.extend(lock["waiters"].as_array().unwrap().iter().map(|waiter| recent(&waiter["queued_at"])));
    assert!(times.is_sorted(), "{times:?}");
    assert_eq!(api.get("/api/locks").ok(), json!({ "locks": [lock] }), "as in the list of all");
}

#[test]
fn a_lock_that_nobody_holds_any_more_is_unknown() {
    let (server, api) = Api::start(&[]);
    let (holder, _) = server.hold("jobs", LEASE);
    assert_eq!(api.get("/api/locks/jobs").status, 200);
    holder.close();
    wait_for("the lock to be idle", || (api.get("/api/locks/jobs").status == 404).then_some(()));
    assert_eq!(api.list(""), (vec![], None));
}

#[test]
fn whatever_a_client_has_been_told_is_shown() {
    let (server, api) = Api::start(&["-shards", "2"]);
    for round in 0..200 {
        let name = format!("lock-{round}");
        let (holder, token) = server.hold(&name, LEASE);
        let waiter = server.wait_in_line(&name, LEASE);
        let lock = api.lock(&name);
        assert_eq!(lock["holder"]["token"], token.0);
        assert_eq!(queue(&lock), [address(&waiter)]);
        let info = api.get("/api/info").ok();
        assert!(info["locks"].as_u64() >= Some(1) && info["sessions"].as_u64() >= Some(2), "{info}");
        drop(holder);
    }
}

#[test]
fn info_tells_what_runs_how_and_how_much() {
    let (server, api) = Api::start(&["-shards", "2", "-io-timeout", "250ms"]);
    let _held: Vec<_> = (0..3).map(|n| server.hold(&format!("lock-{n}"), LEASE)).collect();
    let _waiter = server.wait_in_line("lock-0", LEASE);
    let info = api.get("/api/info").ok();
    assert_eq!((info["locks"].as_u64(), info["sessions"].as_u64()), (Some(3), Some(4)));
    assert_eq!(info["version"], env!("CARGO_PKG_VERSION"));
    assert!(info["uptime_ms"].as_u64().is_some());
    let config = json!({
        "listen": "127.0.0.1:0", "ops_listen": "127.0.0.1:0", "admin_listen": "127.0.0.1:0", "tls": false, "mtls": false,
        "acl_file": "", "audit_log": "", "io_timeout_ms": 250, "shards": 2,
    });
    assert_eq!(info["config"], config);
}

#[test]
fn every_mistake_has_its_status_and_a_sentence() {
    let (server, api) = Api::start(&[]);
    let _holder = server.hold("jobs", LEASE);
    let long = "x".repeat(256);
    let pattern = "*".repeat(1025);
    let cases: &[(&str, &str, u16)] = &[
        ("GET", "/", 404),
        ("GET", "/api", 404),
        ("GET", "/api/info/", 404),
        ("GET", "/api/locks/a/b", 404),
        ("GET", "//api/locks", 404),
        ("GET", "/api/locks/unknown", 404),
        ("POST", "/api/locks/unknown/release", 404),
        ("DELETE", "/api/locks/unknown/waiters/127.0.0.1:1", 404),
        ("DELETE", "/api/locks/jobs/waiters/127.0.0.1:1", 404),
        ("POST", "/api/info", 405),
        ("DELETE", "/api/locks", 405),
        ("POST", "/api/locks/jobs", 405),
        ("GET", "/api/locks/jobs/release", 405),
        ("GET", "/api/locks/jobs/waiters/127.0.0.1:1", 405),
        ("OPTIONS", "/api/locks/jobs/release", 405),
        ("GET", "/api/locks/%zz", 400),
        ("GET", "/api/locks/%4", 400),
        ("GET", "/api/locks/a%", 400),
        ("GET", "/api/locks/%ff", 400),
        ("GET", "/api/locks/%c3", 400),
        ("GET", "/api/locks/", 400),
        ("POST", "/api/locks//release", 400),
        ("GET", &format!("/api/locks/{long}"), 400),
        ("GET", "/api/locks/jobs?x=1", 400),
        ("POST", "/api/locks/jobs/release?force=1", 400),
        ("DELETE", "/api/locks/jobs/waiters/localhost:1", 400),
        ("DELETE", "/api/locks/jobs/waiters/127.0.0.1", 400),
        ("DELETE", "/api/locks/jobs/waiters/127.0.0.1:65536", 400),
        ("DELETE", "/api/locks/jobs/waiters/", 400),
        ("GET", "/api/locks?limit=0", 400),
        ("GET", "/api/locks?limit=10001", 400),
        ("GET", "/api/locks?limit=-1", 400),
        ("GET", "/api/locks?limit=%2B1", 400),
        ("GET", "/api/locks?limit=", 400),
        ("GET", "/api/locks?limit=1&limit=1", 400),
        ("GET", "/api/locks?match=%ff", 400),
        ("GET", "/api/locks?match=%z", 400),
        ("GET", &format!("/api/locks?match={pattern}"), 400),
        ("GET", "/api/locks?glob=a", 400),
    ];
    for (method, target, status) in cases {
        let answer = api.request(method, target, &[]);
        let error = answer.error(*status);
        assert!(!error.is_empty(), "{method} {target}");
        assert_eq!(answer.head.contains("\r\nallow: "), *status == 405, "{method} {target}: {answer:?}");
    }
    assert!(api.request("PUT", "/api/locks/jobs/release", &[]).head.contains("\r\nallow: post"));
    assert_eq!(api.get("/api/locks/jobs").status, 200, "nothing of that did anything");
    assert_eq!(api.request("HEAD", "/api/locks/jobs", &[]).body, "");
}

#[test]
fn a_listing_takes_a_pattern_and_comes_in_pages_in_the_order_of_bytes() {
    let (server, api) = Api::start(&["-shards", "2"]);
    let names = ["B", "a", "a/1", "a/2", "a b", "b", "é"];
    let _held: Vec<_> = names.iter().map(|name| server.hold(name, LEASE)).collect();
    let mut sorted = names.map(str::to_owned);
    sorted.sort_unstable();
    assert_eq!(api.list(""), (sorted.to_vec(), None));
    assert_eq!(api.list("match="), (sorted.to_vec(), None));
    assert_eq!(api.list("match=a/*").0, ["a/1", "a/2"]);
    assert_eq!(api.list("match=a+b").0, ["a b"]);
    assert_eq!(api.list("match=a%20b").0, ["a b"]);
    assert_eq!(api.list("match=%C3%A9").0, ["é"]);
    assert_eq!(api.list("match=?").0, ["B", "a", "b", "é"]);
    assert_eq!(api.list("match=x*").0, [""; 0]);
    assert_eq!(api.list("limit=7"), (sorted.to_vec(), None), "the last page says so");
    assert_eq!(api.list("limit=2"), (sorted[..2].to_vec(), Some("a".into())));
    assert_eq!(api.list("limit=2&after=a"), (sorted[2..4].to_vec(), Some("a/1".into())));
    assert_eq!(api.list("match=a/*&limit=1&after=a/1"), (vec!["a/2".into()], None));
    assert_eq!(api.list("after=%C3%A9"), (vec![], None));
}

#[test]
fn a_shard_that_hangs_is_unavailable_and_does_later_nothing_of_what_was_asked() {
    let (server, api) = Api::start(&["-shards", "1"]);
    let (mut holder, token) = server.hold("jobs", LEASE);
    let shard = server.thread("shard-0");
    ptrace::seize(shard, ptrace::Options::empty()).unwrap();
    ptrace::interrupt(shard).unwrap();
    waitpid(shard, Some(WaitPidFlag::__WALL)).unwrap();

    let asked = std::time::Instant::now();
    let error = api.release("jobs").error(503);
    assert!(error.contains("shard 0"), "{error}");
    assert!(asked.elapsed() < Duration::from_secs(8), "{:?}", asked.elapsed());
    assert_eq!(server.get("/healthz").0, 200);

    ptrace::detach(shard, None).unwrap();
    assert_eq!(api.lock("jobs")["holder"]["token"], token.0);
    holder.heartbeat();
    assert_eq!(holder.acquired(), token);
}

#[test]
fn a_client_that_has_said_all_gets_its_answer() {
    let (_server, api) = Api::start(&[]);
    for _ in 0..20 {
        let mut stream = TcpStream::connect(api.address).unwrap();
        stream.write_all(b"GET /api/info HTTP/1.1\r\nHost: localhost\r\n\r\n").unwrap();
        stream.shutdown(Shutdown::Write).unwrap();
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).unwrap();
        Answer::parse(&answer).ok();
    }
}

#[test]
fn an_address_that_others_reach_gets_one_warning() {
    let (loopback, _) = Api::start(&[]);
    let is_warning = |line: &&String| line.contains("WARN") && line.contains("-admin-listen");
    assert_eq!(loopback.log().iter().filter(is_warning).count(), 0);
    let (open, _) = Api::start(&["-admin-listen", "0.0.0.0:0"]);
    assert_eq!(open.log().iter().filter(is_warning).count(), 1, "{:?}", open.log());
}
