//! What a user may choose about a soak.

use std::path::PathBuf;
use std::time::Duration;

use cli::parse_duration;

/// Of a run.
#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// Client processes (with --restart-only: claims, in one process).
    #[arg(long, default_value_t = 200, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub(crate) clients: u32,
    /// Locks that they share.
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub(crate) locks: u32,
    /// How long they do.
    #[arg(long, default_value_t = 60, value_parser = clap::value_parser!(u32).range(1..=3600))]
    pub(crate) seconds: u32,
    /// The shortest lease; each claim draws one.
    #[arg(long, default_value = "1s", value_parser = parse_duration)]
    pub(crate) lease_min: Duration,
    /// The longest lease.
    #[arg(long, default_value = "3s", value_parser = parse_duration)]
    pub(crate) lease_max: Duration,
    /// Repeats an earlier schedule.
    #[arg(long)]
    pub(crate) seed: Option<u64>,
    /// Keeps the logs in this new folder.
    #[arg(long, value_name = "DIR")]
    pub(crate) keep: Option<PathBuf>,
    /// Shards of the server.
    #[arg(long, default_value_t = 2)]
    pub(crate) shards: usize,
    /// Only restarts the server, and shows how the claims come back.
    #[arg(long)]
    pub(crate) restart_only: bool,
}
