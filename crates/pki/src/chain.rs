//! A chain of certificates with its key.

use std::sync::Arc;

use rustls::Error;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::sign::CertifiedKey;

use crate::read::{CHAIN_BYTES_MAX, Problem, unusable_key};
use crate::words;

/// Which of the two files is to blame.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Mismatch {
    /// The certificates cannot be used.
    Certificates(Problem),
    /// The key cannot be used.
    Key(Problem),
    /// Each can be used, but the key is not the first certificate's.
    Keys,
    /// The key belongs to another certificate of the chain: the one with this number, from 1.
    Order(usize),
}

/// What signs for the first certificate of `chain`.
///
/// # Errors
///
/// The two do not belong together, or one of them is of no use.
///
/// # Panics
///
/// If the chain is empty.
pub fn signing_key(
    chain: Vec<CertificateDer<'static>>,
    key: PrivateKeyDer<'static>,
) -> Result<Arc<CertifiedKey>, Mismatch> {
    assert!(!chain.is_empty(), "a chain has at least one certificate");
    let len = chain.iter().map(|certificate| certificate.len()).sum();
    if len > CHAIN_BYTES_MAX {
        return Err(Mismatch::Certificates(Problem::ChainTooLong(len)));
    }
    let signer = rustls::crypto::ring::sign::any_supported_type(&key)
        .map_err(|_| Mismatch::Key(unusable_key(&key)))?;
    let key = CertifiedKey::new(chain, signer);
    match key.keys_match() {
        Ok(()) => Ok(Arc::new(key)),
        Err(Error::InconsistentKeys(_)) => Err(mismatch(&key)),
        Err(error) => Err(Mismatch::Certificates(Problem::Certificate(words::error(&error)))),
    }
}

fn mismatch(key: &CertifiedKey) -> Mismatch {
    let belongs = |certificate: &CertificateDer<'static>| {
        CertifiedKey::new(vec![certificate.clone()], Arc::clone(&key.key)).keys_match().is_ok()
    };
    match key.cert.iter().position(belongs) {
        Some(index) => Mismatch::Order(index + 1),
        None => Mismatch::Keys,
    }
}
