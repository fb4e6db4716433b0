//! The logs of a soak: what their lines say, where they are, and the history that they tell together.

pub(crate) mod audit;
pub(crate) mod entry;
pub(crate) mod history;
pub(crate) mod names;
mod read;

pub(crate) use read::{lines, read};
