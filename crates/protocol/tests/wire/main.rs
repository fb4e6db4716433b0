//! The wire protocol as its peers see it: frames through the public API, in every splitting.
#![forbid(unsafe_code)]

mod acquire;
mod check_order;
mod codes;
mod fuzz;
mod invariants;
mod leases;
mod names;
mod round_trips;
mod server_frames;
mod sessions;
mod splitting;
mod tokens;
mod values;
