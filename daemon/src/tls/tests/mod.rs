//! The session against rustls's own client, in memory; certificates by openssl.

#[path = "../../../tests/certificates/mod.rs"]
#[allow(dead_code, reason = "other tests use the rest")]
mod certificates;
mod handshake;
#[allow(dead_code)]
mod pair;
