//! Certificates and keys: files that are read in whole or refused, and what TLS says about them, in words.
//!
//! Server and client share it. Nothing here opens a file or a socket.

#![forbid(unsafe_code)]

mod chain;
pub mod file;
mod kind;
mod leaf;
pub mod pem;
mod read;
pub mod words;

pub use chain::{Mismatch, signing_key};
pub use leaf::{Doubt, Leaf, Side, is_constrained};
pub use read::{CHAIN_BYTES_MAX, Problem, authorities, certificates, private_key};
