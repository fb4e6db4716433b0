//! Counters that the intake threads share: a few additions for each connection.

use std::sync::atomic::{AtomicU64, Ordering};

use protocol::ErrorCode;

use super::names::{CODES, code_index};

/// What happened to connections before a shard had them.
#[derive(Debug, Default)]
pub(crate) struct IntakeCounters {
    accepted: AtomicU64,
    accept_errors: AtomicU64,
    tls_handshake_errors: AtomicU64,
    acl_denials: AtomicU64,
    errors: [AtomicU64; CODES.len()],
}

impl IntakeCounters {
    /// A connection was accepted.
    pub(crate) fn accepted(&self) {
        self.accepted.fetch_add(1, Ordering::Relaxed);
    }

    /// Accepting failed, or found no descriptor left.
    pub(crate) fn accept_failed(&self) {
        self.accept_errors.fetch_add(1, Ordering::Relaxed);
    }

    /// A connection ended in the middle of its TLS handshake.
    pub(crate) fn tls_handshake_failed(&self) {
        self.tls_handshake_errors.fetch_add(1, Ordering::Relaxed);
    }

    /// The ACL refused a claim.
    pub(crate) fn acl_denied(&self) {
        self.acl_denials.fetch_add(1, Ordering::Relaxed);
    }

    /// An ERROR was sent.
    pub(crate) fn protocol_error(&self, code: ErrorCode) {
        self.errors[code_index(code)].fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn accepted_total(&self) -> u64 {
        self.accepted.load(Ordering::Relaxed)
    }

    pub(crate) fn accept_errors_total(&self) -> u64 {
        self.accept_errors.load(Ordering::Relaxed)
    }

    pub(crate) fn tls_handshake_errors_total(&self) -> u64 {
        self.tls_handshake_errors.load(Ordering::Relaxed)
    }

    pub(crate) fn acl_denials_total(&self) -> u64 {
        self.acl_denials.load(Ordering::Relaxed)
    }

    pub(crate) fn errors(&self, code: ErrorCode) -> u64 {
        self.errors[code_index(code)].load(Ordering::Relaxed)
    }
}
