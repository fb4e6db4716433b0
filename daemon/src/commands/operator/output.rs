//! Standard output: how wide and high it is, and writing to it.

use std::io::{self, Write};

use rustix::termios::{isatty, tcgetwinsize};
use serde::Serialize;

use super::problem::Problem;
use admin_api::json;

/// What a terminal that does not tell its size is taken for: the size of the first ones, which all are made
/// for.
const COLUMNS_DEFAULT: usize = 80;
const ROWS_DEFAULT: usize = 24;

/// A terminal's size, in characters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Size {
    pub(super) columns: usize,
    pub(super) rows: usize,
}

/// The size of the terminal that standard output is; `None` for a pipe or a file.
pub(super) fn terminal() -> Option<Size> {
    let stdout = io::stdout();
    if !isatty(&stdout) {
        return None;
    }
    let told = tcgetwinsize(&stdout).ok();
    let or = |told: Option<u16>, default| told.filter(|told| *told > 0).map_or(default, usize::from);
    Some(Size {
        columns: or(told.map(|told| told.ws_col), COLUMNS_DEFAULT),
        rows: or(told.map(|told| told.ws_row), ROWS_DEFAULT),
    })
}

/// Writes text, all of it before this returns.
pub(super) fn write(text: &[u8]) -> Result<(), Problem> {
    let mut stdout = io::stdout().lock();
    stdout.write_all(text)?;
    Ok(stdout.flush()?)
}

/// Says something beside the output. Where nobody hears it, it is not worth an error.
pub(super) fn tell(sentence: &str) {
    let _ = writeln!(io::stderr(), "{sentence}");
}

/// Writes lines of JSON.
pub(super) fn write_json(values: &[impl Serialize]) -> Result<(), Problem> {
    write(&values.iter().flat_map(json::line).collect::<Vec<_>>())
}
