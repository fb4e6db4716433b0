//! The admin API as its callers see it: the types of its answers, their JSON, and a client.
//!
//! The server writes these types, and the operator's commands and the soak read them: there is one set. The
//! client opens one connection a call, as the API has it, and waits for nothing without a bound. It never
//! tries an action twice: an action whose answer is missing may have been done, and its error says so.
//!
//! ```no_run
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! let api = admin_api::Client::new("127.0.0.1:9091".parse()?);
//! let lock = api.lock(&protocol::LockName::new("nightly/report").unwrap()).await?;
//! println!("{} wait", lock.waiters.len());
//! # Ok(())
//! # }
//! ```
//!
//! What the API says is a line of JSON in which nothing reaches a terminal:
//!
//! ```
//! let refusal = admin_api::Refusal { error: "no lock \"a\u{202e}\"".into() };
//! let line = admin_api::json::line(&refusal);
//! assert_eq!(line, b"{\"error\":\"no lock \\\"a\\u202e\\\"\"}\n");
//! ```
#![forbid(unsafe_code)]

mod client;
mod error;
pub mod json;
mod types;

pub use client::Client;
pub use error::Error;
pub use types::{
    About, Commanded, Config, Holder, Info, Kicked, Listing, Lock, NodeStatus, PeerStatus, Refusal, Released,
    Summary, Time, Waiter,
};

/// The longest pattern of a listing, in bytes: four times the longest name. It is matched against every name.
pub const PATTERN_BYTES_MAX: usize = 1024;

/// The most locks of one page.
pub const PAGE_LOCKS_MAX: usize = 10_000;
