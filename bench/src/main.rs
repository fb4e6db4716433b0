//! Measures a monolock server.
//!
//! Every figure comes with what it has to be compared to in the same run (the floor, an earlier step, a quiet
//! phase) and with its noise. The tool starts the server itself and ends it on every path.

mod abuse;
mod attack;
mod claim;
mod clock;
mod cpus;
mod expiry;
mod floor;
mod handover;
mod heartbeats;
mod idle;
mod load;
mod pulse;
mod sessions;
mod stats;
mod storm;
mod tls;
mod usage;
mod witnesses;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Parser, Subcommand};
use protocol::LockName;
use testkit::process;

/// A lease that no run outlives: sessions that are not driven stay.
const LEASE_LONG_MS: u32 = 3_600_000;

#[derive(Debug, Parser)]
#[command(
    name = "monolock-bench",
    version,
    about = "Measures a monolock server against a bare io_uring responder"
)]
struct Cli {
    /// The server's program [default: `monolock` beside this one, else target/release/monolock].
    #[arg(long, global = true, value_name = "PATH")]
    server: Option<PathBuf>,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Floor(floor::Options),
    Heartbeats(heartbeats::Options),
    Idle(idle::Options),
    Sessions(sessions::Options),
    Handover(handover::Options),
    Expiry(expiry::Options),
    Abuse(abuse::Options),
    Storm(storm::Options),
    #[command(hide = true)]
    Hold(handover::HoldOptions),
    #[command(hide = true)]
    StormClients(storm::ClientOptions),
}

/// Whether what was measured is as demanded.
enum Verdict {
    Met,
    Missed(String),
}

fn main() -> ExitCode {
    process::become_what_was_asked();
    match run(&Cli::parse()) {
        Ok(Verdict::Met) => ExitCode::SUCCESS,
        Ok(Verdict::Missed(why)) => {
            eprintln!("monolock-bench: missed: {why}");
            ExitCode::from(1)
        }
        Err(error) => {
            eprintln!("monolock-bench: {error:#}");
            ExitCode::from(2)
        }
    }
}

fn run(cli: &Cli) -> anyhow::Result<Verdict> {
    // Waits of a fraction of a millisecond; the usual slack would add 50 µs to each.
    rustix::thread::set_current_timer_slack(std::num::NonZeroU64::new(1))?;
    let program = || process::find_program(cli.server.as_deref());
    match &cli.command {
        Command::Floor(options) => floor::run(options),
        Command::Heartbeats(options) => heartbeats::run(options, &program()?),
        Command::Idle(options) => idle::run(options, &program()?),
        Command::Sessions(options) => sessions::run(options, &program()?),
        Command::Handover(options) => handover::run(options, &program()?),
        Command::Expiry(options) => expiry::run(options, &program()?),
        Command::Abuse(options) => abuse::run(options, &program()?),
        Command::Storm(options) => storm::run(options, &program()?),
        Command::StormClients(options) => storm::run_clients(options),
        Command::Hold(options) => handover::hold(options),
    }
}

/// `prefix-n`: a lock name of a crowd.
fn numbered_name(prefix: &str, n: usize) -> LockName {
    LockName::new(&format!("{prefix}-{n}")).expect("short prefixes")
}
