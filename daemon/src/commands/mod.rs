//! The commands: the whole command line, and what each one does first and last.

mod check;
mod ending;
mod ha_agent;
mod health;
mod line;
mod operator;
mod serve;

use std::ffi::OsString;
use std::io::{self, Write};
use std::process::ExitCode;

use cli::exit;
use ending::{fail, unknown_variables};
use line::{Ending, Invocation};

/// The whole program: understands its arguments, the first being the program's name, and does what they ask.
pub fn main(arguments: impl IntoIterator<Item = OsString>) -> ExitCode {
    let invocation = line::parse(arguments, cli::environment_variable);
    if let Some(name) = invocation.as_ref().ok().and_then(Invocation::process_name) {
        // For people who look; nothing depends on it.
        let _ = rustix::thread::set_name(name);
    }
    match invocation {
        Ok(Invocation::Serve(settings)) => serve::serve(&settings),
        Ok(Invocation::CheckConfig(reading)) => check::check(&reading),
        Ok(Invocation::Health(args)) => health::run(&args),
        Ok(Invocation::HaAgent(settings)) => ha_agent::watch(&settings),
        Ok(Invocation::Operator(command)) => operator::run(&command),
        Ok(Invocation::Run(settings)) => run::run(&settings, &unknown_variables()),
        Ok(Invocation::RunKeeper(settings)) => run::keep_for_front(&settings, &unknown_variables()),
        Ok(Invocation::RunStarter(args)) => run::start_command(&args),
        Ok(Invocation::RunGuardian(args)) => run::guard(&args),
        Err(Ending::Information(text)) => {
            // A reader that has seen enough (`| head`) is no error.
            let _ = io::stdout().write_all(text.as_bytes());
            ExitCode::SUCCESS
        }
        Err(Ending::Usage(problem)) => fail(exit::USAGE, &problem),
    }
}
