//! `monolock run`: a command that runs for as long as a lock is held.
//!
//! ```text
//!  shell ── front ········ the shell's job: stops and goes on as its user likes; only at a terminal
//!             │ to_front, relay: signals it got, and that it goes on ▼ ▲ stop, restore the terminal
//!           keeper ······· connection, claim, watch; never stops; subreaper of all below
//!             ├── guardian   its own group, deaf to signals; told deadlines; holds the connection too
//!             └── CMD ────── was the starter until the guardian let it go
//!                   └── …    timeout, setsid, daemons: they descend from the keeper whatever they do
//! ```
//!
//! What decides and what does:
//!
//! - The keeper, until the lock is held: `queue` decides to wait, to try again or to give up; `acquire` does,
//!   and `words` says.
//! - The keeper, from then on: `watch` decides when the command is stopped and when all is over; `keeper`
//!   does. `group`, `kin` and `members` are the command's processes, `guard` is its side of the guardian,
//!   `signals` what it hears.
//! - The guardian: `vigil` decides when it stops the command in the keeper's place; `guardian` does; `order`
//!   is what it is told.
//! - The front: `front` does; `relay` decides which signals the command has had already.
//! - The starter: `starter` becomes CMD when it is let go.
//!
//! `args`, `flags`, `settings`, `tls` and `status` are what the user gives and gets. The connection is kept
//! until all of the command is gone: closing it makes the server pass the lock on. Nothing here writes to
//! standard error itself, which may block; `voice` does. This crate never grants anything: the claim is
//! `client`'s.
//!
//! ```
//! use clap::{Args, Command, FromArgMatches};
//! use run::{RunArgs, RunSettings};
//!
//! let line = ["run", "--lease", "2s", "nightly/report", "--", "make-report"];
//! let matches = RunArgs::augment_args(Command::new("run")).get_matches_from(line);
//! let settings = RunSettings::read(RunArgs::from_arg_matches(&matches)?, |_| None)?;
//! assert_eq!(settings.to_string(), r#""nightly/report" at 127.0.0.1:7070"#);
//! # Ok::<_, Box<dyn std::error::Error>>(())
//! ```
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

/// Runs to the end; the status is CMD's, or one of those in the help. `unknown_variables` are those of the
/// environment that look like ours and are none.
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
