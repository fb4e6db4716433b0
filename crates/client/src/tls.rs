//! TLS to the server: which authorities to trust, who we are, and the session over a non-blocking socket.

use std::io::{self, Read, Write};
use std::sync::Arc;

use pki::{Leaf, Mismatch, Problem, Side, words};
use rustls::pki_types::ServerName;
use rustls::sign::{CertifiedKey, SingleCertAndKey};
use rustls::{CertificateError, ClientConfig, ClientConnection};
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

impl Identity<'_> {
    fn read(&self) -> Result<Arc<CertifiedKey>, TlsError> {
        let chain = pki::certificates(self.certificates_pem).map_err(TlsError::Certificates)?;
        let key = pki::private_key(self.key_pem).map_err(TlsError::Key)?;
        let key = pki::signing_key(chain, key)?;
        let leaf = Leaf::parse(&key.cert[0]).expect("it was parsed when it was read");
        match leaf.lasting_doubt(Side::Client) {
            Some(doubt) => Err(TlsError::Certificates(Problem::Certificate(doubt.to_string()))),
            None => Ok(key),
        }
    }
}

/// What is wrong with certificates, a key, or a name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TlsError {
    /// The authorities cannot be used.
    #[error("the authorities: {0}")]
    Authorities(Problem),
    /// The client's certificates cannot be used, or no server accepts them.
    #[error("the client's certificates: {0}")]
    Certificates(Problem),
    /// The client's private key cannot be used.
    #[error("the client's private key: {0}")]
    Key(Problem),
    /// The private key belongs to no certificate of the client's.
    #[error("the client's private key does not belong to its certificate")]
    Mismatch,
    /// The private key belongs to another certificate of the chain: the one with this number, from 1.
    #[error(
        "the client's private key belongs to its certificate number {0}: the client's own must be the first"
    )]
    Order(usize),
    /// This is neither a DNS name nor an IP address.
    #[error("invalid server name {0:?}: it must be a DNS name or an IP address")]
    ServerName(String),
}

impl From<Mismatch> for TlsError {
    fn from(mismatch: Mismatch) -> Self {
        match mismatch {
            Mismatch::Certificates(problem) => Self::Certificates(problem),
            Mismatch::Key(problem) => Self::Key(problem),
            Mismatch::Keys => Self::Mismatch,
            Mismatch::Order(number) => Self::Order(number),
        }
    }
}

impl Tls {
    /// Trusts servers that one of these authorities (PEM) vouches for, and no others.
    ///
    /// # Errors
    ///
    /// Something in the PEM cannot be used, or no server would accept the client's own certificate.
    pub fn new(roots_pem: &[u8], identity: Option<Identity<'_>>) -> Result<Self, TlsError> {
        let roots = pki::authorities(roots_pem).map_err(TlsError::Authorities)?;
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = ClientConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&rustls::version::TLS13])
            .expect("the provider has cipher suites of TLS 1.3")
            .with_root_certificates(roots);
        let config = match identity {
            None => builder.with_no_client_auth(),
            Some(identity) => {
                let key = identity.read()?;
                builder.with_client_cert_resolver(Arc::new(SingleCertAndKey::from(key)))
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
        let connection = ClientConnection::new(Arc::clone(&self.config), name);
        let mut session = Session(connection.map_err(|error| broken(Fault::Session(error)))?);
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
            let is_first = self.0.protocol_version().is_none();
            return Err(broken(if is_first && words::is_no_tls(&error) {
                Fault::NoTls
            } else {
                Fault::Session(error)
            }));
        }
        if bytes == 0 && self.0.is_handshaking() {
            return Err(broken(Fault::Closed));
        }
        Ok(())
    }
}

/// The server's alert, if that is what an error of a session is.
pub(crate) fn alert(error: &io::Error) -> Option<Alert> {
    match error.get_ref()?.downcast_ref()? {
        Fault::Session(rustls::Error::AlertReceived(description)) => Some(Alert((*description).into())),
        _ => None,
    }
}

/// Why a session ends, or never begins.
#[derive(Debug, thiserror::Error)]
enum Fault {
    #[error("the server does not speak TLS: leave --tls-ca out, or mind the port")]
    NoTls,
    #[error("the server closed the connection during the TLS handshake")]
    Closed,
    #[error("{}", told(.0))]
    Session(rustls::Error),
}

fn told(error: &rustls::Error) -> String {
    use rustls::Error::{AlertReceived, InvalidCertificate};
    let advice = match error {
        AlertReceived(alert) => {
            return format!("the server refused the TLS connection: {}", Alert((*alert).into()));
        }
        InvalidCertificate(CertificateError::UnknownIssuer | CertificateError::BadSignature) => " (--tls-ca)",
        InvalidCertificate(CertificateError::NotValidForNameContext { .. }) => " (--tls-server-name)",
        InvalidCertificate(_) => "",
        error => return format!("TLS with the server failed: {}", words::error(error)),
    };
    format!("the server's certificate is not accepted: {}{advice}", words::error(error))
}

fn broken(fault: Fault) -> io::Error {
    use rustls::Error::{AlertReceived, FailedToGetCurrentTime, FailedToGetRandomBytes};
    let kind = match &fault {
        Fault::Closed => io::ErrorKind::UnexpectedEof,
        Fault::Session(AlertReceived(alert)) if Alert((*alert).into()).is_temporary() => {
            io::ErrorKind::ConnectionAborted
        }
        Fault::Session(FailedToGetCurrentTime | FailedToGetRandomBytes) => io::ErrorKind::Other,
        // Neither side gets better by itself.
        Fault::NoTls | Fault::Session(_) => io::ErrorKind::InvalidData,
    };
    io::Error::new(kind, fault)
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
        let said = |pem: &[u8]| Tls::new(pem, None).unwrap_err().to_string();
        assert_eq!(said(b""), "the authorities: there is no certificate in it in PEM; it has nothing");
        let torn = b"-----BEGIN CERTIFICATE-----\nAAAA\n";
        assert_eq!(said(torn), "the authorities: line 1: this CERTIFICATE has no END line");
        assert!(matches!(parse_server_name("no name"), Err(TlsError::ServerName(_))));
    }
}
