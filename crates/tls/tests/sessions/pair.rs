//! Our session as the server of the test kit's clients.

use std::ops::{Deref, DerefMut};
use std::sync::{Arc, LazyLock};

use rustls::{ClientConfig, SupportedProtocolVersion};
use testkit::certificates::{Certificates, Key, Says};
use testkit::tls::Served;
use tls::{Certificate, ClientCa, Config, Fault, Session};

pub(crate) type Pair = testkit::tls::Pair<Server>;

pub(crate) type Forger = testkit::tls::Forger<Server>;

pub(crate) use testkit::tls::VERSIONS;

/// `ca`, `other-ca`; servers `server`, `server-ed25519`, `server-rsa2048`; the client `client`.
pub(crate) static FILES: LazyLock<Certificates> = LazyLock::new(|| {
    let files = Certificates::new();
    files.authority("other-ca");
    files.issue("server", Says::default());
    files.issue("server-ed25519", Says { key: Key::Ed25519, ..Says::default() });
    files.issue("server-rsa2048", Says { key: Key::Rsa(2048), ..Says::default() });
    files.issue("client", Says { extensions: "subjectAltName=URI:spiffe://test/client", ..Says::default() });
    files
});

pub(crate) fn certificate(name: &str) -> Certificate {
    Certificate::load(&FILES.path(&format!("{name}.pem")), &FILES.path(&format!("{name}.key"))).unwrap()
}

pub(crate) fn authorities() -> ClientCa {
    ClientCa::load(&FILES.path("ca.pem")).unwrap()
}

/// TLS, and mutual TLS.
pub(crate) fn plain() -> Config {
    Config::new(&certificate("server"), None).unwrap()
}

pub(crate) fn mutual() -> Config {
    Config::new(&certificate("server"), Some(&authorities())).unwrap()
}

/// A client that trusts `ca` and shows the certificate with this name.
pub(crate) fn client(version: &'static SupportedProtocolVersion, name: Option<&str>) -> Arc<ClientConfig> {
    testkit::tls::client(&FILES, version, name)
}

/// A forger of records to a server without authorities.
pub(crate) fn forger(version: &'static SupportedProtocolVersion) -> Forger {
    Forger::new(&FILES, version, &plain())
}

/// A session.
#[derive(Debug)]
pub(crate) struct Server(Session);

impl Deref for Server {
    type Target = Session;

    fn deref(&self) -> &Session {
        &self.0
    }
}

impl DerefMut for Server {
    fn deref_mut(&mut self) -> &mut Session {
        &mut self.0
    }
}

impl Served for Server {
    type Offer = Config;
    type Fault = Fault;

    fn new(offer: &Config) -> Self {
        Self(Session::new(offer))
    }

    fn receive(&mut self, bytes: &[u8], plaintext: &mut Vec<u8>, output: &mut Vec<u8>) -> Result<(), Fault> {
        self.0.receive(bytes, plaintext, output)
    }

    fn send(&mut self, plaintext: &[u8], output: &mut Vec<u8>) {
        self.0.send(plaintext, output);
    }

    fn is_handshaking(&self) -> bool {
        self.0.is_handshaking()
    }
}
