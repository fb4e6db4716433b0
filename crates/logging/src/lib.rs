//! Diagnostics: to standard error, one event a line, never in the way of the thread that logs.
//!
//! An event is formatted by its thread and queued; one thread writes. When standard error takes no more (a
//! full pipe, a stopped terminal) or fails (a full disk, a reader that is gone) lines are dropped and
//! counted, since a shard that waits for a log would let leases run out; when writing works again, the log
//! says how many. Every control character of a line is escaped on its way out, so that nothing a client sends
//! can break a line or reach a terminal.
//!
//! The queue is ours and not `tracing-appender`'s, which drops what it cannot write without a count, lets
//! half a line stand before the next one after a failed write, and can be waited for only by ending it, for a
//! second or more: the last line before a panic ends the process has 100 ms.
//!
//! ```
//! use logging::escape::escaped;
//! use logging::{LogFormat, LogLevel, Logging};
//!
//! let _logging = Logging::start(LogLevel::Info, LogFormat::Text)?;
//! tracing::info!(shards = 2, "listening");
//! assert_eq!(escaped("a\u{1b}[2J"), "a\\u001b[2J");
//! # std::io::Result::Ok(())
//! ```
#![forbid(unsafe_code)]

pub mod escape;
mod json;
pub mod queue;
pub mod seldom;

use std::io;
use std::sync::OnceLock;
use std::time::Duration;

use tracing::level_filters::LevelFilter;
use tracing::{Subscriber, subscriber, warn};
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::fmt::time::SystemTime;

use queue::{Flush, LinesLost};

/// Of the one log that [`Logging::start`] started.
static LINES_LOST: OnceLock<LinesLost> = OnceLock::new();

/// Of the same log.
static FLUSH: OnceLock<Flush> = OnceLock::new();

/// The least important events that are logged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LogLevel {
    /// For who looks for a fault.
    Debug,
    /// What happens in order.
    Info,
    /// What an operator should look at.
    Warn,
    /// What does not work.
    Error,
}

/// How a line looks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LogFormat {
    /// For people.
    Text,
    /// One object a line, for programs.
    Json,
}

/// The running log. Dropping it writes out, within a bound, what is queued.
#[derive(Debug)]
pub struct Logging {
    _flush: Flush,
}

impl Logging {
    /// Makes standard error the destination of the whole process's events. Once per process.
    ///
    /// # Errors
    ///
    /// When the writing thread cannot be started.
    pub fn start(level: LogLevel, format: LogFormat) -> io::Result<Self> {
        let (lines, flush) = queue::start(io::stderr(), tell_lost)?;
        LINES_LOST.set(lines.lost()).expect("logging starts once");
        FLUSH.set(flush.clone()).expect("logging starts once");
        match format {
            LogFormat::Text => subscriber::set_global_default(text(level, lines)),
            LogFormat::Json => subscriber::set_global_default(json(level, lines)),
        }
        .expect("logging starts once");
        Ok(Self { _flush: flush })
    }
}

fn tell_lost(lost: u64) {
    warn!(lost, "log lines were lost: standard error took them too slowly, or not at all");
}

/// How many lines were dropped since the start.
pub fn lines_lost_total() -> u64 {
    LINES_LOST.get().map_or(0, LinesLost::total)
}

/// Whether events have somewhere to go.
pub fn has_started() -> bool {
    FLUSH.get().is_some()
}

/// Waits until what was logged so far is written, at most for `time_max`.
pub fn flush(time_max: Duration) {
    if let Some(flush) = FLUSH.get() {
        flush.wait(time_max);
    }
}

fn text<W: for<'w> MakeWriter<'w> + Send + Sync + 'static>(
    level: LogLevel,
    writer: W,
) -> impl Subscriber + Send + Sync {
    tracing_subscriber::fmt()
        .with_max_level(filter(level))
        .with_timer(SystemTime)
        .with_ansi(false)
        .with_target(false)
        .log_internal_errors(false)
        .with_writer(writer)
        .finish()
}

fn json<W: for<'w> MakeWriter<'w> + Send + Sync + 'static>(
    level: LogLevel,
    writer: W,
) -> impl Subscriber + Send + Sync {
    tracing_subscriber::fmt()
        .with_max_level(filter(level))
        .log_internal_errors(false)
        .event_format(json::Json)
        .with_writer(writer)
        .finish()
}

fn filter(level: LogLevel) -> LevelFilter {
    match level {
        LogLevel::Debug => LevelFilter::DEBUG,
        LogLevel::Info => LevelFilter::INFO,
        LogLevel::Warn => LevelFilter::WARN,
        LogLevel::Error => LevelFilter::ERROR,
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};
    use std::time::Duration;

    use tracing::{debug, info};

    use super::*;

    /// Where a test's log goes.
    #[derive(Clone, Default)]
    struct Memory(Arc<Mutex<Vec<u8>>>);

    impl io::Write for Memory {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().write(bytes)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    /// The lines that `body` logs.
    fn logged(format: LogFormat, level: LogLevel, body: impl FnOnce()) -> Vec<String> {
        let memory = Memory::default();
        let (lines, flush) = queue::start(memory.clone(), |_| ()).unwrap();
        match format {
            LogFormat::Text => subscriber::with_default(text(level, lines), body),
            LogFormat::Json => subscriber::with_default(json(level, lines), body),
        }
        assert!(flush.wait(Duration::from_secs(60)));
        let bytes = memory.0.lock().unwrap().clone();
        String::from_utf8(bytes).unwrap().split_terminator('\n').map(str::to_owned).collect()
    }

    #[test]
    fn a_line_begins_with_the_time_in_utc_with_microseconds() {
        let text = logged(LogFormat::Text, LogLevel::Info, || info!(shards = 2, "serving"));
        let json = logged(LogFormat::Json, LogLevel::Info, || info!(shards = 2, "serving"));
        let is_rfc3339 = |time: &str| {
            let pattern = "0000-00-00T00:00:00.000000Z";
            let shape = |c: char| if c.is_ascii_digit() { '0' } else { c };
            time.chars().map(shape).eq(pattern.chars())
        };
        let (time, rest) = text[0].split_once(' ').unwrap();
        assert!(is_rfc3339(time), "{text:?}");
        assert_eq!(rest.trim_start(), "INFO serving shards=2");
        let time = json[0].strip_prefix(r#"{"time":""#).unwrap();
        assert!(is_rfc3339(&time[..27]), "{json:?}");
        assert_eq!(&time[27..], r#"","level":"INFO","message":"serving","shards":2}"#);
    }

    #[test]
    fn events_below_the_level_are_left_out() {
        let lines = logged(LogFormat::Text, LogLevel::Warn, || {
            debug!("not this");
            info!("nor this");
            warn!("this");
        });
        assert_eq!(lines.len(), 1);
    }

    #[test]
    fn nothing_that_a_client_sends_breaks_a_line_or_reaches_the_terminal() {
        let name = "a\nb\r\t\u{1b}[2J\u{9b}31m\u{7f}\u{202e}\u{2028}\0é \"x=1\"";
        for format in [LogFormat::Text, LogFormat::Json] {
            let lines = logged(format, LogLevel::Info, || {
                info!(lock = name, "{name}");
                info!(lock = %name, other = ?name, "granted");
            });
            assert_eq!(lines.len(), 2, "{lines:#?}");
            for line in &lines {
                assert!(!line.chars().any(escape::must_be_escaped), "{line:?}");
                assert!(line.contains('é'), "{line:?}");
            }
        }
    }

    #[test]
    fn a_json_reader_gets_a_name_back_as_the_client_sent_it() {
        let name = "a\n\u{1b}\u{9b}\u{7f}\u{202e}é\"\\u001b";
        let lines = logged(LogFormat::Json, LogLevel::Info, || info!(lock = name, "granted"));
        let event: serde_json::Value = serde_json::from_str(&lines[0]).unwrap();
        assert_eq!(event["lock"], name);
    }
}
