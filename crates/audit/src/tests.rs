//! The log as a whole.

mod disk;
mod faults;
mod random;
mod real;

use std::net::SocketAddr;

use locks::Reason;
use protocol::Token;
use serde_json::Value;

use super::{Event, What};

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

/// A line, as far as tests look at it.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Line {
    Event { producer: String, number: u64 },
    Lost { count: u64 },
}

fn line(text: &str) -> Line {
    let line: Value = serde_json::from_str(text).unwrap_or_else(|error| panic!("{text:?}: {error}"));
    if line["event"] == "lost" {
        return Line::Lost { count: line["count"].as_u64().unwrap() };
    }
    Line::Event { producer: line["lock"].as_str().unwrap().into(), number: line["token"].as_u64().unwrap() }
}

/// The lines of a log that has only whole ones.
fn lines(log: &[u8]) -> Vec<Line> {
    let text = std::str::from_utf8(log).unwrap();
    assert!(text.is_empty() || text.ends_with('\n'), "torn: {text:?}");
    text.lines().map(line).collect()
}

/// Events of producer "a".
fn events(numbers: impl IntoIterator<Item = u64>) -> Vec<Line> {
    numbers.into_iter().map(|number| Line::Event { producer: "a".into(), number }).collect()
}

fn lost(count: u64) -> Vec<Line> {
    vec![Line::Lost { count }]
}
