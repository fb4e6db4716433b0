//! The API from outside, against the stand-in server, and against a scripted one where the stand-in is too well
//! behaved.

mod blocking;
mod cancelled;
mod common;
mod errors;
mod guards;
mod losses;
mod retries;
mod runs;
