//! TLS to a server of this run: certificates that live as long as it, and the client's side of a connection.

use std::fs;
use std::io::{self, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, Result};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair};
use rustls::client::Resumption;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};
use tempfile::TempDir;

const AUTHORITY: &str = "ca.pem";

/// A connection to the server after its handshake.
pub(crate) type TlsStream = StreamOwned<ClientConnection, TcpStream>;

/// ECDSA P-256 certificates of a server and of a client, in files; gone with this.
pub(crate) struct Certificates {
    directory: TempDir,
    mutual: bool,
}

impl Certificates {
    /// Makes them; with `mutual` the server asks clients for theirs.
    pub(crate) fn make(mutual: bool) -> Result<Self> {
        let directory = tempfile::tempdir().context("a directory for certificates")?;
        let mut params = named("authority", Vec::new())?;
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let authority = CertifiedIssuer::self_signed(params, KeyPair::generate()?)?;
        fs::write(directory.path().join(AUTHORITY), authority.pem())?;
        for side in ["server", "client"] {
            let key = KeyPair::generate()?;
            let certificate =
                named(side, vec![Ipv4Addr::LOCALHOST.to_string()])?.signed_by(&key, &authority)?;
            fs::write(directory.path().join(format!("{side}.pem")), certificate.pem())?;
            fs::write(directory.path().join(format!("{side}.key")), key.serialize_pem())?;
        }
        Ok(Self { directory, mutual })
    }

    pub(crate) fn directory(&self) -> &Path {
        self.directory.path()
    }

    /// What makes a server use them.
    pub(crate) fn server_flags(&self) -> Vec<String> {
        let file = |name: &str| self.directory().join(name).display().to_string();
        let mut flags =
            vec!["-tls-cert".to_owned(), file("server.pem"), "-tls-key".to_owned(), file("server.key")];
        if self.mutual {
            flags.extend(["-tls-client-ca".to_owned(), file(AUTHORITY)]);
        }
        flags
    }

    /// The client's side of them.
    pub(crate) fn dialer(&self) -> Result<Dialer> {
        Dialer::from_files(self.directory(), self.mutual)
    }
}

/// A certificate's contents. Verifiers tell a certificate from its authority's by the name.
fn named(name: &str, addresses: Vec<String>) -> Result<CertificateParams> {
    let mut params = CertificateParams::new(addresses)?;
    params.distinguished_name.push(DnType::CommonName, name);
    Ok(params)
}

/// Turns connections into TLS connections. Each takes a full handshake: nothing is resumed.
#[derive(Clone)]
pub(crate) struct Dialer {
    config: Arc<ClientConfig>,
    server_name: ServerName<'static>,
}

impl Dialer {
    /// From the files of [`Certificates`].
    pub(crate) fn from_files(directory: &Path, mutual: bool) -> Result<Self> {
        let file = |name: &str| -> PathBuf { directory.join(name) };
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from_pem_file(file(AUTHORITY)).context("the authority")?)?;
        let builder = ClientConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
            .with_protocol_versions(&[&rustls::version::TLS13])?
            .with_root_certificates(roots);
        let mut config = if mutual {
            let certificate = CertificateDer::from_pem_file(file("client.pem")).context("the certificate")?;
            let key = PrivateKeyDer::from_pem_file(file("client.key")).context("the key")?;
            builder.with_client_auth_cert(vec![certificate], key)?
        } else {
            builder.with_no_client_auth()
        };
        config.resumption = Resumption::disabled();
        let server_name = ServerName::IpAddress(Ipv4Addr::LOCALHOST.into());
        Ok(Self { config: Arc::new(config), server_name })
    }

    /// The handshake on a blocking socket, whose timeouts bound each of its reads and writes.
    pub(crate) fn handshake(&self, mut socket: TcpStream) -> io::Result<TlsStream> {
        let mut session = self.session()?;
        while session.is_handshaking() {
            session.complete_io(&mut socket)?;
        }
        Ok(StreamOwned::new(session, socket))
    }

    /// The first half of what a client says first.
    pub(crate) fn half_a_hello(&self) -> io::Result<Vec<u8>> {
        let mut hello = Vec::new();
        self.session()?.write_tls(&mut hello)?;
        hello.truncate(hello.len() / 2);
        Ok(hello)
    }

    fn session(&self) -> io::Result<ClientConnection> {
        let session = ClientConnection::new(Arc::clone(&self.config), self.server_name.clone());
        session.map_err(io::Error::other)
    }
}

/// Says goodbye as TLS wants it; the socket closes when the stream is dropped.
pub(crate) fn close(mut stream: TlsStream) -> io::Result<()> {
    stream.conn.send_close_notify();
    stream.flush()
}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::net::TcpListener;
    use std::thread;

    use protocol::{ACQUIRED_BYTES, Acquire, HEARTBEAT, Lease, LockName, Token, WAITING, acquired};
    use rustls::server::WebPkiClientVerifier;
    use rustls::{ServerConfig, ServerConnection};

    use super::*;
    use crate::load::Fleet;

    /// A server that asks for a client's certificate.
    fn config(certificates: &Certificates) -> Arc<ServerConfig> {
        let file = |name: &str| certificates.directory().join(name);
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from_pem_file(file(AUTHORITY)).unwrap()).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let verifier = WebPkiClientVerifier::builder_with_provider(roots.into(), Arc::clone(&provider));
        let builder = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_client_cert_verifier(verifier.build().unwrap());
        let chain = vec![CertificateDer::from_pem_file(file("server.pem")).unwrap()];
        let key = PrivateKeyDer::from_pem_file(file("server.key")).unwrap();
        Arc::new(builder.with_single_cert(chain, key).unwrap())
    }

    #[test]
    fn a_fleet_over_mutual_tls_takes_answers_that_come_in_several_records_at_once() {
        let certificates = Certificates::make(true).unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let name = || LockName::new("lock").unwrap();
        let lease = Lease::from_ms(10_000).unwrap();
        let acquire_bytes = Acquire { name: name(), lease }.encode().len();
        let session = ServerConnection::new(config(&certificates)).unwrap();
        let server = thread::spawn(move || {
            let mut stream = StreamOwned::new(session, listener.accept().unwrap().0);
            stream.read_exact(&mut vec![0; acquire_bytes]).unwrap();
            // Each write is a record; the socket takes all three at once.
            for frame in [&WAITING[..], &acquired(Token(7))] {
                stream.conn.writer().write_all(frame).unwrap();
            }
            stream.flush().unwrap();
            stream.read_exact(&mut [0; HEARTBEAT.len()]).unwrap();
            stream.write_all(&[0x12; 1]).unwrap();
            stream.write_all(&acquired(Token(7))[1..ACQUIRED_BYTES]).unwrap();
            stream.read_to_end(&mut Vec::new()).unwrap_or_default()
        });
        let mut fleet = Fleet::over(address, Some(certificates.dialer().unwrap())).unwrap();
        fleet.join_all(1, lease, |_| name()).unwrap();
        fleet.beat_all().unwrap();
        drop(fleet);
        server.join().unwrap();
    }

    #[test]
    fn half_a_hello_leaves_a_server_waiting_for_the_rest() {
        let certificates = Certificates::make(true).unwrap();
        let hello = certificates.dialer().unwrap().half_a_hello().unwrap();
        let mut server = ServerConnection::new(config(&certificates)).unwrap();
        server.read_tls(&mut &hello[..]).unwrap();
        server.process_new_packets().unwrap();
        assert!(server.wants_read() && !server.wants_write());
    }
}
