//! The log of what is done.

use std::fs::File;
use std::path::Path;

use anyhow::{Context, Result};
use client::boottime_ns;
use soak::logs::entry::{Act, ActLine, append};
use soak::logs::names::acts_log;

/// What is done, logged before it is done.
pub(crate) struct Acts(File);

impl Acts {
    pub(crate) fn create(dir: &Path) -> Result<Self> {
        let path = acts_log(dir);
        Ok(Self(File::create_new(&path).with_context(|| path.display().to_string())?))
    }

    pub(crate) fn note(&self, act: Act) -> Result<()> {
        append(&self.0, &ActLine { at_ns: boottime_ns(), act })?;
        Ok(())
    }
}
