//! A soak: many client processes at one server, some killed or stopped, the server restarted; and a check of what they saw.

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
use std::time::Duration;

use anyhow::Result;

use crate::Verdict;
use crate::clock::parse_duration;

pub(crate) use client::{Options as ClientOptions, live};

use entry::ClientId;
use history::History;

/// The longest hold, in leases: some heartbeats, and a lock that still moves.
const HOLD_LEASES_MAX: u32 = 2;

/// The longest stop of a client, in leases: past its own claim and well into the next holder's.
const STOP_LEASES_MAX: u32 = 2;

/// Client processes, an administrator, and the server restarted under them; what they saw and the audit log are checked.
#[derive(Debug, clap::Args)]
pub(crate) struct Options {
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

/// Checks the logs that `soak --keep` left.
#[derive(Debug, clap::Args)]
pub(crate) struct CheckOptions {
    /// The folder.
    dir: PathBuf,
}

/// Runs and checks.
pub(crate) fn run(options: &Options, program: &Path) -> Result<Verdict> {
    if options.restart_only { restarts::run(options, program) } else { run::run(options, program) }
}

/// Checks logs and prints what they tell.
pub(crate) fn check_history(options: &CheckOptions) -> Result<Verdict> {
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
