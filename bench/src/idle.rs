//! What an idle session weighs: the server's own memory before and after many of them.

use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use protocol::{Lease, LockName, NAME_BYTES_MAX};
use testkit::process::{self, Server, Start};

use crate::load::Fleet;
use crate::tls::Certificates;
use crate::usage::anonymous_bytes;
use crate::{LEASE_LONG_MS, Verdict, numbered_name};

/// Sessions and heartbeats of each that come before the first reading: more heartbeats than a shard has
/// receive buffers, so that memory which a shard touches once is not taken for the sessions'.
const WARM_SESSIONS: usize = 16;
const WARM_HEARTBEATS: usize = 2048;

/// Heartbeats of every session: what the first answers allocate belongs to the session.
const HEARTBEATS: usize = 4;

/// Memory has settled when two readings this far apart are the same, and is taken as it is after the longer
/// time.
const SETTLE_STEP: Duration = Duration::from_millis(200);
const SETTLE_MAX: Duration = Duration::from_secs(3);

/// Room for the digits that tell the sessions' locks apart.
const NAME_BYTES_MIN: usize = 8;

/// User memory of an idle session.
#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// Sessions at the last of the three steps (a ninth, a third, all).
    #[arg(long, default_value_t = 9000, value_parser = clap::value_parser!(u32).range(9..))]
    connections: u32,
    /// Length of a lock's name.
    #[arg(long, default_value_t = 16, value_parser = clap::value_parser!(u16).range(NAME_BYTES_MIN as i64..=NAME_BYTES_MAX as i64))]
    name_bytes: u16,
    /// Shards of the server.
    #[arg(long, default_value_t = 1)]
    shards: usize,
    /// Fails when a plain session takes more, its name aside, at the last step.
    #[arg(long)]
    max_bytes: Option<f64>,
    /// Measures sessions over TLS as well.
    #[arg(long)]
    tls: bool,
    /// Fails when a session over TLS takes more.
    #[arg(long, requires = "tls")]
    max_tls_bytes: Option<f64>,
}

/// Measures and prints.
pub(crate) fn run(options: &Options, program: &Path) -> Result<Verdict> {
    process::raise_nofile()?;
    let name_bytes = usize::from(options.name_bytes);
    println!("anonymous memory of the server, bytes a session; names of {name_bytes} bytes subtracted");
    println!(
        "{:<24} {:>8} {:>12} {:>10} {:>20}",
        "claims", "sessions", "KiB in all", "a session", "since the last step"
    );
    let own = |n: usize| LockName::new(&format!("{n:0name_bytes$}")).expect("8 to 255 bytes");
    let shared = |_: usize| LockName::new(&"x".repeat(name_bytes)).expect("8 to 255 bytes");
    let mut heaviest = measure(options, program, "each its own lock", own, name_bytes, None)?;
    // The name is there once, whatever the number of sessions.
    heaviest = heaviest.max(measure(options, program, "all wait for one lock", shared, 0, None)?);
    if let Some(missed) = judge("a session", heaviest, options.max_bytes) {
        return Ok(missed);
    }
    if options.tls {
        let certificates = Certificates::make(false)?;
        let heaviest =
            measure(options, program, "own locks, over TLS", own, name_bytes, Some(&certificates))?;
        if let Some(missed) = judge("a session over TLS", heaviest, options.max_tls_bytes) {
            return Ok(missed);
        }
    }
    Ok(Verdict::Met)
}

fn judge(what: &str, bytes: f64, max: Option<f64>) -> Option<Verdict> {
    let max = max.filter(|&max| bytes > max)?;
    Some(Verdict::Missed(format!("{what} takes {bytes:.0} bytes, above {max}")))
}

/// Prints each step, returns bytes a session at the last.
fn measure(
    options: &Options,
    program: &Path,
    title: &str,
    name: impl Fn(usize) -> LockName,
    name_bytes: usize,
    tls: Option<&Certificates>,
) -> Result<f64> {
    let flags = tls.map(Certificates::server_flags).unwrap_or_default();
    let dialer = tls.map(Certificates::dialer).transpose()?;
    let server = Server::start(&Start { flags, ..Start::new(program, options.shards) })?;
    let lease = Lease::from_ms(LEASE_LONG_MS).expect("a positive constant");
    let mut warm = Fleet::over(server.address(), dialer.clone())?;
    warm.join_all(WARM_SESSIONS, lease, |n| numbered_name("warm", n))?;
    (0..WARM_HEARTBEATS).try_for_each(|_| warm.beat_all())?;

    let empty = settled_bytes(&server)?;
    let (mut before, mut sessions_before) = (empty, 0);
    let mut fleet = Fleet::over(server.address(), dialer)?;
    let all = usize::try_from(options.connections)?;
    let per_session = |bytes: u64, since: u64, sessions: usize| {
        (bytes as f64 - since as f64) / sessions as f64 - name_bytes as f64
    };
    let mut last = 0.0;
    for sessions in [all / 9, all / 3, all] {
        let joining = fleet.join_all(sessions - sessions_before, lease, |n| name(sessions_before + n));
        joining.with_context(|| format!("{sessions} sessions"))?;
        (0..HEARTBEATS).try_for_each(|_| fleet.beat_all())?;
        let bytes = settled_bytes(&server)?;
        last = per_session(bytes, empty, sessions);
        let step = per_session(bytes, before, sessions - sessions_before);
        println!("{title:<24} {sessions:>8} {:>12} {last:>10.0} {step:>20.0}", bytes / 1024);
        (before, sessions_before) = (bytes, sessions);
    }
    Ok(last)
}

fn settled_bytes(server: &Server) -> Result<u64> {
    let start = Instant::now();
    let mut bytes = anonymous_bytes(server.pid())?;
    while start.elapsed() < SETTLE_MAX {
        thread::sleep(SETTLE_STEP);
        let again = anonymous_bytes(server.pid())?;
        if again == bytes {
            break;
        }
        bytes = again;
    }
    Ok(bytes)
}
