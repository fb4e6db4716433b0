//! monolock: a lock server. Named locks with leases, strictly FIFO queues and fencing tokens.
//!
//! `ARCHITECTURE.md` beside the workspace's `Cargo.toml` tells how the parts fit.
#![forbid(unsafe_code)]

mod addresses;
mod admin;
mod boot;
mod capacity;
mod checks;
mod clock;
mod commands;
mod gate;
mod ha;
mod intake;
mod listener;
mod metrics;
mod ops;
mod reload;
mod settings;
mod shard;
mod token_file;
mod vital;

pub use commands::main;
