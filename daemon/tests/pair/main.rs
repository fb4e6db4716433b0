//! Two real servers of which one serves: promotion, demotion, restarts, and what the peer's silence means.
#![forbid(unsafe_code)]

mod agents;
mod commands;
mod fences;
mod nodes;
mod restarts;
mod settings;
