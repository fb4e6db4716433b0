//! The client: a claim on one lock, held for exactly as long as it is confirmed.
//!
//! [`Claim`] decides (frames and times in; frames, deadlines and events out), without socket or clock.
//! [`Connection`] does: it drives one claim over one TCP connection, on tokio and CLOCK_BOOTTIME.
#![forbid(unsafe_code)]

mod claim;
mod clock;
mod driver;
mod error;
mod inbox;
mod rhythm;

pub use claim::{Claim, Event, Transmit};
pub use clock::{Alarm, boottime_ns};
pub use driver::{Connection, DIAL_TIMEOUT, request};
pub use error::{Closed, Error, Loss, Violation};
pub use rhythm::GIVE_UP_TENTHS;
