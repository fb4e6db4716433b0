//! Many locks: one page after the other.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::harness::Peer;
use crate::operator::{LEASE, Site, ended, http, impostor, monolock};

fn hold(site: &Site, count: usize) -> Vec<Peer> {
    let mut peers: Vec<_> = (0..count).map(|n| site.server.claim(&format!("lock-{n:05}"), LEASE)).collect();
    for peer in &mut peers {
        peer.acquired();
    }
    peers
}

fn assert_all_are_listed(site: &Site, count: usize) {
    let text = site.says(&["locks"]);
    assert_eq!(text.lines().count(), count + 1);
    let in_order = text.lines().skip(1).zip(0..).all(|(line, n)| line.starts_with(&format!("lock-{n:05} ")));
    assert!(in_order);
    let json = site.json(&["locks"]);
    assert_eq!(json.len(), count);
    assert!(json.iter().zip(0..).all(|(lock, n)| lock["name"] == format!("lock-{n:05}")));
    let top = site.says(&["top", "--once", "-sort=name", "-rows", "3"]);
    assert!(top.contains(&format!("\nsessions {count}  locks {count}  held {count}  waiters 0\n")), "{top}");
    assert_eq!(top.lines().count(), 3 + 4);
}

#[test]
fn three_thousand_locks_are_listed_each_once_and_in_order() {
    let site = Site::start();
    let _held = hold(&site, 3000);
    assert_all_are_listed(&site, 3000);
    assert_eq!(site.json(&["locks", "lock-00?00"]).len(), 10);
}

#[test]
#[ignore = "takes some seconds; .ci/run runs it"]
fn more_locks_than_a_page_of_the_api_has_are_listed_each_once_and_in_order() {
    const COUNT: usize = 10_500;
    let maximum = getrlimit(Resource::Nofile).maximum;
    let is_enough = maximum.is_none_or(|maximum| maximum > COUNT as u64 + 500);
    assert!(is_enough, "too few open files are allowed for this test");
    setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum }).unwrap();
    let site = Site::start();
    let _held = hold(&site, COUNT);
    assert_all_are_listed(&site, COUNT);
}

fn page(names: &[&str], next: &str) -> Vec<u8> {
    let locks: Vec<_> = names
        .iter()
        .map(|name| format!(r#"{{"name":"{name}","holder":null,"waiters":[],"more":[1]}}"#))
        .collect();
    http("200 OK", &format!(r#"{{"locks":[{}],"next":{next}}}"#, locks.join(",")))
}

#[test]
fn the_next_page_is_asked_for_with_the_same_pattern_and_what_the_last_one_says() {
    let address = impostor(|request| match request {
        "GET /api/locks?limit=10000&match=%2A%20%25&after= HTTP/1.1" => page(&["a", "b c"], r#""b c""#),
        "GET /api/locks?limit=10000&match=%2A%20%25&after=b%20c HTTP/1.1" => page(&["d"], "null"),
        other => panic!("{other}"),
    });
    let text = ended(&mut monolock(&["locks", "* %", "--admin", &address])).ok();
    let names: Vec<_> = text.lines().skip(1).map(|line| line[..5].trim()).collect();
    assert_eq!(names, ["a", "b c", "d"], "{text}");
    assert!(text.ends_with("\nd     -          -      -      -        0\n"), "{text}");
}

#[test]
fn pages_that_do_not_go_on_are_not_followed_for_ever() {
    let address = impostor(|_| page(&["a"], r#""a""#));
    let ended = ended(&mut monolock(&["locks", "--admin", &address]));
    assert_eq!(ended.status, 76);
    assert!(ended.stderr.contains("its pages do not go on"), "{ended:?}");
}
