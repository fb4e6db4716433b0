//! `monolock run` against the real server, as its user sees it: one module for each part of what it promises.
#![forbid(unsafe_code)]

mod arguments;
mod cut;
mod deaf;
mod escapes;
mod guardian;
mod hanging;
mod jobs;
mod limits;
mod loss;
mod patience;
mod restarts;
mod runs;
mod signals;
mod status;
mod streams;
mod tls;
mod turns;
mod words;

use testkit::{harness, terminal};
