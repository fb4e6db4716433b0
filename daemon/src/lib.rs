//! monolock: a lock server. Named locks with leases, strictly FIFO queues and fencing tokens.
//!
//! `ARCHITECTURE.md` beside the workspace's `Cargo.toml` tells how the parts fit.
#![forbid(unsafe_code)]

mod acl;
mod admin;
mod capacity;
mod check;
mod cli;
mod clock;
mod exit;
mod gate;
mod glob;
mod intake;
mod listener;
mod metrics;
mod ops;
mod reload;
mod run;
mod server;
mod settings;
mod shard;
mod systemd;
mod vital;

use std::ffi::OsString;
use std::io::{self, Write};
use std::process::ExitCode;

use logging::Logging;
use logging::escape::escaped;
use server::{Control, Ended};
use settings::{Ending, Invocation, ServeSettings};
use tracing::{error, warn};

/// The whole program: understands its arguments, the first being the program's name, and does what they ask.
pub fn main(arguments: impl IntoIterator<Item = OsString>) -> ExitCode {
    let invocation = settings::parse(arguments, flags::environment_variable);
    if let Some(name) = invocation.as_ref().ok().and_then(Invocation::process_name) {
        // For people who look; nothing depends on it.
        let _ = rustix::thread::set_name(name);
    }
    match invocation {
        Ok(Invocation::Serve(settings)) => serve(&settings),
        Ok(Invocation::CheckConfig(reading)) => check::check(&reading),
        Ok(Invocation::Operator(command)) => cli::run(&command),
        Ok(Invocation::Run(settings)) => run::run(&settings),
        Ok(Invocation::RunKeeper(settings)) => run::keep_for_front(&settings),
        Ok(Invocation::RunStarter(args)) => run::starter::start(&args),
        Ok(Invocation::RunGuardian(args)) => run::guardian::guard(&args),
        Err(Ending::Information(text)) => {
            // A reader that has seen enough (`| head`) is no error.
            let _ = io::stdout().write_all(text.as_bytes());
            ExitCode::SUCCESS
        }
        Err(Ending::Usage(problem)) => fail(exit::USAGE, &problem),
    }
}

fn serve(settings: &ServeSettings) -> ExitCode {
    vital::install_hook();
    let control = match Control::new() {
        Ok(control) => control,
        Err(error) => return fail(error.exit_status(), &error.to_string()),
    };
    let _logging = match Logging::start(settings.log_level, settings.log_format) {
        Ok(logging) => logging,
        Err(error) => return fail(exit::OS_ERROR, &format!("cannot start the log's thread: {error}")),
    };
    for name in flags::unknown_variables(settings::all()) {
        warn!(name, "a variable that is none of monolock's: mistyped? monolock --help lists what there is");
    }
    match control.serve(settings) {
        Ok(Ended::InOrder) => ExitCode::SUCCESS,
        Ok(Ended::AtOnce) => ExitCode::from(exit::INTERRUPTED),
        Err(error) => {
            error!("{error}");
            ExitCode::from(error.exit_status())
        }
    }
}

fn fail(status: u8, problem: &str) -> ExitCode {
    // Where standard error is closed, the status alone tells.
    let _ = writeln!(io::stderr(), "monolock: {}", escaped(problem));
    ExitCode::from(status)
}
