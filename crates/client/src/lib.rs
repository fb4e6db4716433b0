//! The client: a claim on one lock, held for exactly as long as it is confirmed.
//!
//! [`Claim`] decides (frames and times in; frames, deadlines and events out), without socket or clock.
//! [`Connection`] does: it drives one claim over one TCP connection, on tokio and CLOCK_BOOTTIME.
#![forbid(unsafe_code)]

pub mod blocking;
mod claim;
mod client;
mod clock;
mod config;
mod dial;
mod driver;
mod error;
mod guard;
mod inbox;
mod retry;
mod rhythm;
mod standing;
#[cfg(feature = "tls")]
mod tls;
mod transport;
mod work;

pub use claim::{Claim, Event, Transmit};
pub use client::Client;
pub use clock::{Alarm, boottime_ns};
pub use config::{Config, DIAL_TIMEOUT};
pub use driver::{Connection, request};
pub use error::{Closed, Error, Loss, RunError, Violation};
pub use guard::{Grant, Guard};
pub use protocol::{Class, ErrorCode, Token};
pub use rhythm::GIVE_UP_TENTHS;
#[cfg(feature = "tls")]
pub use tls::{Identity, Tls, TlsError};
pub use tokio_util::sync::CancellationToken;
