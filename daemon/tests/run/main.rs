//! `monolock run` against the real server, as its user sees it: one module for each part of what it promises.
#![forbid(unsafe_code)]

mod arguments;
mod cut;
mod deaf;
mod escapes;
mod guardian;
mod hanging;
#[path = "../server/harness.rs"]
#[allow(dead_code, reason = "shared with the server's tests, which use more of it")]
mod harness;
mod jobs;
mod limits;
mod loss;
mod patience;
mod restarts;
mod runs;
mod signals;
mod status;
mod streams;
#[path = "../cli/terminal.rs"]
#[allow(dead_code, reason = "shared with the tests of the operator's commands")]
mod terminal;
mod tls;
mod turns;
mod words;
