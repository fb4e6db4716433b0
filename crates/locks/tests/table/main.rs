//! The table from outside: against a naive model under random operations, and in golden transcripts. Whatever
//! it does here is also observed by the checker.

mod checked;
mod leases;
mod model;
mod random_operations;
mod slices;
mod transcripts;
