//! What is read from a PEM file: authorities, a chain of certificates, or a private key. Nothing in it is
//! left out without a word.

use rustls::RootCertStore;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};

use crate::kind::{self, Kind};
use crate::leaf;
use crate::pem::{self, Malformed, Section};
use crate::words;

/// The longest chain of certificates, in bytes of DER. The server keeps no more than one record of a
/// handshake message for a client that it does not know yet, and a chain is some KB long.
pub const CHAIN_BYTES_MAX: usize = 16_000;

/// What is wrong with a file, and what to do. Lines count from 1.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Problem {
    /// It is no PEM.
    #[error(transparent)]
    Malformed(#[from] Malformed),
    /// It has not what it is read for.
    #[error("there is no {wanted} in it in PEM; it has {found}")]
    Missing {
        /// A certificate or a private key.
        wanted: &'static str,
        /// The labels of its sections.
        found: String,
    },
    /// It has what cannot be used here.
    #[error("line {line}: {label} cannot be used here: {advice}")]
    Unusable {
        /// Of the BEGIN line.
        line: usize,
        /// Of the section.
        label: String,
        /// What to do.
        advice: &'static str,
    },
    /// A section that is damaged.
    #[error("line {line}: this {label} is damaged: {what}")]
    Damaged {
        /// Of the BEGIN line.
        line: usize,
        /// Of the section.
        label: String,
        /// What is wrong.
        what: String,
    },
    /// A key that needs a password.
    #[error("line {0}: the private key is encrypted; decrypt it with: openssl pkey -in FILE -out NEW")]
    Encrypted(usize),
    /// More than one key.
    #[error("line {0}: a second private key: leave only the one that belongs to the certificate")]
    SecondKey(usize),
    /// A private key with which TLS is not spoken here.
    #[error("TLS cannot be spoken here with this private key ({0}): take {SIGNS}")]
    KeyKind(String),
    /// An authority whose word could never be checked.
    #[error(
        "line {line}: this authority's signatures cannot be checked here, its key is {kind}: take {VERIFIES}"
    )]
    AuthorityKind {
        /// Of the BEGIN line.
        line: usize,
        /// The kind of key.
        kind: String,
    },
    /// Nobody accepts so many bytes of certificates.
    #[error(
        "its certificates are {0} bytes long together, and {max} is the most that is accepted: leave only the \
         first and those that lead to its authority",
        max = CHAIN_BYTES_MAX
    )]
    ChainTooLong(usize),
    /// The certificate cannot be used, though it can be read.
    #[error("unusable certificate: {0}")]
    Certificate(String),
}

/// The kinds of private keys that sign here.
const SIGNS: &str = "RSA of 2048 to 4096 bits, ECDSA P-256 or P-384, or Ed25519";

/// The kinds of public keys whose signatures are verified here.
const VERIFIES: &str = "RSA of 2048 to 8192 bits, ECDSA P-256 or P-384, or Ed25519";

/// The authorities in `file`, each of which is trusted by itself; at least one.
///
/// # Errors
///
/// One that cannot be used is enough, and so is anything else in the file.
pub fn authorities(file: &[u8]) -> Result<RootCertStore, Problem> {
    let sections = pem::sections(file)?;
    let mut roots = RootCertStore::empty();
    for section in &sections {
        if label(section) != Label::Certificate {
            return Err(unusable(section, "authorities are certificates alone: take it out"));
        }
        let der = certificate(section)?;
        let key = kind::of_certificate(&leaf::parse(&der).map_err(|what| damaged(section, what))?);
        roots.add(der).map_err(|error| damaged(section, words::error(&error)))?;
        if !key.verifies {
            return Err(Problem::AuthorityKind { line: section.line, kind: key.name });
        }
    }
    if roots.is_empty() { Err(missing("certificate", file, &sections)) } else { Ok(roots) }
}

/// The certificates in `file`, somebody's own first; at least one. A private key may stand beside them.
///
/// # Errors
///
/// One that cannot be read is enough, and so is anything else in the file.
pub fn certificates(file: &[u8]) -> Result<Vec<CertificateDer<'static>>, Problem> {
    let sections = pem::sections(file)?;
    let mut chain = Vec::new();
    for section in &sections {
        match label(section) {
            Label::Certificate => {
                let der = certificate(section)?;
                leaf::parse(&der).map_err(|what| damaged(section, what))?;
                chain.push(der);
            }
            // Not used here, but a damaged one is half a file.
            Label::Key => drop(decoded::<PrivateKeyDer<'_>>(section, section.label)?),
            Label::EncryptedKey | Label::Parameters => {}
            Label::Other => return Err(unusable(section, "take it out")),
        }
    }
    if chain.is_empty() { Err(missing("certificate", file, &sections)) } else { Ok(chain) }
}

/// The one private key in `file`. Certificates may stand beside it.
///
/// # Errors
///
/// There is none or more than one, it is encrypted, or something else is in the file.
pub fn private_key(file: &[u8]) -> Result<PrivateKeyDer<'static>, Problem> {
    let sections = pem::sections(file)?;
    let mut key = None;
    for section in &sections {
        match label(section) {
            Label::Key | Label::EncryptedKey if key.is_some() => {
                return Err(Problem::SecondKey(section.line));
            }
            Label::EncryptedKey => return Err(Problem::Encrypted(section.line)),
            Label::Key => key = Some(decoded(section, section.label)?),
            Label::Certificate => {
                leaf::parse(&certificate(section)?).map_err(|what| damaged(section, what))?;
            }
            Label::Parameters => {}
            Label::Other => return Err(unusable(section, "take it out")),
        }
    }
    key.ok_or_else(|| missing("private key", file, &sections))
}

/// What a key is that TLS could not be set up with.
pub(crate) fn unusable_key(key: &PrivateKeyDer<'_>) -> Problem {
    match kind::of_private_key(key) {
        Some(Kind { name, signs: false, .. }) => Problem::KeyKind(name),
        Some(Kind { name, .. }) => Problem::KeyKind(format!("{name}, but damaged or of a rare form")),
        None => Problem::KeyKind("damaged, or no key at all".to_owned()),
    }
}

/// What the label of a section says.
#[derive(PartialEq, Eq)]
enum Label {
    Certificate,
    Key,
    EncryptedKey,
    /// Of a curve or a group: the key says the same.
    Parameters,
    Other,
}

fn label(section: &Section<'_>) -> Label {
    match section.label {
        "CERTIFICATE" | "X509 CERTIFICATE" => Label::Certificate,
        "ENCRYPTED PRIVATE KEY" => Label::EncryptedKey,
        "PRIVATE KEY" | "RSA PRIVATE KEY" | "EC PRIVATE KEY" => match section.body.first() {
            Some(header) if header.starts_with(b"Proc-Type:") => Label::EncryptedKey,
            _ => Label::Key,
        },
        "EC PARAMETERS" | "DH PARAMETERS" => Label::Parameters,
        _ => Label::Other,
    }
}

fn unusable(section: &Section<'_>, otherwise: &'static str) -> Problem {
    let advice = match section.label {
        "TRUSTED CERTIFICATE" => "write it as CERTIFICATE with openssl x509 -in FILE -out NEW",
        "CERTIFICATE REQUEST" | "NEW CERTIFICATE REQUEST" => "an authority has to make a certificate of it",
        "X509 CRL" => {
            "revocation is not looked at, only authorities and the ACL keep somebody out: take it out"
        }
        "PKCS7" | "CMS" => {
            "take its certificates out of it with openssl pkcs7 -print_certs -in FILE -out NEW"
        }
        "OPENSSH PRIVATE KEY" => "it is a key for SSH: make one for TLS with openssl genpkey",
        "DSA PRIVATE KEY" => "DSA is no part of TLS any more: make another key with openssl genpkey",
        _ => otherwise,
    };
    Problem::Unusable { line: section.line, label: section.label.to_owned(), advice }
}

fn damaged(section: &Section<'_>, what: String) -> Problem {
    Problem::Damaged { line: section.line, label: section.label.to_owned(), what }
}

fn missing(wanted: &'static str, file: &[u8], sections: &[Section<'_>]) -> Problem {
    let found = match sections {
        [] if file.trim_ascii().is_empty() => "nothing".to_owned(),
        [] => "no PEM at all".to_owned(),
        _ => sections.iter().map(|section| section.label).collect::<Vec<_>>().join(", "),
    };
    Problem::Missing { wanted, found }
}

fn certificate(section: &Section<'_>) -> Result<CertificateDer<'static>, Problem> {
    decoded(section, "CERTIFICATE")
}

/// The section's content, under a label that the reader of `T` knows.
fn decoded<T: PemObject>(section: &Section<'_>, label: &str) -> Result<T, Problem> {
    let (begin, end) = (format!("-----BEGIN {label}-----"), format!("-----END {label}-----"));
    let mut text = vec![begin.as_bytes()];
    text.extend(&section.body);
    text.push(end.as_bytes());
    T::from_pem_slice(&text.join(&b'\n')).map_err(|_| damaged(section, "it is not in base64".to_owned()))
}
