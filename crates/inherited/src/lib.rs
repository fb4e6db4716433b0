//! What a parent has done to the signals of this process: some may be ignored, some blocked. Both outlive exec.
#![deny(unsafe_code)]

mod blocked;
#[allow(unsafe_code)]
mod ignored;

pub use blocked::{ParentsMask, unblock, write_in_the_background};
pub use ignored::{Ignored, keep_children};
