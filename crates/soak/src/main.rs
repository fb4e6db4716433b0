//! A soak: many client processes at one server, some killed or stopped, the server restarted; and a check of what
//! they saw.
#![forbid(unsafe_code)]

mod admin;
mod agreement;
mod audit;
mod check;
mod client;
mod crowd;
mod deeds;
mod entry;
mod history;
mod order;
mod ownership;
mod report;
mod restarts;
mod run;
mod schedule;

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Result;
use clap::{Parser, Subcommand};
use cli::parse_duration;
use testkit::process::{become_what_was_asked, find_program};

use entry::ClientId;
use history::History;

/// The longest hold, in leases: some heartbeats, and a lock that still moves.
const HOLD_LEASES_MAX: u32 = 2;

/// The longest stop of a client, in leases: past its own claim and well into the next holder's.
const STOP_LEASES_MAX: u32 = 2;

/// Client processes, an administrator, and the server restarted under them; what they saw and the audit log are checked.
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

/// Whether what was promised was kept.
enum Verdict {
    Met,
    Missed(String),
}

#[derive(Debug, clap::Args)]
struct Options {
    /// Client processes (with --restart-only: claims, in one process).
    #[arg(long, default_value_t = 200, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    clients: u32,
    /// Locks that they share.
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=1000))]
    locks: u32,
    /// How long they do.
    #[arg(long, default_value_t = 60, value_parser = clap::value_parser!(u32).range(1..=3600))]
    seconds: u32,
    /// The shortest lease; each claim draws one.
    #[arg(long, default_value = "1s", value_parser = parse_duration)]
    lease_min: Duration,
    /// The longest lease.
    #[arg(long, default_value = "3s", value_parser = parse_duration)]
    lease_max: Duration,
    /// Repeats an earlier schedule.
    #[arg(long)]
    seed: Option<u64>,
    /// Keeps the logs in this new folder.
    #[arg(long, value_name = "DIR")]
    keep: Option<PathBuf>,
    /// Shards of the server.
    #[arg(long, default_value_t = 2)]
    shards: usize,
    /// Only restarts the server, and shows how the claims come back.
    #[arg(long)]
    restart_only: bool,
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
        Some(Command::Check(options)) => check_history(options),
        Some(Command::Client(options)) => self::client::live(options),
        None if options.restart_only => restarts::run(options, &program()?),
        None => self::run::run(options, &program()?),
    }
}

/// Checks logs and prints what they tell.
fn check_history(options: &CheckOptions) -> Result<Verdict> {
    let history = History::read(&options.dir)?;
    report::judge(&history, &options.dir)
}

fn lock_name(lock: u32) -> String {
    format!("soak-{lock}")
}

/// The lock of this name, if it is one of a soak's.
fn lock_of(name: &str) -> Option<u32> {
    name.strip_prefix("soak-")?.parse().ok()
}

/// The server's own, of all its lives.
fn audit_log(dir: &Path) -> PathBuf {
    dir.join("audit.log")
}

fn admin_socket(dir: &Path) -> PathBuf {
    dir.join("admin.sock")
}

/// What the soak did.
fn acts_log(dir: &Path) -> PathBuf {
    dir.join("acts.log")
}

fn client_log(dir: &Path, client: ClientId) -> PathBuf {
    dir.join(format!("client-{client}.log"))
}

/// What a lock guards.
fn register(dir: &Path, lock: u32) -> PathBuf {
    dir.join(format!("register-{lock}.log"))
}
