//! The session against rustls's own client, in memory; certificates by openssl.
#![forbid(unsafe_code)]

mod closing;
mod files;
mod handshake;
mod hostile;
mod identity;
mod keys;
mod pair;
mod refused;
mod tickets;
