//! TLS 1.3 between two of our own processes: each shows a certificate, and knows the other by its identity.
//!
//! Host names are not looked at. Nodes are reached at addresses that move; what counts is who answers there.

use std::path::Path;
use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{Resumption, verify_server_cert_signed_by_trust_anchor};
use rustls::crypto::{CryptoProvider, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::{NoServerSessionStorage, ParsedCertificate};
use rustls::sign::SingleCertAndKey;
use rustls::{ClientConfig, DigitallySignedStruct, Error, RootCertStore, ServerConfig, SignatureScheme};

use crate::identity::identity;
use crate::{Certificate, ClientCa, Fault, FileError, verifier};

/// Both sides of such a connection, from one certificate, its key, and the authorities of both nodes. The
/// certificate needs to be good for a server and for a client.
#[derive(Debug, Clone)]
pub struct Mutual {
    certificate: Certificate,
    roots: Arc<RootCertStore>,
    server: Arc<ServerConfig>,
    client: Arc<ClientConfig>,
}

impl Mutual {
    /// Reads the files.
    ///
    /// # Errors
    ///
    /// One of them cannot be used, or certificate and key do not belong together.
    pub fn load(cert: &Path, key: &Path, authorities: &Path) -> Result<Self, FileError> {
        let certificate = Certificate::load(cert, key)?;
        let roots = ClientCa::load(authorities)?.roots();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let own = || Arc::new(SingleCertAndKey::from(certificate.key()));
        let mut server = ServerConfig::builder_with_provider(Arc::clone(&provider))
            .with_protocol_versions(&[&rustls::version::TLS13])
            .expect("the provider has cipher suites of TLS 1.3")
            .with_client_cert_verifier(verifier(Arc::clone(&roots), &provider))
            .with_cert_resolver(own());
        // A connection carries one request: there is nothing to resume.
        server.session_storage = Arc::new(NoServerSessionStorage {});
        server.send_tls13_tickets = 0;
        let by_authority = ByAuthority { roots: Arc::clone(&roots), provider: Arc::clone(&provider) };
        let mut client = ClientConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&rustls::version::TLS13])
            .expect("the provider has cipher suites of TLS 1.3")
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(by_authority))
            .with_client_cert_resolver(own());
        client.resumption = Resumption::disabled();
        Ok(Self { certificate, roots, server: Arc::new(server), client: Arc::new(client) })
    }

    /// The side that is connected to.
    pub fn server(&self) -> Arc<ServerConfig> {
        Arc::clone(&self.server)
    }

    /// The side that connects.
    pub fn client(&self) -> Arc<ClientConfig> {
        Arc::clone(&self.client)
    }

    /// The certificate that this side shows.
    pub fn certificate(&self) -> &Certificate {
        &self.certificate
    }

    /// Who the other side is: the first URI of its certificate, else its first DNS name, else its Common
    /// Name.
    ///
    /// # Errors
    ///
    /// It has no name that counts.
    pub fn identity<'a>(&self, chain: &'a [CertificateDer<'_>]) -> Result<&'a str, Fault> {
        let leaf = chain.first().expect("the handshake is done, and both sides showed a certificate");
        identity(leaf, pki::is_constrained(chain, &self.roots))
    }
}

/// Takes the certificate of a server that an authority vouches for, whatever name it was reached by: its
/// identity is looked at after the handshake, before anything is sent.
#[derive(Debug)]
struct ByAuthority {
    roots: Arc<RootCertStore>,
    provider: Arc<CryptoProvider>,
}

impl ServerCertVerifier for ByAuthority {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let certificate = ParsedCertificate::try_from(end_entity)?;
        let algorithms = self.provider.signature_verification_algorithms.all;
        verify_server_cert_signed_by_trust_anchor(&certificate, &self.roots, intermediates, now, algorithms)?;
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _message: &[u8],
        _certificate: &CertificateDer<'_>,
        _signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Err(Error::General("only TLS 1.3 is spoken here".into()))
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls13_signature(message, certificate, signed, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}
