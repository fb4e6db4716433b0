//! What is counted, where, and how it comes out.
//!
//! A shard counts in plain integers of its own ([`ShardCounters`]) and copies them now and then into a set of
//! atomics that only it writes ([`Published`]); a scrape reads those and never asks the shard. Intake
//! threads, which touch a counter a few times a connection, share atomics ([`IntakeCounters`]).
//! `ops/exposition.rs` merges both into the Prometheus text format. No label has values that a client
//! chooses.

pub(crate) mod cells;
mod intake;
pub(crate) mod names;
mod shard;

pub(crate) use intake::IntakeCounters;
pub(crate) use shard::{Published, ShardCounters, TurnTimes};
