//! What many settings take. An error says what is wrong with the text, without the text itself.

use std::path::PathBuf;
use std::time::Duration;

use crate::parse_duration;

pub fn empty_or<T>(parse: impl Fn(&str) -> Result<T, String>) -> impl Fn(&str) -> Result<Option<T>, String> {
    move |text| if text.is_empty() { Ok(None) } else { parse(text).map(Some) }
}

pub fn positive_duration(text: &str) -> Result<Duration, String> {
    let duration = parse_duration(text)?;
    if duration.is_zero() { Err("the duration must be positive".into()) } else { Ok(duration) }
}

/// A path, or `-`.
pub fn path_or_dash(text: &str) -> Result<String, String> {
    // What a variable has instead of bytes that are no Unicode: not the path that was meant.
    if text.contains(char::REPLACEMENT_CHARACTER) {
        Err("the path is not UTF-8".into())
    } else {
        Ok(text.into())
    }
}

pub fn path(text: &str) -> Result<PathBuf, String> {
    path_or_dash(text).map(PathBuf::from)
}
