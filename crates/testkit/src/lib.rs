//! What tests of several crates share. It is no dependency of anything that is installed.
//!
//! ```
//! let diagnostics = testkit::diagnostics::Diagnostics::new();
//! tracing::info!("said");
//! assert_eq!(diagnostics.lines(), [" INFO said"]);
//! ```
#![forbid(unsafe_code)]

pub mod certificates;
pub mod diagnostics;
