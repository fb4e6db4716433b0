//! Certificates and keys from PEM files, and what is wrong with them.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::sign::CertifiedKey;
use rustls::{Error, RootCertStore};
use x509_parser::certificate::X509Certificate;
use x509_parser::extensions::GeneralName;
use x509_parser::prelude::FromDer;
use x509_parser::public_key::PublicKey;

use crate::file;
use crate::settings::{TLS_CERT, TLS_CLIENT_CA, TLS_KEY};

/// A file that cannot be used, and why.
#[derive(Debug, thiserror::Error)]
#[error("{flag} {}: {problem}", path.display())]
pub(crate) struct FileError {
    /// The setting that names the file.
    flag: &'static str,
    path: PathBuf,
    #[source]
    problem: Problem,
}

/// What is wrong with a file.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Problem {
    #[error("cannot read it: {0}")]
    Unreadable(io::Error),
    #[error("there is no {wanted} in it in PEM; it has {found}")]
    Missing { wanted: &'static str, found: String },
    #[error("broken PEM: {0}")]
    Pem(&'static str),
    #[error("the private key is encrypted; decrypt it with: openssl pkey -in {} -out KEY", .0.display())]
    Encrypted(PathBuf),
    #[error("unusable private key: {0}")]
    Key(Error),
    #[error("unusable certificate: {0}")]
    Certificate(String),
    #[error("this private key does not belong to the certificate in {}", .0.display())]
    Mismatch(PathBuf),
}

/// The server's certificate, those between it and its authority, and its private key.
#[derive(Debug, Clone)]
pub(crate) struct Certificate {
    key: Arc<CertifiedKey>,
    not_before_unix_s: i64,
    not_after_unix_s: i64,
    description: String,
}

impl Certificate {
    /// Reads the chain of certificates, the server's first, and the key.
    ///
    /// # Errors
    ///
    /// One of the files cannot be used, or they do not belong together.
    pub(crate) fn load(cert: &Path, key: &Path) -> Result<Self, FileError> {
        let chain = certificates(TLS_CERT.flag, cert)?;
        let private_key = private_key(key)?;
        let in_cert = |problem| FileError { flag: TLS_CERT.flag, path: cert.to_owned(), problem };
        let in_key = |problem| FileError { flag: TLS_KEY.flag, path: key.to_owned(), problem };
        let parsed = parse_all(&chain).map_err(in_cert)?;
        let first = &parsed[0];
        let (not_before_unix_s, not_after_unix_s) =
            (first.validity.not_before.timestamp(), first.validity.not_after.timestamp());
        let description = describe(first);

        let provider = rustls::crypto::ring::default_provider();
        let private_key = provider
            .key_provider
            .load_private_key(private_key)
            .map_err(|error| in_key(Problem::Key(error)))?;
        let key = CertifiedKey::new(chain.clone(), private_key);
        match key.keys_match() {
            Ok(()) => {}
            Err(Error::InconsistentKeys(_)) => return Err(in_key(Problem::Mismatch(cert.to_owned()))),
            Err(error) => return Err(in_cert(Problem::Certificate(error.to_string()))),
        }
        Ok(Self { key: Arc::new(key), not_before_unix_s, not_after_unix_s, description })
    }

    pub(super) fn key(&self) -> Arc<CertifiedKey> {
        Arc::clone(&self.key)
    }

    /// From when on it is valid, in seconds of Unix time.
    pub(crate) fn not_before_unix_s(&self) -> i64 {
        self.not_before_unix_s
    }

    /// Until when it is valid, in seconds of Unix time.
    pub(crate) fn not_after_unix_s(&self) -> i64 {
        self.not_after_unix_s
    }

    /// Whether clients take it at this time.
    pub(crate) fn is_valid_at(&self, unix_s: i64) -> bool {
        self.not_before_unix_s <= unix_s && !self.is_expired(unix_s)
    }

    /// Whether clients that look at their clock refuse it because it is too old.
    pub(crate) fn is_expired(&self, now_unix_s: i64) -> bool {
        now_unix_s > self.not_after_unix_s
    }

    /// Subject, names, validity and kind of key in one line, for people. Control characters in it are not escaped.
    pub(crate) fn description(&self) -> &str {
        &self.description
    }
}

/// The authorities that vouch for clients.
#[derive(Debug, Clone)]
pub(crate) struct ClientCa(Arc<RootCertStore>);

impl ClientCa {
    /// Reads the authorities' certificates. Each one in the file is trusted by itself.
    ///
    /// # Errors
    ///
    /// The file cannot be used; one bad certificate is enough.
    pub(crate) fn load(path: &Path) -> Result<Self, FileError> {
        let mut roots = RootCertStore::empty();
        for certificate in certificates(TLS_CLIENT_CA.flag, path)? {
            roots.add(certificate).map_err(|error| FileError {
                flag: TLS_CLIENT_CA.flag,
                path: path.to_owned(),
                problem: Problem::Certificate(error.to_string()),
            })?;
        }
        Ok(Self(Arc::new(roots)))
    }

    /// How many authorities there are; at least one.
    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    pub(super) fn roots(&self) -> Arc<RootCertStore> {
        Arc::clone(&self.0)
    }
}

/// Every certificate of a file; at least one.
fn certificates(flag: &'static str, path: &Path) -> Result<Vec<CertificateDer<'static>>, FileError> {
    let in_file = |problem| FileError { flag, path: path.to_owned(), problem };
    let text = file::read(path).map_err(|error| in_file(Problem::Unreadable(error)))?;
    let certificates: Vec<_> = CertificateDer::pem_slice_iter(&text)
        .collect::<Result<_, _>>()
        .map_err(|error| in_file(broken(&error)))?;
    if certificates.is_empty() {
        return Err(in_file(Problem::Missing { wanted: "certificate", found: sections(&text) }));
    }
    Ok(certificates)
}

/// The first private key of a file.
fn private_key(path: &Path) -> Result<PrivateKeyDer<'static>, FileError> {
    let in_file = |problem| FileError { flag: TLS_KEY.flag, path: path.to_owned(), problem };
    let text = file::read(path).map_err(|error| in_file(Problem::Unreadable(error)))?;
    if is_encrypted(&text) {
        return Err(in_file(Problem::Encrypted(path.to_owned())));
    }
    PrivateKeyDer::from_pem_slice(&text).map_err(|error| match error {
        pem::Error::NoItemsFound => {
            in_file(Problem::Missing { wanted: "private key", found: sections(&text) })
        }
        error => in_file(broken(&error)),
    })
}

/// As PKCS #8, or in the older way of openssl.
fn is_encrypted(text: &[u8]) -> bool {
    let mut lines = text.split(|&byte| byte == b'\n').map(<[u8]>::trim_ascii_end);
    lines.any(|line| line == b"-----BEGIN ENCRYPTED PRIVATE KEY-----" || line == b"Proc-Type: 4,ENCRYPTED")
}

/// In words: the reader's own print names as lists of bytes.
fn broken(error: &pem::Error) -> Problem {
    Problem::Pem(match error {
        pem::Error::MissingSectionEnd { .. } => "a section has no END line",
        pem::Error::IllegalSectionStart { .. } => "a BEGIN line is not complete",
        pem::Error::Base64Decode(_) => "a section is no base64",
        _ => "a section cannot be read",
    })
}

/// What a PEM file has, for an error message.
fn sections(text: &[u8]) -> String {
    let labels: Vec<_> = String::from_utf8_lossy(text)
        .lines()
        .filter_map(|line| {
            line.trim_end().strip_prefix("-----BEGIN ")?.strip_suffix("-----").map(str::to_owned)
        })
        .collect();
    match labels.is_empty() {
        true if text.is_empty() => "nothing".to_owned(),
        true => "no PEM at all".to_owned(),
        false => labels.join(", "),
    }
}

fn parse_all<'a>(chain: &'a [CertificateDer<'_>]) -> Result<Vec<X509Certificate<'a>>, Problem> {
    let parse = |der: &'a CertificateDer<'_>| match X509Certificate::from_der(der) {
        Ok((_, certificate)) => Ok(certificate),
        Err(error) => Err(Problem::Certificate(error.to_string())),
    };
    chain.iter().map(parse).collect()
}

fn describe(certificate: &X509Certificate<'_>) -> String {
    let mut parts = vec![format!("subject {}", or_none(&certificate.subject.to_string()))];
    if let Ok(Some(extension)) = certificate.subject_alternative_name() {
        let names: Vec<_> = extension.value.general_names.iter().filter_map(name).collect();
        parts.push(format!("names {}", or_none(&names.join(" "))));
    }
    let validity = &certificate.validity;
    parts.push(format!(
        "valid from {} to {}",
        date(validity.not_before.timestamp()),
        date(validity.not_after.timestamp())
    ));
    parts.push(key_kind(certificate));
    parts.join(", ")
}

fn or_none(text: &str) -> &str {
    if text.is_empty() { "none" } else { text }
}

fn name(name: &GeneralName<'_>) -> Option<String> {
    match *name {
        GeneralName::DNSName(name) => Some(name.to_owned()),
        GeneralName::URI(uri) => Some(uri.to_owned()),
        GeneralName::IPAddress(octets) => match octets.len() {
            4 => Some(std::net::IpAddr::from(<[u8; 4]>::try_from(octets).ok()?).to_string()),
            _ => Some(std::net::IpAddr::from(<[u8; 16]>::try_from(octets).ok()?).to_string()),
        },
        _ => None,
    }
}

fn date(unix_s: i64) -> String {
    match u64::try_from(unix_s) {
        Ok(unix_s) => humantime::format_rfc3339_seconds(UNIX_EPOCH + Duration::from_secs(unix_s)).to_string(),
        Err(_) => "before 1970".to_owned(),
    }
}

fn key_kind(certificate: &X509Certificate<'_>) -> String {
    let key = certificate.public_key();
    match key.parsed() {
        Ok(PublicKey::RSA(rsa)) => format!("RSA {}", rsa.key_size()),
        Ok(PublicKey::EC(point)) => format!("ECDSA P-{}", point.key_size()),
        _ if key.algorithm.algorithm.to_id_string() == ED25519 => "Ed25519".to_owned(),
        _ => format!("key of type {}", key.algorithm.algorithm.to_id_string()),
    }
}

/// RFC 8410, section 3.
const ED25519: &str = "1.3.101.112";
