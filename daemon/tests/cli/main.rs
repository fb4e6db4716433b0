//! The operator's commands against the real server, as their user and scripts see them.
#![forbid(unsafe_code)]

mod actions;
#[path = "../server/harness.rs"]
#[allow(dead_code, reason = "shared with the server's tests, which use more of it")]
mod harness;
mod lists;
mod many;
mod names;
mod operator;
mod readme;
mod statuses;
#[allow(dead_code, reason = "shared with the tests of monolock run, which use more of it")]
mod terminal;
mod top;
