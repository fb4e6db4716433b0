//! What tests of several crates share.
#![forbid(unsafe_code)]

pub mod certificates;
pub mod diagnostics;
