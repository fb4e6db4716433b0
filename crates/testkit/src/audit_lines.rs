//! The lines of an audit log, as far as its own tests look at them.

use serde_json::Value;

/// A line, as far as tests look at it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Line {
    /// An event of this producer.
    Event {
        /// Its name, which stands where a lock's does.
        producer: String,
        /// Of the event among its own; it stands where a token does.
        number: u64,
    },
    /// So many events are missing here.
    Lost {
        /// How many.
        count: u64,
    },
}

/// One line.
pub fn line(text: &str) -> Line {
    let line: Value = serde_json::from_str(text).unwrap_or_else(|error| panic!("{text:?}: {error}"));
    if line["event"] == "lost" {
        return Line::Lost { count: line["count"].as_u64().unwrap() };
    }
    Line::Event { producer: line["lock"].as_str().unwrap().into(), number: line["token"].as_u64().unwrap() }
}

/// The lines of a log that has only whole ones.
pub fn lines(log: &[u8]) -> Vec<Line> {
    let text = std::str::from_utf8(log).unwrap();
    assert!(text.is_empty() || text.ends_with('\n'), "torn: {text:?}");
    text.lines().map(line).collect()
}

/// Events of producer "a".
pub fn events(numbers: impl IntoIterator<Item = u64>) -> Vec<Line> {
    numbers.into_iter().map(|number| Line::Event { producer: "a".into(), number }).collect()
}

/// That so many are missing.
pub fn lost(count: u64) -> Vec<Line> {
    vec![Line::Lost { count }]
}
