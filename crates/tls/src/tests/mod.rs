//! What needs a look inside of a session or of a configuration, against rustls's own client, in memory. All
//! else is in `tests/` of the crate.

mod kept;
mod keys;
mod tickets;

use std::sync::{Arc, LazyLock};

use rustls::{ClientConfig, SupportedProtocolVersion};
use testkit::certificates::{Certificates, Says};
use testkit::tls::Served;

use crate::{Certificate, ClientCa, Config, Fault, Session};

type Pair = testkit::tls::Pair<Session>;

/// `ca`; the server `server`; the client `client`.
static FILES: LazyLock<Certificates> = LazyLock::new(|| {
    let files = Certificates::new();
    files.issue("server", Says::default());
    files.issue("client", Says { extensions: "subjectAltName=URI:spiffe://test/client", ..Says::default() });
    files
});

fn certificate(name: &str) -> Certificate {
    Certificate::load(&FILES.path(&format!("{name}.pem")), &FILES.path(&format!("{name}.key"))).unwrap()
}

fn authorities() -> ClientCa {
    ClientCa::load(&FILES.path("ca.pem")).unwrap()
}

fn client(version: &'static SupportedProtocolVersion, name: Option<&str>) -> Arc<ClientConfig> {
    testkit::tls::client(&FILES, version, name)
}

impl Served for Session {
    type Offer = Config;
    type Fault = Fault;

    fn new(offer: &Config) -> Self {
        Session::new(offer)
    }

    fn receive(&mut self, bytes: &[u8], plaintext: &mut Vec<u8>, output: &mut Vec<u8>) -> Result<(), Fault> {
        Session::receive(self, bytes, plaintext, output)
    }

    fn send(&mut self, plaintext: &[u8], output: &mut Vec<u8>) {
        Session::send(self, plaintext, output);
    }

    fn is_handshaking(&self) -> bool {
        Session::is_handshaking(self)
    }
}
