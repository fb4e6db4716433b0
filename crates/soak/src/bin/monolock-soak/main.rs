//! `monolock-soak`: many client processes at one server, some killed or stopped, the server restarted; and a
//! check of what they saw.
#![forbid(unsafe_code)]

mod acts;
mod admin;
mod client;
mod crowd;
mod options;
mod pauses;
mod restarts;
mod run;
mod schedule;
mod verdict;

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Result;
use clap::{Parser, Subcommand};
use testkit::process::{become_what_was_asked, find_program};

use options::Options;
use verdict::{Verdict, judge};

/// Runs client processes, an administrator, and a server that restarts under them; then checks what they saw
/// and the audit log.
#[derive(Debug, Parser)]
#[command(name = "monolock-soak", version, args_conflicts_with_subcommands = true)]
struct Cli {
    /// The server's program [default: `monolock` beside this one, else target/release/monolock].
    #[arg(long, value_name = "PATH")]
    server: Option<PathBuf>,
    #[command(flatten)]
    options: Options,
    #[command(subcommand)]
    command: Option<Command>,
}

#[derive(Debug, Subcommand)]
enum Command {
    Check(CheckOptions),
    #[command(hide = true)]
    Client(self::client::Options),
}

/// Checks the logs that `--keep` left.
#[derive(Debug, clap::Args)]
struct CheckOptions {
    /// The folder.
    dir: PathBuf,
}

fn main() -> ExitCode {
    become_what_was_asked();
    match run(&Cli::parse()) {
        Ok(Verdict::Met) => ExitCode::SUCCESS,
        Ok(Verdict::Missed(why)) => {
            eprintln!("monolock-soak: missed: {why}");
            ExitCode::from(1)
        }
        Err(error) => {
            eprintln!("monolock-soak: {error:#}");
            ExitCode::from(2)
        }
    }
}

fn run(Cli { server, options, command }: &Cli) -> Result<Verdict> {
    let program = || find_program(server.as_deref());
    match command {
        Some(Command::Check(options)) => judge(&options.dir),
        Some(Command::Client(options)) => self::client::live(options),
        None if options.restart_only => restarts::run(options, &program()?),
        None => self::run::run(options, &program()?),
    }
}
