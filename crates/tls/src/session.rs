//! One connection's TLS session, over buffers instead of a socket.

use std::fmt;
use std::mem;
use std::sync::Arc;

use pki::words;
use rustls::server::{ServerConnectionData, UnbufferedServerConnection};
use rustls::unbuffered::{ConnectionState, EncodeError, EncryptError, UnbufferedStatus, WriteTraffic};
use rustls::{Error, HandshakeKind};

use super::{Config, Fault, identity};

/// The longest TLS 1.2 record: 5 bytes of header and 2^14 + 2048 of ciphertext (RFC 5246, 6.2.3). TLS 1.3's
/// are shorter. No more is ever kept for a client, which also bounds its handshake messages: a chain of
/// certificates is some KB long.
const KEPT_BYTES_MAX: usize = 5 + (1 << 14) + 2048;

/// The same once the handshake is over: no client of the protocol sends records of more than some 40 bytes.
/// Sixteen KB of heartbeats would be answered with 147 KB, and thousands of clients could make the server
/// keep both.
const ESTABLISHED_KEPT_BYTES_MAX: usize = 2048;

const _: () =
    assert!(pki::CHAIN_BYTES_MAX < KEPT_BYTES_MAX, "a client's chain that is not too long is heard out");

/// The header of a record that is longer than any: rustls answers it with the alert decode_error (RFC 8446,
/// 6.2), which is also right for other lengths that we do not take.
const ENDLESS_RECORD: [u8; 5] = [22, 3, 3, 0xff, 0xff];

/// Input up to this length is worked on without a buffer on the heap. A heartbeat's record is 23 bytes (TLS
/// 1.3) to 30 bytes long; this is a dozen of them.
const INPUT_ON_STACK_BYTES: usize = 384;

/// What a record may add to its plaintext: header, explicit nonce, content type and tag (5 + 8 + 1 + 16), and
/// then rounded up.
const RECORD_OVERHEAD_BYTES: usize = 32;

/// The longest plaintext in one record (RFC 8446, 5.1).
const RECORD_PLAINTEXT_BYTES_MAX: usize = 1 << 14;

/// The server's end of a TLS session.
pub struct Session {
    connection: UnbufferedServerConnection,
    /// An incomplete record, or the records of an incomplete handshake message; nothing is allocated when
    /// there is none.
    kept: Vec<u8>,
    /// What the handshake runs under; released when the client is known.
    unverified: Option<Config>,
    is_closed_by_peer: bool,
    is_closed_by_us: bool,
    /// Whether one of the authorities behind the client's certificate may vouch for certain names only.
    is_constrained: bool,
    /// Why it is over. Nothing more is read or sent then.
    fault: Option<Box<Fault>>,
}

impl fmt::Debug for Session {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Session")
            .field("version", &self.connection.protocol_version())
            .field("fault", &self.fault)
            .finish_non_exhaustive()
    }
}

impl Session {
    /// The session of a connection that was just accepted.
    pub fn new(config: &Config) -> Self {
        let connection = UnbufferedServerConnection::new(Arc::clone(&config.0.server))
            .expect("fails only for a bad fragment size, and none is set");
        Self {
            connection,
            kept: Vec::new(),
            unverified: Some(config.clone()),
            is_closed_by_peer: false,
            is_closed_by_us: false,
            is_constrained: false,
            fault: None,
        }
    }

    /// Takes bytes as they came from the socket, and appends what they say and what must be sent because of
    /// them. Ignores them once either side has closed.
    ///
    /// # Errors
    ///
    /// The session is over, and nothing of these bytes is in `plaintext`. The alert that tells the client is
    /// in `output`, where TLS has one.
    pub fn receive(
        &mut self,
        bytes: &[u8],
        plaintext: &mut Vec<u8>,
        output: &mut Vec<u8>,
    ) -> Result<(), Fault> {
        if let Some(fault) = &self.fault {
            return Err(Fault::clone(fault));
        }
        if self.is_closed_by_peer || self.is_closed_by_us {
            return Ok(());
        }
        let before = plaintext.len();
        let outcome = self.take(bytes, plaintext, output).and_then(|()| self.verify_again(output));
        let outcome = outcome.map_err(|fault| match fault {
            Fault::Protocol(error) if self.has_no_version() && words::is_no_tls(&error) => Fault::NoTls,
            fault => fault,
        });
        if let Err(fault) = &outcome {
            // Also because a resumed session's client may have sent it without being allowed to.
            plaintext.truncate(before);
            self.end(fault.clone(), output);
        }
        outcome
    }

    fn take(&mut self, bytes: &[u8], plaintext: &mut Vec<u8>, output: &mut Vec<u8>) -> Result<(), Fault> {
        if self.kept.is_empty() && bytes.len() <= INPUT_ON_STACK_BYTES {
            let mut input = [0; INPUT_ON_STACK_BYTES];
            let input = &mut input[..bytes.len()];
            input.copy_from_slice(bytes);
            let done = self.records(input, plaintext, output)?;
            self.kept = input[done..].to_vec();
        } else {
            let mut input = mem::take(&mut self.kept);
            input.extend_from_slice(bytes);
            let done = self.records(&mut input, plaintext, output)?;
            self.kept = if done == 0 { input } else { input[done..].to_vec() };
        }
        let max = if self.is_handshaking() { KEPT_BYTES_MAX } else { ESTABLISHED_KEPT_BYTES_MAX };
        if self.kept.len() > max {
            self.refuse_length(output);
            return Err(Fault::MessageTooLong(max));
        }
        Ok(())
    }

    /// Makes rustls send an alert: what is kept is fine so far, and it would wait for the rest.
    fn refuse_length(&mut self, output: &mut Vec<u8>) {
        let mut input = mem::take(&mut self.kept);
        input.truncate(whole_records_len(&input));
        input.extend_from_slice(&ENDLESS_RECORD);
        let outcome = self.records(&mut input, &mut Vec::new(), output);
        debug_assert!(outcome.is_err());
    }

    /// Whether no hello was read yet.
    fn has_no_version(&self) -> bool {
        self.connection.protocol_version().is_none()
    }

    /// Handles every whole record of `input` and returns how many bytes are done with.
    fn records(
        &mut self,
        input: &mut [u8],
        plaintext: &mut Vec<u8>,
        output: &mut Vec<u8>,
    ) -> Result<usize, Fault> {
        let mut done = 0;
        loop {
            let UnbufferedStatus { discard, state } = self.connection.process_tls_records(&mut input[done..]);
            let is_all = match state? {
                ConnectionState::ReadTraffic(mut traffic) => {
                    while let Some(record) = traffic.next_record() {
                        plaintext.extend_from_slice(record?.payload);
                    }
                    false
                }
                ConnectionState::EncodeTlsData(mut message) => {
                    append(output, 0, |room| Ok(message.encode(room)?))
                        .expect("a message is encoded once, and fits");
                    false
                }
                ConnectionState::TransmitTlsData(transmitted) => {
                    transmitted.done();
                    false
                }
                ConnectionState::PeerClosed => {
                    self.is_closed_by_peer = true;
                    // Whatever comes after a close_notify is nobody's.
                    return Ok(input.len());
                }
                ConnectionState::BlockedHandshake
                | ConnectionState::WriteTraffic(_)
                | ConnectionState::Closed => true,
                // 0-RTT is not offered, and there are no other states.
                state => unreachable!("{state:?}"),
            };
            done += discard;
            if is_all {
                return Ok(done);
            }
        }
    }

    /// Looks at the certificates of a resumed session as if they came now: a ticket lives for hours, and
    /// proves only what was true when it was made.
    fn verify_again(&mut self, output: &mut Vec<u8>) -> Result<(), Fault> {
        if self.connection.is_handshaking() {
            return Ok(());
        }
        let Some(config) = self.unverified.take() else { return Ok(()) };
        let Some(clients) = &config.0.clients else { return Ok(()) };
        let chain = self.connection.peer_certificates().unwrap_or_default();
        self.is_constrained = pki::is_constrained(chain, &clients.roots);
        if self.connection.handshake_kind() != Some(HandshakeKind::Resumed) {
            return Ok(());
        }
        let now = config.0.server.time_provider.current_time().ok_or(Error::FailedToGetCurrentTime)?;
        let (certificate, intermediates) = chain.split_first().ok_or(Fault::NoCertificate)?;
        if let Err(error) = clients.verifier.verify_client_cert(certificate, intermediates, now) {
            // The handshake is over, and rustls lets nobody else send an alert that says more.
            self.close_notify(output);
            return Err(Fault::ResumedCertificate(error));
        }
        Ok(())
    }

    /// Appends what tells the client, and lets go of everything else.
    fn end(&mut self, fault: Fault, output: &mut Vec<u8>) {
        while self.connection.wants_write() {
            // What waits to be sent comes before any look at input, and there must be no such look after a
            // fault.
            let Ok(ConnectionState::EncodeTlsData(mut message)) =
                self.connection.process_tls_records(&mut []).state
            else {
                break;
            };
            append(output, 0, |room| Ok(message.encode(room)?)).expect("a message is encoded once, and fits");
        }
        self.kept = Vec::new();
        self.unverified = None;
        self.fault = Some(Box::new(fault));
    }

    /// Appends the records that carry `plaintext`. Only after the handshake; nothing after a fault or a
    /// close_notify of ours.
    pub fn send(&mut self, plaintext: &[u8], output: &mut Vec<u8>) {
        debug_assert!(self.fault.is_some() || !self.is_handshaking());
        let records = plaintext.len().div_ceil(RECORD_PLAINTEXT_BYTES_MAX);
        let room = plaintext.len() + records * RECORD_OVERHEAD_BYTES;
        let outcome = self.write(room, output, |traffic, room| traffic.encrypt(plaintext, room));
        if let Err(Exhausted) = outcome {
            // rustls has a close_notify ready.
            self.end(Fault::KeyExhausted, output);
        }
    }

    /// Appends the alert that says that we are done; what still comes is ignored then, since rustls could not
    /// answer it with another alert. Nothing during the handshake, where there is nothing to close yet.
    pub fn close_notify(&mut self, output: &mut Vec<u8>) {
        let outcome =
            self.write(RECORD_OVERHEAD_BYTES, output, |traffic, room| traffic.queue_close_notify(room));
        self.is_closed_by_us = !self.is_handshaking();
        debug_assert!(outcome.is_ok(), "alerts are no subject of the limits of a key");
    }

    fn write(
        &mut self,
        room: usize,
        output: &mut Vec<u8>,
        mut write: impl FnMut(&mut Traffic<'_>, &mut [u8]) -> Result<usize, EncryptError>,
    ) -> Result<(), Exhausted> {
        if self.fault.is_some() || self.is_closed_by_us {
            return Ok(());
        }
        // rustls may still refer to what is kept. There is no whole record in it, so that nothing is read
        // here.
        match self.connection.process_tls_records(&mut self.kept).state {
            Ok(ConnectionState::WriteTraffic(mut traffic)) => {
                append(output, room, |room| Ok(write(&mut traffic, room)?))
            }
            _ => Ok(()),
        }
    }

    /// Whether it is not yet known who the client is. No data comes or goes before.
    pub fn is_handshaking(&self) -> bool {
        self.connection.is_handshaking()
    }

    /// Whether the client said that it sends no more. What it sent before was delivered.
    pub fn is_closed_by_peer(&self) -> bool {
        self.is_closed_by_peer
    }

    /// How many bytes are kept for a record or message that is not complete.
    #[cfg(test)]
    pub(super) fn kept_bytes(&self) -> usize {
        self.kept.len()
    }

    /// Who the client is, once the handshake is over; `None` if it was not asked for a certificate.
    ///
    /// # Errors
    ///
    /// [`Fault::Identity`]: the certificate is valid, and there is no name in it that we could use.
    pub fn identity(&self) -> Result<Option<Arc<str>>, Fault> {
        debug_assert!(!self.is_handshaking());
        let certificate = self.connection.peer_certificates().and_then(<[_]>::first);
        certificate
            .map(|certificate| identity::identity(certificate, self.is_constrained).map(Arc::from))
            .transpose()
    }
}

/// How many of these bytes are records that are all there.
fn whole_records_len(bytes: &[u8]) -> usize {
    let mut len = 0;
    while let Some(&[_, _, _, high, low]) = bytes.get(len..len + 5) {
        let end = len + 5 + usize::from(u16::from_be_bytes([high, low]));
        if end > bytes.len() {
            break;
        }
        len = end;
    }
    len
}

type Traffic<'a> = WriteTraffic<'a, ServerConnectionData>;

/// The key has protected as many records as its cipher allows.
#[derive(Debug)]
struct Exhausted;

/// Why nothing was written.
enum Unwritten {
    TooSmall { required_bytes: usize },
    Never,
}

impl From<EncodeError> for Unwritten {
    fn from(error: EncodeError) -> Self {
        match error {
            EncodeError::InsufficientSize(size) => Self::TooSmall { required_bytes: size.required_size },
            EncodeError::AlreadyEncoded => Self::Never,
        }
    }
}

impl From<EncryptError> for Unwritten {
    fn from(error: EncryptError) -> Self {
        match error {
            EncryptError::InsufficientSize(size) => Self::TooSmall { required_bytes: size.required_size },
            EncryptError::EncryptExhausted => Self::Never,
        }
    }
}

/// Appends what `write` writes; starts with `room` bytes for it and gives it what it asks for.
fn append(
    output: &mut Vec<u8>,
    mut room: usize,
    mut write: impl FnMut(&mut [u8]) -> Result<usize, Unwritten>,
) -> Result<(), Exhausted> {
    let start = output.len();
    loop {
        output.resize(start + room, 0);
        match write(&mut output[start..]) {
            Ok(written) => {
                output.truncate(start + written);
                return Ok(());
            }
            Err(Unwritten::TooSmall { required_bytes }) => {
                assert!(required_bytes > room, "what fits is written");
                room = required_bytes;
            }
            Err(Unwritten::Never) => {
                output.truncate(start);
                return Err(Exhausted);
            }
        }
    }
}
