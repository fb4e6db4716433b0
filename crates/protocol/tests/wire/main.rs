//! The wire protocol as its peers see it: frames through the public API, in every splitting.
#![forbid(unsafe_code)]

mod check_order;
mod fuzz;
mod invariants;
mod round_trips;
mod splitting;
mod values;
