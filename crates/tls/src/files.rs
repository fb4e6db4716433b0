//! Certificates and keys from the files that settings name.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use pki::{Doubt, Leaf, Mismatch, Side};
use rustls::RootCertStore;
use rustls::sign::CertifiedKey;

use pki::file;

/// A file that cannot be used, and why.
#[derive(Debug, thiserror::Error)]
#[error("{}: {problem}", path.display())]
pub struct FileError {
    /// Which of the files.
    pub of: FileOf,
    path: PathBuf,
    #[source]
    problem: Problem,
}

/// What a file is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FileOf {
    /// The certificate and those between it and its authority.
    Certificate,
    /// Its private key.
    Key,
    /// The authorities that vouch for clients.
    ClientCa,
}

/// What is wrong with a file.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Problem {
    #[error("cannot read it: {0}")]
    Unreadable(io::Error),
    #[error(transparent)]
    Content(pki::Problem),
    #[error("this private key does not belong to the certificate in {}", .0.display())]
    Mismatch(PathBuf),
    #[error("the private key belongs to certificate number {0}: the server's own must be the first")]
    Order(usize),
}

/// The server's certificate, those between it and its authority, and its private key.
#[derive(Debug, Clone)]
pub struct Certificate {
    key: Arc<CertifiedKey>,
    not_after_unix_s: i64,
    description: String,
}

impl Certificate {
    /// Reads the chain of certificates, the server's first, and the key.
    ///
    /// # Errors
    ///
    /// One of the files cannot be used, or they do not belong together.
    pub fn load(cert: &Path, key: &Path) -> Result<Self, FileError> {
        let in_cert = |problem| FileError { of: FileOf::Certificate, path: cert.to_owned(), problem };
        let in_key = |problem| FileError { of: FileOf::Key, path: key.to_owned(), problem };
        let chain = read(cert, pki::certificates).map_err(in_cert)?;
        let private_key = read(key, pki::private_key).map_err(in_key)?;
        let key = pki::signing_key(chain, private_key).map_err(|mismatch| match mismatch {
            Mismatch::Certificates(problem) => in_cert(Problem::Content(problem)),
            Mismatch::Key(problem) => in_key(Problem::Content(problem)),
            Mismatch::Keys => in_key(Problem::Mismatch(cert.to_owned())),
            Mismatch::Order(number) => in_cert(Problem::Order(number)),
        })?;
        let leaf = leaf(&key);
        let (not_after_unix_s, description) = (leaf.not_after_unix_s(), leaf.to_string());
        Ok(Self { key, not_after_unix_s, description })
    }

    pub(super) fn key(&self) -> Arc<CertifiedKey> {
        Arc::clone(&self.key)
    }

    /// Until when it is valid, in seconds of Unix time.
    pub fn not_after_unix_s(&self) -> i64 {
        self.not_after_unix_s
    }

    /// Why clients will refuse it at this time, as far as that can be seen here.
    pub fn doubt(&self, now_unix_s: i64) -> Option<Doubt> {
        leaf(&self.key).doubt(Side::Server, now_unix_s)
    }

    /// Subject, names, validity and kind of key in one line, for people. Control characters in it are not
    /// escaped.
    pub fn description(&self) -> &str {
        &self.description
    }
}

fn leaf(key: &CertifiedKey) -> Leaf<'_> {
    Leaf::parse(&key.cert[0]).expect("it was parsed when it was read")
}

/// The authorities that vouch for clients.
#[derive(Debug, Clone)]
pub struct ClientCa(Arc<RootCertStore>);

impl ClientCa {
    /// Reads the authorities' certificates. Each one in the file is trusted by itself.
    ///
    /// # Errors
    ///
    /// The file cannot be used; one bad certificate is enough.
    pub fn load(path: &Path) -> Result<Self, FileError> {
        let in_file = |problem| FileError { of: FileOf::ClientCa, path: path.to_owned(), problem };
        read(path, pki::authorities).map(|roots| Self(Arc::new(roots))).map_err(in_file)
    }

    /// How many authorities there are; at least one.
    pub fn count(&self) -> usize {
        self.0.len()
    }

    pub(super) fn roots(&self) -> Arc<RootCertStore> {
        Arc::clone(&self.0)
    }
}

fn read<T>(path: &Path, parse: impl FnOnce(&[u8]) -> Result<T, pki::Problem>) -> Result<T, Problem> {
    let bytes = file::read(path).map_err(Problem::Unreadable)?;
    parse(&bytes).map_err(Problem::Content)
}
