//! Texts that command lines take.
#![forbid(unsafe_code)]

mod addresses;
mod admin;
mod durations;
