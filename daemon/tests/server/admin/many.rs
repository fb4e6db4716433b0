//! Many claims: long queues, pages while claims come and go, and what a listing costs the others.

use std::collections::HashMap;
use std::io::{Read, Write};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use protocol::ErrorCode;

use super::{Api, LEASE, address, addresses, queue};
use crate::harness::{Peer, Server};

/// More waiters than a shard describes at once.
const LONG: usize = 600;

#[test]
fn a_long_queue_is_shown_whole_and_in_order_and_keeps_it_through_kick_and_release() {
    let (server, api) = Api::start(&["-shards", "2"]);
    // Other sessions, so that slots and places in line have little to do with each other.
    let others: Vec<_> = (0..300).map(|n| server.hold(&format!("other-{n}"), LEASE)).collect();
    let (mut holder, _) = server.hold("jobs", LEASE);
    drop(others);
    let mut waiters: Vec<Peer> = (0..LONG).map(|_| server.wait_in_line("jobs", LEASE)).collect();
    let lock = api.lock("jobs");
    assert_eq!(lock["holder"]["remote_addr"], address(&holder));
    assert_eq!(queue(&lock), addresses(&waiters));

    let mut kicked = waiters.remove(LONG / 2);
    assert_eq!(api.kick("jobs", &address(&kicked)).status, 200);
    kicked.refused(ErrorCode::CLOSED_BY_ADMINISTRATOR);
    assert_eq!(api.release("jobs").status, 200);
    holder.refused(ErrorCode::CLOSED_BY_ADMINISTRATOR);
    let mut next = waiters.remove(0);
    next.acquired();
    let lock = api.lock("jobs");
    assert_eq!(lock["holder"]["remote_addr"], address(&next));
    assert_eq!(queue(&lock), addresses(&waiters));
    let listing = api.get("/api/locks?match=jobs").ok();
    assert_eq!(queue(&listing["locks"][0]), addresses(&waiters));
}

#[test]
fn nobody_is_missing_or_shown_twice_while_a_long_queue_moves() {
    let (server, api) = Api::start(&["-shards", "1"]);
    let mut line: Vec<Peer> = vec![server.hold("jobs", LEASE).0];
    line.extend((0..LONG).map(|_| server.wait_in_line("jobs", LEASE)));
    let all = addresses(&line);
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        let mover = scope.spawn(|| {
            // The front moves on, one grant at a time, and stays a long queue.
            for peer in line.drain(..LONG / 3) {
                peer.close();
                thread::sleep(Duration::from_millis(2));
            }
            done.store(true, Ordering::Relaxed);
        });
        let mut last_first = 0;
        while !done.load(Ordering::Relaxed) {
            let lock = api.lock("jobs");
            let mut shown: Vec<String> =
                lock["holder"]["remote_addr"].as_str().map(str::to_owned).into_iter().collect();
            shown.extend(queue(&lock));
            let first = all.iter().position(|address| *address == shown[0]).expect("one of the line");
            assert!(first >= last_first, "the line does not move back");
            last_first = first;
            let from_first: Vec<&String> =
                shown.iter().filter(|shown| all[first..].contains(shown)).collect();
            assert_eq!(from_first, all[first..].iter().collect::<Vec<_>>());
        }
        mover.join().unwrap();
    });
}

#[test]
fn a_lock_that_stays_is_on_exactly_one_page_while_others_come_and_go() {
    let (server, api) = Api::start(&["-shards", "2"]);
    let staying: Vec<String> = (0..150).map(|n| format!("stays/{n}")).collect();
    let _held: Vec<_> = staying.iter().map(|name| server.hold(name, LEASE)).collect();
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        for churner in 0..2 {
            let (server, done) = (&server, &done);
            scope.spawn(move || {
                let mut random = fastrand::Rng::new();
                while !done.load(Ordering::Relaxed) {
                    let name = format!("{}/{churner}/{}", random.alphabetic(), random.u8(..));
                    drop(server.hold(&name, LEASE));
                }
            });
        }
        for _ in 0..5 {
            let mut seen: HashMap<String, u32> = HashMap::new();
            let mut after = String::new();
            loop {
                let (names, next) = api.list(&format!("limit=20&after={after}"));
                assert!(names.is_sorted() && names.len() <= 20);
                assert!(names.iter().all(|name| *name > after));
                names.into_iter().for_each(|name| *seen.entry(name).or_default() += 1);
                match next {
                    Some(next) => after = next,
                    None => break,
                }
            }
            staying.iter().for_each(|name| assert_eq!(seen.get(name), Some(&1), "{name}"));
        }
        done.store(true, Ordering::Relaxed);
    });
}

/// The longest answer to a heartbeat, of some that are sent until `done`.
fn slowest_heartbeat(mut peer: Peer, done: &AtomicBool) -> Duration {
    let mut slowest = Duration::ZERO;
    while !done.load(Ordering::Relaxed) {
        let sent = Instant::now();
        peer.heartbeat();
        peer.acquired();
        slowest = slowest.max(sent.elapsed());
        thread::sleep(Duration::from_millis(1));
    }
    slowest
}

#[test]
#[ignore = "takes some seconds; .ci/run runs it"]
fn nine_thousand_sessions_are_listed_while_heartbeats_and_health_checks_go_on() {
    const LOCKS: usize = 4000;
    const WAITERS: usize = 5000;
    /// Far from what a slice costs, and from what a session could notice; a busy machine alone takes some of
    /// it.
    const SLOWEST: Duration = Duration::from_millis(500);
    let (server, api) = Api::start(&["-shards", "2"]);
    let beating = server.hold("beating", LEASE).0;
    let _held: Vec<_> = (0..LOCKS).map(|n| claimed(&server, &format!("lock-{n:04}"))).collect();
    let holder = server.hold("queue", LEASE).0;
    let waiters: Vec<Peer> = (0..WAITERS).map(|_| server.wait_in_line("queue", LEASE)).collect();
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        let heartbeats = scope.spawn(|| slowest_heartbeat(beating, &done));
        let health = scope.spawn(|| {
            let mut slowest = Duration::ZERO;
            while !done.load(Ordering::Relaxed) {
                let asked = Instant::now();
                assert_eq!(server.get("/healthz").0, 200);
                slowest = slowest.max(asked.elapsed());
            }
            slowest
        });
        for _ in 0..10 {
            let asked = Instant::now();
            let listing = api.get("/api/locks").ok();
            println!("listed in {:?}", asked.elapsed());
            let locks = listing["locks"].as_array().unwrap();
            assert_eq!(locks.len(), LOCKS + 2);
            let queued = locks.iter().find(|lock| lock["name"] == "queue").unwrap();
            assert_eq!(queued["holder"]["remote_addr"], address(&holder));
            assert_eq!(queue(queued), addresses(&waiters));
        }
        done.store(true, Ordering::Relaxed);
        let (heartbeat, health) = (heartbeats.join().unwrap(), health.join().unwrap());
        println!("slowest heartbeat {heartbeat:?}, slowest health check {health:?}");
        assert!(heartbeat < SLOWEST && health < SLOWEST, "{heartbeat:?}, {health:?}");
    });
}

#[test]
#[ignore = "takes some seconds; .ci/run runs it"]
fn a_listing_that_nobody_reads_holds_up_other_listings_and_nothing_else() {
    // Each character takes six in JSON: 6 MB, more than socket buffers hold.
    const LOCKS: usize = 4000;
    let (server, api) = Api::start(&[]);
    let _held: Vec<_> =
        (0..LOCKS).map(|n| claimed(&server, &format!("{}{n:04}", "\u{1}".repeat(251)))).collect();
    let reader = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).unwrap();
    reader.set_recv_buffer_size(4096).unwrap();
    reader.connect(&api.address.into()).unwrap();
    let mut reader = std::net::TcpStream::from(reader);
    reader.write_all(b"GET /api/locks HTTP/1.1\r\nHost: localhost\r\n\r\n").unwrap();
    reader.read_exact(&mut [0]).unwrap();

    let error = api.get("/api/locks?limit=1").error(503);
    assert!(error.contains("another listing"), "{error}");
    api.get("/api/info").ok();
    assert_eq!(api.get("/api/locks/unknown").status, 404);
    drop(reader);
    assert_eq!(api.list("limit=1").0.len(), 1);
}

fn claimed(server: &Server, name: &str) -> Peer {
    server.hold(name, LEASE).0
}
