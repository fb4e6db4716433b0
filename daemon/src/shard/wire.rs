//! What goes over a session's connection, plain or through TLS: the lock table knows no difference.

use locks::{Reason, SessionId};
use protocol::{ErrorCode, ErrorFrame, decode_session};
use reactor::Key;
use tracing::debug;

use super::Secured;
use super::worker::Worker;

/// Buffers between the reactor and TLS, kept for their memory.
#[derive(Debug, Default)]
pub(super) struct Buffers {
    /// Input that is decrypted, or output that is not encrypted yet.
    plaintext: Vec<u8>,
    /// Encrypted output.
    records: Vec<u8>,
}

impl Buffers {
    /// Decrypts what came, a heartbeat most of the time, and makes what TLS itself answers.
    pub(super) fn receive(&mut self, secured: &mut Secured, bytes: &[u8]) -> Received {
        self.plaintext.clear();
        self.records.clear();
        match secured.tls.receive(bytes, &mut self.plaintext, &mut self.records) {
            Err(fault) => Received::Broken(fault),
            Ok(()) if secured.tls.is_closed_by_peer() => Received::Closed,
            Ok(()) => Received::Whole,
        }
    }
}

/// How TLS goes on after the input in the buffers.
#[derive(Debug)]
pub(super) enum Received {
    Whole,
    /// The client's close_notify followed.
    Closed,
    Broken(tls::Fault),
}

impl Worker {
    /// Takes the buffers' input.
    pub(super) fn received_records(&mut self, key: Key, session: SessionId, how: Received) {
        self.reactor.send(key, &self.buffers.records);
        if !self.buffers.plaintext.is_empty() {
            let input = decode_session(&self.buffers.plaintext);
            self.received(key, session, input);
        }
        match how {
            Received::Whole => {}
            Received::Closed => self.leave(key, session),
            Received::Broken(fault) => {
                debug!(remote_addr = self.peer(key), %fault, "TLS failed");
                self.leave(key, session);
            }
        }
    }

    /// The client has ended its TLS stream, in order or not: the connection is gone, as after FIN or RST.
    pub(super) fn leave(&mut self, key: Key, session: SessionId) {
        self.end(session, Reason::Graceful);
        self.finish(key);
    }

    /// Appends a frame, `times` times, to a session's output.
    pub(super) fn send(&mut self, key: Key, frame: &[u8], times: usize) {
        match self.reactor.get_mut(key).and_then(|connection| connection.secured.as_mut()) {
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

    /// Sends an ERROR, and closes.
    pub(super) fn refuse(&mut self, key: Key, code: ErrorCode) {
        debug!(remote_addr = self.peer(key), %code, reason = code.meaning(), "closed with an ERROR");
        let Some(connection) = self.reactor.get_mut(key) else { return };
        let frame = ErrorFrame::new(code);
        match &mut connection.secured {
            None => self.reactor.close_after(key, &frame),
            Some(secured) => {
                self.buffers.records.clear();
                secured.tls.send(&frame, &mut self.buffers.records);
                secured.tls.close_notify(&mut self.buffers.records);
                self.reactor.close_after(key, &self.buffers.records)
            }
        };
        self.counters.protocol_error(code);
    }

    /// Closes without an ERROR; in TLS the client is told that the stream is whole.
    pub(super) fn finish(&mut self, key: Key) {
        let Some(connection) = self.reactor.get_mut(key) else { return };
        match &mut connection.secured {
            None => self.reactor.close(key),
            Some(secured) => {
                self.buffers.records.clear();
                secured.tls.close_notify(&mut self.buffers.records);
                self.reactor.close_after(key, &self.buffers.records)
            }
        };
    }
}
