//! The agent and servers as real processes: this test's own program, started anew in another role.
#![forbid(unsafe_code)]

mod figures;
mod gone;
mod health;
mod lives;
mod node;
mod raw;
mod roles;
mod strangers;
