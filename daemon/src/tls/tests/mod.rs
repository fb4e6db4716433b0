//! The session against rustls's own client, in memory; certificates by openssl.

#[path = "../../../tests/certificates/mod.rs"]
#[allow(dead_code, reason = "other tests use the rest")]
mod certificates;
mod closing;
mod files;
mod forger;
mod handshake;
mod hostile;
mod identity;
mod keys;
mod pair;
mod refused;
mod tickets;
