//! The real server, seen from outside: one module for each part of what it promises.
#![forbid(unsafe_code)]

mod errors;
mod frames;
mod harness;
mod leases;
mod limits;
mod ops;
mod partition;
mod queue;
mod shutdown;
mod start;
