//! High availability, decided: which of two nodes may serve, and how the other is kept from it.
#![forbid(unsafe_code)]
pub mod ceiling;
pub mod fence;
pub mod identity;
pub mod message;
pub mod pair;
pub mod stored;
pub mod term;
