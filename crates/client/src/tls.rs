//! TLS to the server: which authorities to trust, who we are, and the session over a non-blocking socket.

use std::io::{self, Read, Write};
use std::sync::Arc;

use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore};
use tokio::net::TcpStream;

use crate::error::Alert;

/// How to speak TLS 1.3 to the server.
#[derive(Debug, Clone)]
pub struct Tls {
    config: Arc<ClientConfig>,
    server_name: Option<ServerName<'static>>,
}

/// A certificate of the client's own, for servers that ask for one.
#[derive(Clone, Copy)]
pub struct Identity<'a> {
    /// The certificate, then the intermediate ones, in PEM.
    pub certificates_pem: &'a [u8],
    /// Its private key, in PEM: PKCS #8, PKCS #1 or SEC 1.
    pub key_pem: &'a [u8],
}

/// What is wrong with certificates, a key, or a name.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// This is no PEM, or not of the kind that is needed.
    #[error("cannot read the {what}: {source}")]
    Pem {
        /// What was to be read.
        what: &'static str,
        /// What the reader met.
        source: pem::Error,
    },
    /// There is no certificate in it.
    #[error("the {0} have no certificate")]
    NoCertificate(&'static str),
    /// The certificates and the key are well formed, and of no use.
    #[error("unusable certificate or key: {0}")]
    Unusable(#[from] rustls::Error),
    /// This is neither a DNS name nor an IP address.
    #[error("invalid server name {0:?}")]
    ServerName(String),
}

impl Tls {
    /// Trusts servers that one of these authorities (PEM) vouches for, and no others.
    ///
    /// # Errors
    ///
    /// Something in the PEM cannot be used.
    pub fn new(roots_pem: &[u8], identity: Option<Identity<'_>>) -> Result<Self, TlsError> {
        let mut roots = RootCertStore::empty();
        for root in certificates("authorities", roots_pem)? {
            roots.add(root)?;
        }
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = ClientConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&rustls::version::TLS13])?
            .with_root_certificates(roots);
        let config = match identity {
            None => builder.with_no_client_auth(),
            Some(Identity { certificates_pem, key_pem }) => {
                let key = PrivateKeyDer::from_pem_slice(key_pem)
                    .map_err(|source| TlsError::Pem { what: "private key", source })?;
                builder.with_client_auth_cert(certificates("client certificates", certificates_pem)?, key)?
            }
        };
        Ok(Self { config: Arc::new(config), server_name: None })
    }

    /// The name that the server's certificate must carry, where it is not the host of the address.
    ///
    /// # Errors
    ///
    /// [`TlsError::ServerName`].
    pub fn with_server_name(mut self, name: &str) -> Result<Self, TlsError> {
        self.server_name = Some(parse_server_name(name)?);
        Ok(self)
    }

    /// A session with the server at `address`, over a connected socket.
    pub(crate) async fn handshake(&self, socket: &TcpStream, address: &str) -> io::Result<Session> {
        let name = match &self.server_name {
            Some(name) => name.clone(),
            None => parse_server_name(host(address))
                .map_err(|error| io::Error::new(io::ErrorKind::InvalidInput, error))?,
        };
        let connection = ClientConnection::new(Arc::clone(&self.config), name).map_err(broken)?;
        let mut session = Session(connection);
        while session.0.is_handshaking() || session.wants_write() {
            if session.wants_write() {
                socket.writable().await?;
                ignore_would_block(session.try_flush(socket))?;
            } else {
                socket.readable().await?;
                ignore_would_block(session.receive(socket))?;
            }
        }
        Ok(session)
    }
}

fn certificates(what: &'static str, pem: &[u8]) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let read: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem).collect();
    let certificates = read.map_err(|source| TlsError::Pem { what, source })?;
    if certificates.is_empty() { Err(TlsError::NoCertificate(what)) } else { Ok(certificates) }
}

fn parse_server_name(name: &str) -> Result<ServerName<'static>, TlsError> {
    ServerName::try_from(name.to_owned()).map_err(|_| TlsError::ServerName(name.to_owned()))
}

/// The host of `host:port`, without the brackets of an IPv6 address.
fn host(address: &str) -> &str {
    let host = address.rsplit_once(':').map_or(address, |(host, _)| host);
    host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host)
}

/// One TLS session. The socket is lent to each call, so that it can be shared.
#[derive(Debug)]
pub(crate) struct Session(ClientConnection);

impl Session {
    pub(crate) fn wants_write(&self) -> bool {
        self.0.wants_write()
    }

    pub(crate) fn try_read(&mut self, socket: &TcpStream, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            match self.0.reader().read(buffer) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => self.receive(socket)?,
                // Without a close_notify. The claim ends either way.
                Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(0),
                outcome => return outcome,
            }
        }
    }

    pub(crate) fn take(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.writer().write(bytes)
    }

    pub(crate) fn try_flush(&mut self, socket: &TcpStream) -> io::Result<()> {
        while self.0.wants_write() {
            self.0.write_tls(&mut Nonblocking(socket))?;
        }
        Ok(())
    }

    fn receive(&mut self, socket: &TcpStream) -> io::Result<()> {
        let bytes = self.0.read_tls(&mut Nonblocking(socket))?;
        if let Err(error) = self.0.process_new_packets() {
            // The alert that tells the server; what became of it changes nothing.
            let _ = self.try_flush(socket);
            return Err(broken(error));
        }
        if bytes == 0 && self.0.is_handshaking() {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        Ok(())
    }
}

/// The server's alert, if that is what an error of a session is.
pub(crate) fn alert(error: &io::Error) -> Option<Alert> {
    match error.get_ref()?.downcast_ref()? {
        rustls::Error::AlertReceived(description) => Some(Alert((*description).into())),
        _ => None,
    }
}

fn broken(error: rustls::Error) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, error)
}

fn ignore_would_block(outcome: io::Result<()>) -> io::Result<()> {
    match outcome {
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(()),
        outcome => outcome,
    }
}

/// The socket as rustls wants it.
struct Nonblocking<'a>(&'a TcpStream);

impl Read for Nonblocking<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.0.try_read(buffer)
    }
}

impl Write for Nonblocking<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.try_write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_host_of_an_address_is_what_the_certificate_must_name() {
        assert_eq!(host("lock.example:7070"), "lock.example");
        assert_eq!(host("127.0.0.1:1"), "127.0.0.1");
        assert_eq!(host("[::1]:7070"), "::1");
    }

    #[test]
    fn what_is_no_certificate_key_or_name_is_refused() {
        assert!(matches!(Tls::new(b"", None), Err(TlsError::NoCertificate("authorities"))));
        let torn = b"-----BEGIN CERTIFICATE-----\nAAAA\n";
        assert!(matches!(Tls::new(torn, None), Err(TlsError::Pem { what: "authorities", .. })));
        assert!(matches!(parse_server_name("no name"), Err(TlsError::ServerName(_))));
    }
}
