//! What tests of several crates share, and the tools that start servers. It is no dependency of anything that
//! is installed.
//!
//! ```
//! let diagnostics = testkit::diagnostics::Diagnostics::new();
//! tracing::info!("said");
//! assert_eq!(diagnostics.lines(), [" INFO said"]);
//! ```
#![deny(unsafe_code)]

#[allow(unsafe_code)]
pub mod allocations;
pub mod audit_lines;
pub mod certificates;
pub mod diagnostics;
pub mod harness;
pub mod names;
pub mod patience;
pub mod process;
pub mod program;
pub mod random;
pub mod terminal;
pub mod tls;
