//! The last things that happened, for people; costs nothing while nobody wants it.

use std::collections::VecDeque;
use std::fmt::Display;

/// How much is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tracing {
    /// Nothing.
    Off,
    /// The last so many lines.
    Last(usize),
    /// Every line goes to the standard output as it happens.
    Print,
}

/// Lines of the form `time  who  what`.
#[derive(Debug)]
pub(crate) struct Trace {
    tracing: Tracing,
    lines: VecDeque<String>,
}

impl Trace {
    pub(crate) fn new(tracing: Tracing) -> Self {
        Self { tracing, lines: VecDeque::new() }
    }

    pub(crate) fn note(&mut self, now_ns: u64, who: impl Display, what: impl FnOnce() -> String) {
        let last = match self.tracing {
            Tracing::Off => return,
            Tracing::Last(last) => last,
            Tracing::Print => 0,
        };
        let line = format!("{:>14.6} s  {:<12} {}", now_ns as f64 / 1e9, who.to_string(), what());
        if self.tracing == Tracing::Print {
            return println!("{line}");
        }
        if self.lines.len() == last {
            self.lines.pop_front();
        }
        self.lines.push_back(line);
    }

    pub(crate) fn into_lines(self) -> Vec<String> {
        self.lines.into()
    }
}
