//! The shard's connections and what goes over them, plain or through TLS: the lock table knows no difference.

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use audit::Peer;
use locks::SessionId;
use protocol::{ErrorCode, ErrorFrame, SessionInput, decode_session};
use reactor::{Ended, Event, Key, Reactor, Waker};
use rustix::net::getsockname;
use rustix::net::sockopt::set_socket_linger;
use tracing::debug;
use tracing::field::{DisplayValue, display};

use super::hand_over::Secured;
use super::seen::Who;
use crate::addresses::{Departures, LocalAddress};

/// What the shard knows of a connection besides its socket.
#[derive(Debug)]
struct Line {
    /// Set as soon as the lock table has taken the claim, before anything that comes over the connection is
    /// looked at.
    session: Option<SessionId>,
    peer: Peer,
    /// Looked at right before it was accepted.
    accepted: Departures,
    /// In a box, so that a plain connection pays a pointer for it.
    secured: Option<Box<Secured>>,
}

/// The connections of a shard.
pub(super) struct Wire {
    reactor: Reactor<Line>,
    buffers: Buffers,
}

/// Buffers between the reactor and TLS, kept for their memory.
#[derive(Debug, Default)]
struct Buffers {
    /// Input that is decrypted, or output that is not encrypted yet.
    plaintext: Vec<u8>,
    /// Encrypted output.
    records: Vec<u8>,
}

/// What came.
#[derive(Debug)]
pub(super) enum Arrival {
    /// Somebody woke the shard.
    Woken,
    /// A session's bytes, understood. They are its last ones where its TLS stream has ended, in order or not:
    /// the connection is gone then, as after FIN or RST.
    Input { key: Key, session: SessionId, input: SessionInput, is_last: bool },
    /// A connection ended. Its session is over, or must be.
    Ended { key: Key, session: Option<SessionId>, how: Ended },
}

impl Wire {
    pub(super) fn new(config: reactor::Config) -> Result<Self, reactor::Unavailable> {
        Ok(Self { reactor: Reactor::new(config)?, buffers: Buffers::default() })
    }

    /// Takes a connection in.
    pub(super) fn insert(
        &mut self,
        socket: OwnedFd,
        peer: Peer,
        accepted: Departures,
        secured: Option<Box<Secured>>,
    ) -> io::Result<Key> {
        self.reactor.insert(socket, Line { session: None, peer, accepted, secured })
    }

    /// The local address of a connection, and the departures that it was accepted after.
    pub(super) fn stay(&self, key: Key) -> Option<(LocalAddress, Departures)> {
        let accepted = self.reactor.get(key)?.accepted;
        Some((local_address(self.reactor.socket(key)?)?, accepted))
    }

    /// The session of a connection, if its claim was taken.
    pub(super) fn session(&self, key: Key) -> Option<SessionId> {
        self.reactor.get(key).and_then(|line| line.session)
    }

    /// The connection's claim has been taken.
    pub(super) fn belongs_to(&mut self, key: Key, session: SessionId) {
        if let Some(line) = self.reactor.get_mut(key) {
            line.session = Some(session);
        }
    }

    /// The next thing that came, without waiting.
    pub(super) fn next(&mut self) -> Option<Arrival> {
        loop {
            match self.reactor.next_event()? {
                Event::Woken => return Some(Arrival::Woken),
                Event::Received { key, data, bytes } => {
                    let Some(session) = data.session else { continue };
                    let (input, is_last) = match &mut data.secured {
                        None => (decode_session(bytes), false),
                        Some(secured) => {
                            let is_last = self.buffers.receive(secured, bytes, data.peer);
                            self.reactor.send(key, &self.buffers.records);
                            (decode_session(&self.buffers.plaintext), is_last)
                        }
                    };
                    return Some(Arrival::Input { key, session, input, is_last });
                }
                Event::Ended { key, how } => {
                    return Some(Arrival::Ended { key, session: self.session(key), how });
                }
            }
        }
    }

    /// Appends a frame, `times` times, to a session's output.
    pub(super) fn send(&mut self, key: Key, frame: &[u8], times: usize) {
        match self.reactor.get_mut(key).and_then(|line| line.secured.as_mut()) {
            None => self.reactor.send_repeated(key, frame, times),
            Some(secured) => {
                let Buffers { plaintext, records } = &mut self.buffers;
                plaintext.clear();
                (0..times).for_each(|_| plaintext.extend_from_slice(frame));
                records.clear();
                secured.tls.send(plaintext, records);
                self.reactor.send(key, records);
            }
        }
    }

    /// Sends an ERROR, and closes. Whether there was somebody to send it to.
    pub(super) fn refuse(&mut self, key: Key, code: ErrorCode) -> bool {
        debug!(remote_addr = self.peer(key), %code, reason = code.meaning(), "closed with an ERROR");
        let Some(line) = self.reactor.get_mut(key) else { return false };
        let frame = ErrorFrame::new(code);
        match &mut line.secured {
            None => self.reactor.close_after(key, &frame),
            Some(secured) => {
                self.buffers.records.clear();
                secured.tls.send(&frame, &mut self.buffers.records);
                secured.tls.close_notify(&mut self.buffers.records);
                self.reactor.close_after(key, &self.buffers.records)
            }
        };
        true
    }

    /// Closes without an ERROR; in TLS the client is told that the stream is whole.
    pub(super) fn finish(&mut self, key: Key) {
        let Some(line) = self.reactor.get_mut(key) else { return };
        match &mut line.secured {
            None => self.reactor.close(key),
            Some(secured) => {
                self.buffers.records.clear();
                secured.tls.close_notify(&mut self.buffers.records);
                self.reactor.close_after(key, &self.buffers.records)
            }
        };
    }

    /// Closes what ended by itself.
    pub(super) fn close(&mut self, key: Key) {
        self.reactor.close(key);
    }

    /// Closes without a word. What the client has not confirmed is thrown away: it would be sent when the
    /// address is back, long after its session has ended.
    pub(super) fn abandon(&mut self, key: Key) {
        if let Some(socket) = self.reactor.socket(key) {
            say_nothing_at_close(socket);
        }
        self.reactor.close(key);
    }

    /// Sends what was appended, and closes what is to be closed: one system call.
    pub(super) fn submit(&mut self) {
        self.reactor.submit().expect("the ring of a running shard works");
    }

    /// Waits until something comes, at most for `time_max`.
    pub(super) fn wait(&mut self, time_max: Duration) {
        self.reactor.wait(Some(time_max)).expect("the ring of a running shard works");
    }

    pub(super) fn waker(&self) -> Waker {
        self.reactor.waker()
    }

    /// Whether a connection is read, and not paused because its client does not read.
    pub(super) fn is_reading(&self, key: Key) -> bool {
        self.reactor.is_reading(key)
    }

    /// Whether a connection's own socket holds input that was not taken. Only right after all arrivals were
    /// taken.
    pub(super) fn has_unread(&self, key: Key) -> bool {
        self.reactor.has_unread(key)
    }

    /// Connections that wait for their clients to close.
    pub(super) fn closing(&self) -> usize {
        self.reactor.closing()
    }

    /// Descriptors that are open.
    pub(super) fn descriptors(&self) -> usize {
        self.reactor.open() + self.reactor.closing()
    }

    /// The remote address of a connection that is still there, for the log.
    pub(super) fn peer(&self, key: Key) -> Option<DisplayValue<Peer>> {
        self.reactor.get(key).map(|line| display(line.peer))
    }

    /// Who a connection belongs to that is still there.
    pub(super) fn who(&self, key: Key) -> Option<Who> {
        let line = self.reactor.get(key)?;
        let identity = line.secured.as_ref().and_then(|secured| secured.identity.clone());
        Some(Who { peer: line.peer, identity })
    }
}

/// Where a connection ends on this host.
pub(super) fn local_address(socket: impl AsFd) -> Option<LocalAddress> {
    Some(SocketAddr::try_from(getsockname(socket).ok()?).ok()?.into())
}

/// Lets the close of a socket throw away what is unsent. (It sends RST, for which there is no way while the
/// local address is elsewhere.)
pub(super) fn say_nothing_at_close(socket: impl AsFd) {
    // At worst it ends as others do.
    let _ = set_socket_linger(socket, Some(Duration::ZERO));
}

impl Buffers {
    /// Decrypts what came, a heartbeat most of the time, and makes what TLS itself answers. Whether it was
    /// the last.
    fn receive(&mut self, secured: &mut Secured, bytes: &[u8], peer: Peer) -> bool {
        self.plaintext.clear();
        self.records.clear();
        match secured.tls.receive(bytes, &mut self.plaintext, &mut self.records) {
            Ok(()) => secured.tls.is_closed_by_peer(),
            Err(fault) => {
                debug!(remote_addr = %peer, %fault, "TLS failed");
                true
            }
        }
    }
}
