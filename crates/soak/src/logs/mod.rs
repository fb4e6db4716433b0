//! The logs of a soak: what their lines say, where they are, and the history that they tell together.

pub(crate) mod audit;
pub mod entry;
pub(crate) mod history;
pub mod names;
mod read;

pub use history::History;
pub(crate) use read::lines;
pub use read::{Unreadable, read};
