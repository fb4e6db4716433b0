//! What several commands say before they do something, or instead.

use std::io::{self, Write};
use std::process::ExitCode;

use logging::escape::escaped;

use crate::settings;

/// Says one line on standard error. The status tells where that is closed.
pub(super) fn fail(status: u8, problem: &str) -> ExitCode {
    // Where standard error is closed, the status alone tells.
    let _ = writeln!(io::stderr(), "monolock: {}", escaped(problem));
    ExitCode::from(status)
}

/// Variables of the environment that look like monolock's and are none.
pub(super) fn unknown_variables() -> Vec<String> {
    cli::unknown_variables(settings::all())
}
