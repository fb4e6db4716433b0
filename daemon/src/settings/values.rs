//! What single settings take. An error says what is wrong with the text, without the text itself.

use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::time::Duration;

use crate::duration::parse_duration;
use crate::logging::{LogFormat, LogLevel};

/// The most shards: as many CPUs as the kernel's affinity sets of usual size hold.
const SHARDS_MAX: usize = 1024;

pub(super) fn empty_or<T>(
    parse: impl Fn(&str) -> Result<T, String>,
) -> impl Fn(&str) -> Result<Option<T>, String> {
    move |text| if text.is_empty() { Ok(None) } else { parse(text).map(Some) }
}

pub(super) fn positive_duration(text: &str) -> Result<Duration, String> {
    let duration = parse_duration(text)?;
    if duration.is_zero() { Err("the duration must be positive".into()) } else { Ok(duration) }
}

pub(super) fn log_level(text: &str) -> Result<LogLevel, String> {
    match text {
        "debug" => Ok(LogLevel::Debug),
        "info" => Ok(LogLevel::Info),
        "warn" => Ok(LogLevel::Warn),
        "error" => Ok(LogLevel::Error),
        _ => Err("one of debug, info, warn, error is expected".into()),
    }
}

pub(super) fn log_format(text: &str) -> Result<LogFormat, String> {
    match text {
        "text" => Ok(LogFormat::Text),
        "json" => Ok(LogFormat::Json),
        _ => Err("one of text, json is expected".into()),
    }
}

pub(super) fn shard_count(text: &str) -> Result<NonZeroUsize, String> {
    let count = text.parse().ok().filter(|count: &NonZeroUsize| count.get() <= SHARDS_MAX);
    count.ok_or_else(|| format!("a number from 1 to {SHARDS_MAX} is expected"))
}

/// A path, or `-`.
pub(super) fn path_or_dash(text: &str) -> Result<String, String> {
    // What a variable has instead of bytes that are no Unicode: not the path that was meant.
    if text.contains(char::REPLACEMENT_CHARACTER) {
        Err("the path is not UTF-8".into())
    } else {
        Ok(text.into())
    }
}

pub(super) fn path(text: &str) -> Result<PathBuf, String> {
    path_or_dash(text).map(PathBuf::from)
}
