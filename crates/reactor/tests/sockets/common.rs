//! Loopback connections and a loop with a deadline, for tests that own both ends.

use std::net::{TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use reactor::{Config, Ended, Event, Key, Reactor};

/// No condition here takes longer than fractions of a second; the rest is for a busy machine.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

/// An event that borrows nothing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Seen {
    Woken,
    Received(Key, Vec<u8>),
    Ended(Key, Ended),
}

impl Seen {
    pub(crate) fn of<T>(event: Event<'_, T>) -> Self {
        match event {
            Event::Woken => Self::Woken,
            Event::Received { key, bytes, .. } => Self::Received(key, bytes.to_vec()),
            Event::Ended { key, how } => Self::Ended(key, how),
        }
    }
}

pub(crate) fn reactor(config: Config) -> Reactor<u64> {
    Reactor::new(config).expect("io_uring works here")
}

/// Both ends of a connection: the reactor's and the client's.
pub(crate) fn pair(listener: &TcpListener) -> (OwnedFd, TcpStream) {
    let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    client.set_nodelay(true).unwrap();
    client.set_read_timeout(Some(PATIENCE)).unwrap();
    client.set_write_timeout(Some(PATIENCE)).unwrap();
    let (server, _) = listener.accept().unwrap();
    server.set_nodelay(true).unwrap();
    (server.into(), client)
}

pub(crate) fn listener() -> TcpListener {
    TcpListener::bind("127.0.0.1:0").unwrap()
}

/// A connection in a reactor, and its client.
pub(crate) fn connect(reactor: &mut Reactor<u64>) -> (Key, TcpStream) {
    let (server, client) = pair(&listener());
    (reactor.insert(server, 0).unwrap(), client)
}

/// Turns until the condition holds.
///
/// # Panics
///
/// It does not within [`PATIENCE`].
pub(crate) fn drive(
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
pub(crate) fn collect(reactor: &mut Reactor<u64>, until: impl Fn(&[Seen]) -> bool) -> Vec<Seen> {
    let seen = std::cell::RefCell::new(Vec::new());
    drive(reactor, |_, event| seen.borrow_mut().push(event), |_| until(&seen.borrow()));
    seen.into_inner()
}

/// The bytes received, in order.
pub(crate) fn bytes(seen: &[Seen]) -> Vec<u8> {
    seen.iter()
        .flat_map(|seen| match seen {
            Seen::Received(_, bytes) => bytes.clone(),
            _ => Vec::new(),
        })
        .collect()
}

/// Turns until every connection that was closed is gone.
pub(crate) fn settle(reactor: &mut Reactor<u64>) {
    drive(reactor, |_, _| {}, |reactor| reactor.closing() == 0);
}
