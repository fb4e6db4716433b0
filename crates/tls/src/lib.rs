//! The server's side of TLS, without sockets: certificates from files, what the server offers, and the
//! session of one connection.
//!
//! Bytes come in and go out through plain buffers, so intake and shards decide how they are carried. It
//! decides whether a certificate is taken ([`Certificate`], [`ClientCa`]), who a client is, and when a
//! session is over and whose fault that is ([`Fault`]). It knows no flag, no socket and no lock, and keeps
//! nothing of a client beyond one record.
//!
//! ```
//! # let folder = std::env::temp_dir().join(format!("tls-example-{}", std::process::id()));
//! # std::fs::create_dir_all(&folder)?;
//! # let pair = rcgen::generate_simple_self_signed(["localhost".to_owned()])?;
//! # let (cert, key) = (folder.join("server.pem"), folder.join("server.key"));
//! # std::fs::write(&cert, pair.cert.pem())?;
//! # std::fs::write(&key, pair.signing_key.serialize_pem())?;
//! let certificate = tls::Certificate::load(&cert, &key)?;
//! let config = tls::Config::new(&certificate, None)?;
//! let mut session = tls::Session::new(&config);
//!
//! let (mut plaintext, mut output) = (Vec::new(), Vec::new());
//! let fault = session.receive(b"GET / HTTP/1.1\r\n", &mut plaintext, &mut output).unwrap_err();
//! assert!(matches!(fault, tls::Fault::NoTls), "{fault}");
//! # std::fs::remove_dir_all(folder)?;
//! # Ok::<_, Box<dyn std::error::Error>>(())
//! ```
#![forbid(unsafe_code)]

mod fault;
mod files;
mod identity;
mod mutual;
mod session;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use rustls::RootCertStore;
use rustls::ServerConfig;
use rustls::crypto::CryptoProvider;
use rustls::crypto::ring::Ticketer;
use rustls::server::danger::ClientCertVerifier;
use rustls::server::{NoClientAuth, NoServerSessionStorage, WebPkiClientVerifier};
use rustls::sign::SingleCertAndKey;
use rustls::time_provider::{DefaultTimeProvider, TimeProvider};

pub use fault::Fault;
pub use files::{Certificate, ClientCa, FileError, FileOf};
pub use mutual::Mutual;
pub use session::Session;

/// TLS 1.3 tickets sent after a handshake. A client of a lock server has one connection at a time, and each
/// answer to a ticket brings a new one.
const TICKETS: usize = 1;

/// The names of authorities that a client is told, so that one with several certificates can choose. With
/// longer ones it is told none: TLS has room for 64 KB, and every connection would be sent them before it is
/// known whose it is. The 150 authorities that systems trust take 15 KB.
const AUTHORITY_NAMES_BYTES_MAX: usize = 1 << 14;

/// What the server offers to new connections: its certificate, and whom it asks for one. Cheap to clone.
///
/// Each has ticket keys of its own: what was agreed under one is not resumed under another.
#[derive(Debug, Clone)]
pub struct Config(Arc<Offer>);

#[derive(Debug)]
struct Offer {
    server: Arc<ServerConfig>,
    /// `None` where clients need no certificate.
    clients: Option<Clients>,
}

/// Whom to let in.
#[derive(Debug)]
struct Clients {
    roots: Arc<RootCertStore>,
    /// Looks at the certificates of clients.
    verifier: Arc<dyn ClientCertVerifier>,
}

/// The system gave no random bytes for the keys of tickets.
#[derive(Debug, thiserror::Error)]
#[error("cannot set up TLS: {}", pki::words::error(.0))]
pub struct SetupError(#[from] rustls::Error);

impl Config {
    /// TLS 1.2 and 1.3 with this certificate. With authorities, a client must show a certificate that one of
    /// them vouches for.
    pub fn new(certificate: &Certificate, authorities: Option<&ClientCa>) -> Result<Self, SetupError> {
        let provider = rustls::crypto::ring::default_provider();
        Self::with(certificate, authorities, provider, Arc::new(DefaultTimeProvider))
    }

    fn with(
        certificate: &Certificate,
        authorities: Option<&ClientCa>,
        provider: CryptoProvider,
        clock: Arc<dyn TimeProvider>,
    ) -> Result<Self, SetupError> {
        let provider = Arc::new(provider);
        let clients = authorities.map(|authorities| {
            let roots = authorities.roots();
            Clients { verifier: verifier(Arc::clone(&roots), &provider), roots }
        });
        let offered = match &clients {
            Some(clients) => Arc::clone(&clients.verifier),
            None => Arc::new(NoClientAuth),
        };
        let mut server = ServerConfig::builder_with_details(provider, clock)
            .with_protocol_versions(&[&rustls::version::TLS13, &rustls::version::TLS12])?
            .with_client_cert_verifier(offered)
            .with_cert_resolver(Arc::new(SingleCertAndKey::from(certificate.key())));
        server.ticketer = Ticketer::new()?;
        server.session_storage = Arc::new(NoServerSessionStorage {});
        server.send_tls13_tickets = TICKETS;
        Ok(Self(Arc::new(Offer { server: Arc::new(server), clients })))
    }
}

fn verifier(roots: Arc<RootCertStore>, provider: &Arc<CryptoProvider>) -> Arc<dyn ClientCertVerifier> {
    let names_bytes: usize = roots.subjects().iter().map(|name| name.as_ref().len()).sum();
    let mut builder = WebPkiClientVerifier::builder_with_provider(roots, Arc::clone(provider));
    if names_bytes > AUTHORITY_NAMES_BYTES_MAX {
        builder = builder.clear_root_hint_subjects();
    }
    builder.build().expect("there is an authority, and no revocation list that could be wrong")
}
