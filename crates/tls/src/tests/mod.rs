//! The session against rustls's own client, in memory; certificates by openssl.

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
