//! The admin API as its callers see it: the types of its answers, their JSON, and a client.
#![forbid(unsafe_code)]

mod client;
mod error;
pub mod json;
mod types;

pub use client::Client;
pub use error::Error;
pub use types::{
    About, Config, Holder, Info, Kicked, Listing, Lock, Refusal, Released, Summary, Time, Waiter,
};

/// The longest pattern of a listing, in bytes: four times the longest name. It is matched against every name.
pub const PATTERN_BYTES_MAX: usize = 1024;

/// The most locks of one page.
pub const PAGE_LOCKS_MAX: usize = 10_000;
