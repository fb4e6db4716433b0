//! The API from outside, against the stand-in server, and against a scripted one where the stand-in is too
//! well behaved.

mod alarms;
mod blocking;
mod cancelled;
mod common;
mod errors;
mod guards;
mod losses;
mod pauses;
mod requests;
mod retries;
mod runs;
