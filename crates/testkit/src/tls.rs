//! Clients of TLS, with nothing but buffers between them and the server's side of a session.

use std::fmt::Debug;
use std::io::{Read, Write};
use std::mem;
use std::sync::Arc;

use rustls::crypto::CryptoProvider;
use rustls::crypto::cipher::{MessageEncrypter, OutboundPlainMessage};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::sign::{CertifiedKey, SingleCertAndKey};
use rustls::{
    CipherSuite, ClientConfig, ClientConnection, ConnectionTrafficSecrets, ContentType, ProtocolVersion,
    RootCertStore, SupportedCipherSuite, SupportedProtocolVersion,
};

use crate::certificates::Certificates;

/// All versions that a server speaks.
pub const VERSIONS: [&SupportedProtocolVersion; 2] = [&rustls::version::TLS12, &rustls::version::TLS13];

/// The server's side of a session, which is what is tested.
pub trait Served {
    /// What a server offers.
    type Offer;

    /// Why a session ends.
    type Fault: Debug;

    /// A session whose client has not said anything.
    fn new(offer: &Self::Offer) -> Self;

    /// Takes bytes from the client: what they say, and what is to be sent for them.
    ///
    /// # Errors
    ///
    /// The session is over.
    fn receive(
        &mut self,
        bytes: &[u8],
        plaintext: &mut Vec<u8>,
        output: &mut Vec<u8>,
    ) -> Result<(), Self::Fault>;

    /// Sends data to the client.
    fn send(&mut self, plaintext: &[u8], output: &mut Vec<u8>);

    /// Whether the handshake goes on.
    fn is_handshaking(&self) -> bool;
}

/// A client that trusts `ca` of these files and shows the certificate with this name.
pub fn client(
    files: &Certificates,
    version: &'static SupportedProtocolVersion,
    name: Option<&str>,
) -> Arc<ClientConfig> {
    client_with(files, rustls::crypto::ring::default_provider(), version, name)
}

fn client_with(
    files: &Certificates,
    provider: CryptoProvider,
    version: &'static SupportedProtocolVersion,
    name: Option<&str>,
) -> Arc<ClientConfig> {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_file(files.path("ca.pem")).unwrap()).unwrap();
    let builder = ClientConfig::builder_with_provider(Arc::new(provider))
        .with_protocol_versions(&[version])
        .unwrap()
        .with_root_certificates(roots);
    Arc::new(match name {
        None => builder.with_no_client_auth(),
        Some(name) => {
            let chain = CertificateDer::pem_file_iter(files.path(&format!("{name}.pem"))).unwrap();
            let key = PrivateKeyDer::from_pem_file(files.path(&format!("{name}.key"))).unwrap();
            let key = rustls::crypto::ring::sign::any_supported_type(&key).unwrap();
            // Not the checked way: some of these certificates are wrong.
            let key = CertifiedKey::new(chain.map(Result::unwrap).collect(), key);
            builder.with_client_cert_resolver(Arc::new(SingleCertAndKey::from(key)))
        }
    })
}

/// A client of rustls and a server's session.
#[derive(Debug)]
pub struct Pair<S> {
    /// The client.
    pub client: ClientConnection,
    /// The session.
    pub server: S,
    /// What the server received.
    pub received: Vec<u8>,
    /// What the client received.
    pub heard: Vec<u8>,
}

impl<S: Served> Pair<S> {
    /// Nobody has said anything yet.
    pub fn new(client: &Arc<ClientConfig>, offer: &S::Offer) -> Self {
        let name = "localhost".try_into().unwrap();
        let client = ClientConnection::new(Arc::clone(client), name).unwrap();
        Self { client, server: S::new(offer), received: Vec::new(), heard: Vec::new() }
    }

    /// A pair whose handshake is over.
    pub fn established(client: &Arc<ClientConfig>, offer: &S::Offer) -> Self {
        let mut pair = Self::new(client, offer);
        pair.exchange().unwrap();
        assert!(!pair.server.is_handshaking() && !pair.client.is_handshaking());
        pair
    }

    /// Carries bytes to and fro until nobody has more to say. A fault of the server's reaches the client as
    /// far as it can.
    pub fn exchange(&mut self) -> Result<(), S::Fault> {
        loop {
            let outgoing = self.outgoing();
            if outgoing.is_empty() {
                return Ok(());
            }
            self.give(&outgoing)?;
        }
    }

    /// What the client wants to send.
    pub fn outgoing(&mut self) -> Vec<u8> {
        let mut bytes = Vec::new();
        while self.client.wants_write() {
            self.client.write_tls(&mut bytes).unwrap();
        }
        bytes
    }

    /// Gives bytes to the server, and its answer to the client.
    pub fn give(&mut self, bytes: &[u8]) -> Result<(), S::Fault> {
        let mut output = Vec::new();
        let outcome = self.server.receive(bytes, &mut self.received, &mut output);
        self.answer(&output);
        outcome
    }

    /// Gives bytes to the client.
    pub fn answer(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() && self.client.read_tls(&mut bytes).unwrap() > 0 {
            // What is wrong shows in the client's state.
            let _ = self.client.process_new_packets();
            // A would-block error at the end of what is there.
            let _ = self.client.reader().read_to_end(&mut self.heard);
        }
    }

    /// Sends data to the server.
    pub fn say(&mut self, data: &[u8]) {
        self.client.writer().write_all(data).unwrap();
        self.exchange().unwrap();
    }

    /// Sends data to the client, and returns what arrived.
    pub fn reply(&mut self, data: &[u8]) -> Vec<u8> {
        let mut output = Vec::new();
        self.server.send(data, &mut output);
        self.answer(&output);
        mem::take(&mut self.heard)
    }

    /// Why the client gave up.
    pub fn client_error(&mut self) -> rustls::Error {
        self.client.process_new_packets().expect_err("the client has heard of it")
    }
}

/// A client that sends any record under the keys of an established session.
pub struct Forger<S> {
    encrypter: Box<dyn MessageEncrypter>,
    records: u64,
    /// The session.
    pub server: S,
    /// What the server received.
    pub received: Vec<u8>,
    /// How many bytes the server sent.
    pub sent_bytes: usize,
}

impl<S: Served> Forger<S> {
    /// Takes the place of a client after its handshake.
    pub fn new(files: &Certificates, version: &'static SupportedProtocolVersion, offer: &S::Offer) -> Self {
        let mut provider = rustls::crypto::ring::default_provider();
        // The suites whose keys can be used as they come out.
        provider.cipher_suites.retain(|suite| {
            [
                CipherSuite::TLS13_CHACHA20_POLY1305_SHA256,
                CipherSuite::TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256,
            ]
            .contains(&suite.suite())
        });
        let mut config = client_with(files, provider, version, None);
        Arc::get_mut(&mut config).unwrap().enable_secret_extraction = true;
        let Pair { client, server, received, .. } = Pair::<S>::established(&config, offer);
        let (encrypter, records) = encrypter(client);
        Self { encrypter, records, server, received, sent_bytes: 0 }
    }

    /// The next record, sealed.
    pub fn record(&mut self, typ: ContentType, payload: &[u8]) -> Vec<u8> {
        let message =
            OutboundPlainMessage { typ, version: ProtocolVersion::TLSv1_2, payload: payload.into() };
        let record = self.encrypter.encrypt(message, self.records).unwrap();
        self.records += 1;
        record.encode()
    }

    /// Sends a record.
    pub fn send(&mut self, typ: ContentType, payload: &[u8]) -> Result<(), S::Fault> {
        let record = self.record(typ, payload);
        self.give(&record)
    }

    /// Gives bytes to the server.
    pub fn give(&mut self, bytes: &[u8]) -> Result<(), S::Fault> {
        let mut output = Vec::new();
        let outcome = self.server.receive(bytes, &mut self.received, &mut output);
        self.sent_bytes += output.len();
        outcome
    }

    /// Sends the same record again and again: how many were taken, and why no more.
    pub fn flood(&mut self, typ: ContentType, payload: &[u8]) -> (usize, S::Fault) {
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
