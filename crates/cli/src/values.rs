//! What many settings take. An error says what is wrong with the text, without the text itself.

use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use crate::parse_duration;

/// What an empty text turns off.
///
/// # Errors
///
/// As for the value itself.
pub fn optional<T: FromStr<Err = String>>(text: &str) -> Result<Option<T>, String> {
    if text.is_empty() { Ok(None) } else { text.parse().map(Some) }
}

/// A switch: `true` or `false`, `1` or `0`; off for an empty text.
///
/// # Errors
///
/// It is something else.
pub fn switch(text: &str) -> Result<bool, String> {
    match text {
        "true" | "1" => Ok(true),
        "" | "false" | "0" => Ok(false),
        _ => Err("true or false is expected".into()),
    }
}

/// A duration above zero.
///
/// # Errors
///
/// It is zero, or none.
pub fn positive_duration(text: &str) -> Result<Duration, String> {
    let duration = parse_duration(text)?;
    if duration.is_zero() { Err("the duration must be positive".into()) } else { Ok(duration) }
}

/// A path, or `-`; `None` for an empty text.
///
/// # Errors
///
/// It is not UTF-8.
pub fn optional_path_or_dash(text: &str) -> Result<Option<String>, String> {
    // What a variable has instead of bytes that are no Unicode: not the path that was meant.
    if text.contains(char::REPLACEMENT_CHARACTER) {
        Err("the path is not UTF-8".into())
    } else {
        Ok(Some(text.to_owned()).filter(|text| !text.is_empty()))
    }
}

/// A path; `None` for an empty text.
///
/// # Errors
///
/// It is not UTF-8.
pub fn optional_path(text: &str) -> Result<Option<PathBuf>, String> {
    optional_path_or_dash(text).map(|path| path.map(PathBuf::from))
}
