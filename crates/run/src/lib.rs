//! `monolock run`: a command that runs for as long as a lock is held.
//!
//! Until the lock is held, [`queue`] decides and [`acquire`] does. From then on [`watch`] decides; [`starter`], [`group`], [`kin`]
//! and [`signals`] do. A second process, the [`guardian`], stops the command when this one does not; at a terminal a third one,
//! the [`front`], is the shell's job. The connection is kept until all of the command is gone: closing it makes the server pass
//! the lock on. Nothing here writes to standard error itself, which may block; the [`voice`] does.
#![forbid(unsafe_code)]
#![deny(clippy::print_stderr, clippy::print_stdout)]

mod acquire;
mod address;
mod args;
mod flags;
mod front;
mod group;
mod guard;
mod guardian;
mod input;
mod keeper;
mod kin;
mod members;
mod order;
mod queue;
mod relay;
mod settings;
mod signals;
mod starter;
mod status;
mod this_program;
mod tls;
mod to_front;
mod vigil;
mod voice;
mod watch;
mod words;

use std::process::ExitCode;

use front::Need;
use this_program::THIS_PROGRAM;
use to_front::ToFront;

pub use args::RunArgs;
pub use flags::Run;
pub use guardian::{GuardianArgs, guard};
pub use settings::RunSettings;
pub use starter::{StarterArgs, start as start_command};

/// Runs to the end; the status is CMD's, or one of those in [`status`]. `unknown_variables` are those of the environment that
/// look like ours and are none.
pub fn run(settings: &RunSettings, unknown_variables: &[String]) -> ExitCode {
    if let Err(error) = std::fs::metadata(THIS_PROGRAM) {
        return keeper::cannot_start(&format!(
            "it needs /proc, where {THIS_PROGRAM} cannot be found: {error}"
        ));
    }
    match Need::of_this_process() {
        // The first argument after the program's name is this subcommand's.
        Some(need) => front::stand(&need, std::env::args_os().skip(2))
            .unwrap_or_else(|error| keeper::cannot_start(&format!("starting its keeper: {error}"))),
        None => keeper::keep(settings, unknown_variables, None),
    }
}

/// The same as a front's keeper.
pub fn keep_for_front(settings: &RunSettings, unknown_variables: &[String]) -> ExitCode {
    match ToFront::take() {
        Ok(front) => keeper::keep(settings, unknown_variables, Some(front)),
        Err(error) => keeper::cannot_start(&format!("hearing of its front: {error}")),
    }
}
