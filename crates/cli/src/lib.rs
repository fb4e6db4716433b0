//! What settings are made of: a flag with a variable and a default, durations, addresses, files.
#![forbid(unsafe_code)]

mod address;
mod admin;
mod duration;
pub mod exit;
mod reading;
pub mod values;

pub use address::ListenAddress;
pub use admin::{AdminAddress, HostName};
pub use duration::parse_duration;
pub use reading::{Given, Mistake, Origin, Reader, environment_variable, unknown_variables};

/// A setting as the user sees it.
#[derive(Debug, PartialEq, Eq)]
pub struct Setting {
    pub flag: &'static str,
    pub variable: &'static str,
    pub default: &'static str,
    pub meaning: &'static str,
}
