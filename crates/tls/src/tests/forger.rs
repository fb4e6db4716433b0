//! A client that sends any record under the keys of an established session.

use std::sync::Arc;

use rustls::crypto::cipher::{MessageEncrypter, OutboundPlainMessage};
use rustls::{
    CipherSuite, ClientConnection, ConnectionTrafficSecrets, ContentType, ProtocolVersion,
    SupportedCipherSuite, SupportedProtocolVersion,
};

use super::pair::{Pair, client_with, plain};
use crate::{Fault, Session};

pub(super) struct Forger {
    encrypter: Box<dyn MessageEncrypter>,
    records: u64,
    pub(super) server: Session,
    /// What the server received.
    pub(super) received: Vec<u8>,
    /// How many bytes the server sent.
    pub(super) sent_bytes: usize,
}

impl Forger {
    /// Takes the place of a client after its handshake.
    pub(super) fn new(version: &'static SupportedProtocolVersion) -> Self {
        let mut provider = rustls::crypto::ring::default_provider();
        // The suites whose keys can be used as they come out.
        provider.cipher_suites.retain(|suite| {
            [
                CipherSuite::TLS13_CHACHA20_POLY1305_SHA256,
                CipherSuite::TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256,
            ]
            .contains(&suite.suite())
        });
        let mut config = client_with(provider, version, None);
        Arc::get_mut(&mut config).unwrap().enable_secret_extraction = true;
        let Pair { client, server, received, .. } = Pair::established(&config, &plain());
        let (encrypter, records) = encrypter(client);
        Self { encrypter, records, server, received, sent_bytes: 0 }
    }

    pub(super) fn record(&mut self, typ: ContentType, payload: &[u8]) -> Vec<u8> {
        let message =
            OutboundPlainMessage { typ, version: ProtocolVersion::TLSv1_2, payload: payload.into() };
        let record = self.encrypter.encrypt(message, self.records).unwrap();
        self.records += 1;
        record.encode()
    }

    pub(super) fn send(&mut self, typ: ContentType, payload: &[u8]) -> Result<(), Fault> {
        let record = self.record(typ, payload);
        self.give(&record)
    }

    pub(super) fn give(&mut self, bytes: &[u8]) -> Result<(), Fault> {
        let mut output = Vec::new();
        let outcome = self.server.receive(bytes, &mut self.received, &mut output);
        self.sent_bytes += output.len();
        outcome
    }

    /// Sends the same record again and again: how many were taken, and why no more.
    pub(super) fn flood(&mut self, typ: ContentType, payload: &[u8]) -> (usize, Fault) {
        for taken in 0..10_000 {
            if let Err(fault) = self.send(typ, payload) {
                return (taken, fault);
            }
        }
        panic!("there is no end");
    }
}

/// The client's keys, and how many records it has sent under them.
fn encrypter(client: ClientConnection) -> (Box<dyn MessageEncrypter>, u64) {
    let suite = client.negotiated_cipher_suite().unwrap();
    let (records, secrets) = client.dangerous_extract_secrets().unwrap().tx;
    let ConnectionTrafficSecrets::Chacha20Poly1305 { key, iv } = secrets else {
        panic!("only ChaCha20 was offered")
    };
    let encrypter = match suite {
        SupportedCipherSuite::Tls12(suite) => suite.aead_alg.encrypter(key, iv.as_ref(), &[]),
        SupportedCipherSuite::Tls13(suite) => suite.aead_alg.encrypter(key, iv),
    };
    (encrypter, records)
}
