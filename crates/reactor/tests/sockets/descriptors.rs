//! Descriptors and memory come back. The test runs in a process of its own: it counts what is open.

use std::io::{Read, Write};
use std::process::Command;
use std::rc::Rc;
use std::time::{Duration, Instant};

use crate::common::*;
use reactor::{Config, Event, Reactor};

/// Where the test's program, started anew, runs this test and no other.
const ALONE: &str = "TEST_ALONE";

fn open_descriptors() -> usize {
    std::fs::read_dir("/proc/self/fd").unwrap().count()
}

#[test]
fn every_descriptor_is_closed_and_every_owner_dropped() {
    if std::env::var_os(ALONE).is_none() {
        let mut alone = Command::new(std::env::current_exe().unwrap());
        alone.args([
            "descriptors::every_descriptor_is_closed_and_every_owner_dropped",
            "--exact",
            "--nocapture",
        ]);
        let output = alone.env(ALONE, "1").output().unwrap();
        let said = String::from_utf8_lossy(&output.stdout);
        assert!(
            output.status.success() && said.contains("1 passed"),
            "{said}{}",
            String::from_utf8_lossy(&output.stderr)
        );
        return;
    }
    let before = open_descriptors();
    let listener = listener();
    let owner = Rc::new(());
    for _ in 0..3 {
        let mut reactor = Reactor::new(Config { sockets_max: 50, ..Config::default() }).unwrap();
        let mut clients: Vec<_> = (0..100)
            .map(|_| {
                let (server, client) = pair(&listener);
                (reactor.insert(server, owner.clone()).unwrap(), client)
            })
            .collect();
        reactor.wait(Some(Duration::ZERO)).unwrap();
        for (at, (key, client)) in clients.iter_mut().enumerate() {
            client.write_all(b"x").unwrap();
            match at % 4 {
                0 => drop(reactor.close(*key)),
                1 => drop(reactor.close_after(*key, b"last")),
                // More than the socket takes: a send is in flight when the reactor goes.
                2 => reactor.send(*key, &vec![0; 8 << 20]),
                _ => {}
            }
        }
        let mut clients: Vec<_> = clients.into_iter().skip(2).step_by(4).map(|(_, client)| client).collect();
        let deadline = Instant::now() + PATIENCE;
        while reactor.closing() > 0 {
            assert!(Instant::now() < deadline);
            reactor.wait(Some(Duration::from_millis(5))).unwrap();
            while let Some(event) = reactor.next_event() {
                if let Event::Ended { key, .. } = event {
                    reactor.close(key);
                }
            }
        }
        assert_eq!(reactor.open(), 25);
        let start = Instant::now();
        drop(reactor);
        assert!(start.elapsed() < Duration::from_secs(1));
        assert_eq!(Rc::strong_count(&owner), 1);
        let mut bytes = vec![0; 1 << 20];
        // The end arrives; a RST where input was unread.
        while clients[0].read(&mut bytes).is_ok_and(|read| read > 0) {}
    }
    drop(listener);
    assert_eq!(open_descriptors(), before);
}
