//! What the command lines have in common: flags with variables, durations, addresses, exit statuses.
//!
//! A setting is declared once: its flag, its variable, its default, its help, what it needs, and how its text
//! is understood. The command line, the variables, the tables of the help and the mistakes come from that
//! declaration. This crate has no setting of its own, and reads no file.
//!
//! ```
//! use cli::{Flag, Flags, FlagSet, Reader, Setting, values};
//!
//! const LIMIT: Setting<std::time::Duration> = Setting {
//!     flag: Flag {
//!         name: "-limit",
//!         variable: "EXAMPLE_LIMIT",
//!         default: "5s",
//!         value: "DURATION",
//!         meaning: "how long one answer may take",
//!         needs: &[],
//!     },
//!     parse: values::positive_duration,
//! };
//!
//! #[derive(Debug, Clone)]
//! struct Example;
//!
//! impl FlagSet for Example {
//!     const FLAGS: &[&Flag] = &[&LIMIT.flag];
//! }
//!
//! let flags = Flags::<Example>::default();
//! let mut reader = Reader::new(&flags, |name: &str| (name == "EXAMPLE_LIMIT").then(|| "250ms".to_owned()));
//! assert_eq!(reader.read(&LIMIT).as_millis(), 250);
//! assert!(reader.mistakes().is_empty());
//! ```
#![forbid(unsafe_code)]

mod address;
mod admin;
mod duration;
pub mod exit;
mod flag;
mod reading;
pub mod values;

pub use address::ListenAddress;
pub use admin::{AdminAddress, HostName};
pub use duration::parse_duration;
pub use flag::{Flag, FlagSet, Flags, Setting};
pub use reading::{Given, Mistake, Origin, Reader, environment_variable, unknown_variables};
