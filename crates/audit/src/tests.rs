//! The log as a whole.

mod disk;
mod faults;
mod random;

use std::net::SocketAddr;

use super::{Event, What};
use locks::Reason;
use protocol::Token;

/// The `number`-th event of a producer.
fn event(producer: &str, number: u64) -> Event {
    Event {
        time_unix_ns: number * 1_000,
        lock: producer.into(),
        identity: Some("worker".into()),
        peer: SocketAddr::from(([192, 0, 2, 1], 70)).into(),
        what: What::Released { token: Token(number), held_ns: 1_000_000, reason: Reason::Graceful },
    }
}
