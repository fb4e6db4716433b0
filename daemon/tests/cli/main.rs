//! The operator's commands against the real server, as their user and scripts see them.
#![forbid(unsafe_code)]

mod actions;
mod health;
mod lists;
mod many;
mod names;
mod operator;
mod readme;
mod statuses;
mod top;

use testkit::{harness, terminal};
