//! Loopback connections and a loop with a deadline, for tests that own both ends.
#![allow(dead_code, unreachable_pub)]

use std::net::{TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use reactor::{Config, Ended, Event, Key, Reactor};

/// No condition here takes longer than fractions of a second; the rest is for a busy machine.
pub const PATIENCE: Duration = Duration::from_secs(20);

/// An event that borrows nothing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Seen {
    Woken,
    Received(Key, Vec<u8>),
    Ended(Key, Ended),
}

impl Seen {
    pub fn of<T>(event: Event<'_, T>) -> Self {
        match event {
            Event::Woken => Self::Woken,
            Event::Received { key, bytes, .. } => Self::Received(key, bytes.to_vec()),
            Event::Ended { key, how } => Self::Ended(key, how),
        }
    }
}

pub fn reactor(config: Config) -> Reactor<u64> {
    Reactor::new(config).expect("io_uring works here")
}

/// Both ends of a connection: the reactor's and the client's.
pub fn pair(listener: &TcpListener) -> (OwnedFd, TcpStream) {
    let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    client.set_nodelay(true).unwrap();
    client.set_read_timeout(Some(PATIENCE)).unwrap();
    client.set_write_timeout(Some(PATIENCE)).unwrap();
    let (server, _) = listener.accept().unwrap();
    server.set_nodelay(true).unwrap();
    (server.into(), client)
}

pub fn listener() -> TcpListener {
    TcpListener::bind("127.0.0.1:0").unwrap()
}

/// A connection in a reactor, and its client.
pub fn connect(reactor: &mut Reactor<u64>) -> (Key, TcpStream) {
    let (server, client) = pair(&listener());
    (reactor.insert(server, 0).unwrap(), client)
}

/// Turns until the condition holds.
///
/// # Panics
///
/// It does not within [`PATIENCE`].
pub fn drive(
    reactor: &mut Reactor<u64>,
    mut on: impl FnMut(&mut Reactor<u64>, Seen),
    mut until: impl FnMut(&mut Reactor<u64>) -> bool,
) {
    let deadline = Instant::now() + PATIENCE;
    while !until(reactor) {
        assert!(Instant::now() < deadline, "the condition did not come true");
        reactor.wait(Some(Duration::from_millis(5))).unwrap();
        while let Some(seen) = reactor.next_event().map(Seen::of) {
            on(reactor, seen);
        }
    }
}

/// Like [`drive`], collecting the events until the condition on them holds.
pub fn collect(reactor: &mut Reactor<u64>, until: impl Fn(&[Seen]) -> bool) -> Vec<Seen> {
    let seen = std::cell::RefCell::new(Vec::new());
    drive(reactor, |_, event| seen.borrow_mut().push(event), |_| until(&seen.borrow()));
    seen.into_inner()
}

/// The bytes received, in order.
pub fn bytes(seen: &[Seen]) -> Vec<u8> {
    seen.iter()
        .flat_map(|seen| match seen {
            Seen::Received(_, bytes) => bytes.clone(),
            _ => Vec::new(),
        })
        .collect()
}

/// Turns until every connection that was closed is gone.
pub fn settle(reactor: &mut Reactor<u64>) {
    drive(reactor, |_, _| {}, |reactor| reactor.closing() == 0);
}

/// A small generator for randomised tests; prints its seed, takes it from RING_SEED.
pub struct Random(u64);

impl Random {
    pub fn new(test: &str) -> Self {
        let seed = match std::env::var("RING_SEED") {
            Ok(seed) => seed.parse().expect("RING_SEED is a number"),
            Err(_) => std::time::SystemTime::UNIX_EPOCH.elapsed().unwrap().as_nanos() as u64,
        };
        println!("{test}: RING_SEED={seed}");
        Self(seed)
    }

    pub fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % limit
    }
}
