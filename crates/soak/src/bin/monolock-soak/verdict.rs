//! The verdict of this program.

use std::path::Path;

use anyhow::Result;
use soak::{check, logs, report};

/// Violations that are shown; the rest is only counted.
const SHOWN_MAX: usize = 10;

/// Whether what was promised was kept.
pub(crate) enum Verdict {
    Met,
    Missed(String),
}

/// Reads the logs in a folder, and prints their figures and what is wrong.
pub(crate) fn judge(dir: &Path) -> Result<Verdict> {
    let history = logs::read(dir)?;
    print!("{}", report::figures(&history));
    let violations = check(&history);
    for violation in violations.iter().take(SHOWN_MAX) {
        print!("{}", report::shown(violation, dir)?);
    }
    Ok(match violations.len() {
        0 => {
            println!("every promise was kept");
            Verdict::Met
        }
        count => Verdict::Missed(format!("{count} times a promise was broken")),
    })
}
