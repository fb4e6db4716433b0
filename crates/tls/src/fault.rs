//! Why a TLS session ends: whose fault it is, in words for a log line.

use pki::words;
use rustls::{AlertDescription, CertificateError, Error};

/// Why a session cannot go on.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum Fault {
    /// The client does not want us; mostly, it does not trust our certificate.
    #[error("the client ended TLS: {}", words::alert((*.0).into(), "this server's"))]
    Refused(AlertDescription),
    /// It must show a certificate, and shows none.
    #[error("the client sent no certificate: it needs one of an authority for clients")]
    NoCertificate,
    /// Its certificate is not what it must be.
    #[error("the client's certificate is not accepted: {}", certificate(.0))]
    Certificate(Error),
    /// It was good enough for the session that the client resumes, and is not any more.
    #[error("the certificate of a resumed session is not accepted any more: {}", certificate(.0))]
    ResumedCertificate(Error),
    /// Its certificate is good, and says nobody.
    #[error("the client's certificate names no usable identity: {0}")]
    Identity(String),
    /// No version, cipher suite or kind of key that both know.
    #[error("the client and this server have no TLS in common: {}", words::error(.0))]
    NothingInCommon(Error),
    /// Its first bytes are none of TLS.
    #[error("the client speaks no TLS, and this port does")]
    NoTls,
    /// What it sends is no TLS.
    #[error("the client broke TLS: {}", words::error(.0))]
    Protocol(Error),
    /// A message above the bound, in bytes.
    #[error("the client sent a message of more than {0} bytes: its chain of certificates is too long")]
    MessageTooLong(usize),
    /// TLS 1.2 has no way to change keys within a session.
    #[error("the session has sent as much as TLS 1.2 allows under one key")]
    KeyExhausted,
    /// Ours.
    #[error("this server failed in TLS: {}", words::error(.0))]
    Server(Error),
}

impl Fault {
    /// Whether other authorities for clients would help.
    pub fn is_of_authorities(&self) -> bool {
        match self {
            Self::NoCertificate => true,
            Self::Certificate(error) | Self::ResumedCertificate(error) => {
                matches!(error, Error::InvalidCertificate(CertificateError::UnknownIssuer))
            }
            _ => false,
        }
    }
}

impl From<Error> for Fault {
    fn from(error: Error) -> Self {
        match error {
            Error::AlertReceived(alert) => Self::Refused(alert),
            Error::NoCertificatesPresented => Self::NoCertificate,
            Error::InvalidCertificate(_) => Self::Certificate(error),
            Error::PeerIncompatible(_) | Error::NoApplicationProtocol => Self::NothingInCommon(error),
            Error::FailedToGetCurrentTime
            | Error::FailedToGetRandomBytes
            | Error::EncryptError
            | Error::General(_)
            | Error::Other(_) => Self::Server(error),
            _ => Self::Protocol(error),
        }
    }
}

fn certificate(error: &Error) -> String {
    match error {
        Error::InvalidCertificate(CertificateError::UnknownIssuer) => {
            "no authority for clients vouches for it".to_owned()
        }
        error => words::error(error),
    }
}
