//! What a parent has done to the signals of this process: some may be ignored, some blocked. Both outlive
//! exec.
//!
//! Service wrappers, test runners and programs that fork from a thread that takes no signals leave such
//! things behind. A process that relies on a signal has to take it back, and what it starts itself should get
//! what it would have had without us. This crate looks and sets; it handles no signal, and decides about
//! none.
//!
//! ```
//! use rustix::process::Signal;
//!
//! // Before the first thread, which would keep the parent's mask.
//! let parents = inherited::unblock(&[Signal::TERM])?;
//! let child = parents.lend(|| std::process::Command::new("true").spawn());
//! child?.wait()?;
//! # std::io::Result::Ok(())
//! ```
#![deny(unsafe_code)]

mod blocked;
#[allow(unsafe_code)]
mod ignored;

pub use blocked::{ParentsMask, unblock, write_in_the_background};
pub use ignored::{Ignored, keep_children};
