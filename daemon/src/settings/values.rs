//! What single settings take. An error says what is wrong with the text, without the text itself.

use std::num::NonZeroUsize;

use logging::{LogFormat, LogLevel};

/// The most shards: as many CPUs as the kernel's affinity sets of usual size hold.
const SHARDS_MAX: usize = 1024;

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

pub(super) fn shard_count(text: &str) -> Result<Option<NonZeroUsize>, String> {
    if text.is_empty() {
        return Ok(None);
    }
    let count = text.parse().ok().filter(|count: &NonZeroUsize| count.get() <= SHARDS_MAX);
    count.map(Some).ok_or_else(|| format!("a number from 1 to {SHARDS_MAX} is expected"))
}
