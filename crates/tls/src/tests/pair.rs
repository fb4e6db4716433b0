//! A client of rustls and our session, with nothing but buffers between them.

use std::io::{Read, Write};
use std::sync::{Arc, LazyLock};

use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::sign::{CertifiedKey, SingleCertAndKey};
use rustls::{ClientConfig, ClientConnection, RootCertStore, SupportedProtocolVersion};

use crate::{Certificate, ClientCa, Config, Fault, Session};
use testkit::certificates::{Certificates, Key, Says};

pub(super) const VERSIONS: [&SupportedProtocolVersion; 2] =
    [&rustls::version::TLS12, &rustls::version::TLS13];

/// `ca`, `other-ca`; servers `server`, `server-ed25519`, `server-rsa2048`; the client `client`.
pub(super) static FILES: LazyLock<Certificates> = LazyLock::new(|| {
    let files = Certificates::new();
    files.authority("other-ca");
    files.issue("server", Says::default());
    files.issue("server-ed25519", Says { key: Key::Ed25519, ..Says::default() });
    files.issue("server-rsa2048", Says { key: Key::Rsa(2048), ..Says::default() });
    files.issue("client", Says { extensions: "subjectAltName=URI:spiffe://test/client", ..Says::default() });
    files
});

pub(super) fn certificate(name: &str) -> Certificate {
    Certificate::load(&FILES.path(&format!("{name}.pem")), &FILES.path(&format!("{name}.key"))).unwrap()
}

pub(super) fn authorities() -> ClientCa {
    ClientCa::load(&FILES.path("ca.pem")).unwrap()
}

/// TLS, and mutual TLS.
pub(super) fn plain() -> Config {
    Config::new(&certificate("server"), None).unwrap()
}

pub(super) fn mutual() -> Config {
    Config::new(&certificate("server"), Some(&authorities())).unwrap()
}

/// A client that trusts `ca` and shows the certificate with this name.
pub(super) fn client(version: &'static SupportedProtocolVersion, name: Option<&str>) -> Arc<ClientConfig> {
    client_with(rustls::crypto::ring::default_provider(), version, name)
}

/// The same with a chosen provider.
pub(super) fn client_with(
    provider: CryptoProvider,
    version: &'static SupportedProtocolVersion,
    name: Option<&str>,
) -> Arc<ClientConfig> {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_file(FILES.path("ca.pem")).unwrap()).unwrap();
    let builder = ClientConfig::builder_with_provider(Arc::new(provider))
        .with_protocol_versions(&[version])
        .unwrap()
        .with_root_certificates(roots);
    Arc::new(match name {
        None => builder.with_no_client_auth(),
        Some(name) => {
            let chain = CertificateDer::pem_file_iter(FILES.path(&format!("{name}.pem"))).unwrap();
            let key = PrivateKeyDer::from_pem_file(FILES.path(&format!("{name}.key"))).unwrap();
            let key = rustls::crypto::ring::sign::any_supported_type(&key).unwrap();
            // Not the checked way: some of these certificates are wrong.
            let key = CertifiedKey::new(chain.map(Result::unwrap).collect(), key);
            builder.with_client_cert_resolver(Arc::new(SingleCertAndKey::from(key)))
        }
    })
}

pub(super) struct Pair {
    pub(super) client: ClientConnection,
    pub(super) server: Session,
    /// What the server received.
    pub(super) received: Vec<u8>,
    /// What the client received.
    pub(super) heard: Vec<u8>,
}

impl Pair {
    pub(super) fn new(client: &Arc<ClientConfig>, server: &Config) -> Self {
        let name = "localhost".try_into().unwrap();
        let client = ClientConnection::new(Arc::clone(client), name).unwrap();
        Self { client, server: Session::new(server), received: Vec::new(), heard: Vec::new() }
    }

    /// A pair whose handshake is over.
    pub(super) fn established(client: &Arc<ClientConfig>, server: &Config) -> Self {
        let mut pair = Self::new(client, server);
        pair.exchange().unwrap();
        assert!(!pair.server.is_handshaking() && !pair.client.is_handshaking());
        pair
    }

    /// Carries bytes to and fro until nobody has more to say. A fault of the server's reaches the client as
    /// far as it can.
    pub(super) fn exchange(&mut self) -> Result<(), Fault> {
        loop {
            let outgoing = self.outgoing();
            if outgoing.is_empty() {
                return Ok(());
            }
            self.give(&outgoing)?;
        }
    }

    /// What the client wants to send.
    pub(super) fn outgoing(&mut self) -> Vec<u8> {
        let mut bytes = Vec::new();
        while self.client.wants_write() {
            self.client.write_tls(&mut bytes).unwrap();
        }
        bytes
    }

    /// Gives bytes to the server, and its answer to the client.
    pub(super) fn give(&mut self, bytes: &[u8]) -> Result<(), Fault> {
        let mut output = Vec::new();
        let outcome = self.server.receive(bytes, &mut self.received, &mut output);
        self.answer(&output);
        outcome
    }

    /// Gives bytes to the client.
    pub(super) fn answer(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() && self.client.read_tls(&mut bytes).unwrap() > 0 {
            // What is wrong shows in the client's state.
            let _ = self.client.process_new_packets();
            // A would-block error at the end of what is there.
            let _ = self.client.reader().read_to_end(&mut self.heard);
        }
    }

    /// Sends data to the server.
    pub(super) fn say(&mut self, data: &[u8]) {
        self.client.writer().write_all(data).unwrap();
        self.exchange().unwrap();
    }

    /// Sends data to the client, and returns what arrived.
    pub(super) fn reply(&mut self, data: &[u8]) -> Vec<u8> {
        let mut output = Vec::new();
        self.server.send(data, &mut output);
        self.answer(&output);
        std::mem::take(&mut self.heard)
    }

    /// Why the client gave up.
    pub(super) fn client_error(&mut self) -> rustls::Error {
        self.client.process_new_packets().expect_err("the client has heard of it")
    }
}
