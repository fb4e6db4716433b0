//! `monolock release` and `monolock kick`: take a lock from its holder, or a waiter out of the line.

use std::net::SocketAddr;
use std::time::SystemTime;

use clap::Args;

use super::problem::{HELP, Problem};
use super::{LockArgs, output, span};
use admin_api::Client;
use admin_api::{Kicked, Released};
use logging::escape::{escaped, shown};

/// Takes a lock from its holder, at once and without asking; the next in line has it.
///
/// The holder is told, and may still work for a moment: tokens keep it out. --json writes
/// {"name":…,"released":…} with the holder as it was.
#[derive(Debug, Args)]
#[command(after_help = HELP)]
pub(crate) struct ReleaseArgs {
    #[command(flatten)]
    pub(super) of: LockArgs,
    /// Only from the holder with this token, as `monolock inspect` shows it, and not from one that came after
    /// it.
    #[arg(long, value_name = "N")]
    token: Vec<u64>,
}

/// Takes one waiter out of a lock's line; the others keep their order.
///
/// The waiter is told: `monolock run` ends with status 75, other clients may queue again at the end. --json
/// writes {"name":…,"kicked":…} with the waiter as it was.
#[derive(Debug, Args)]
#[command(after_help = HELP)]
pub(crate) struct KickArgs {
    #[command(flatten)]
    pub(super) of: LockArgs,
    /// The waiter's address and port, as `monolock inspect` shows them.
    #[arg(value_name = "ADDR", value_parser = waiter)]
    waiter: SocketAddr,
}

fn waiter(text: &str) -> Result<SocketAddr, &'static str> {
    text.parse()
        .map_err(|_| "an address and a port are expected, as in 192.0.2.1:40000 or [2001:db8::1]:40000")
}

/// Force-releases, and says who held the lock.
pub(super) async fn release(api: &Client, args: &ReleaseArgs) -> Result<(), Problem> {
    let token = match args.token[..] {
        [] => None,
        [token] => Some(token),
        // Of two tokens neither is meant for sure.
        _ => return Err(Problem::Usage("--token is given more than once".to_owned())),
    };
    let done = api.release(&args.of.name, token).await?;
    if args.of.json {
        return output::write_json(&[done]);
    }
    let Released { name, released } = done;
    say(&format!(
        "released {}: {} held it for {}, token {}",
        shown(&name),
        who(&released.remote_addr, &released.identity),
        span::since(released.since, SystemTime::now()),
        released.token,
    ))
}

/// Kicks, and says whom.
pub(super) async fn kick(api: &Client, args: &KickArgs) -> Result<(), Problem> {
    let done = api.kick(&args.of.name, args.waiter).await?;
    if args.of.json {
        return output::write_json(&[done]);
    }
    let Kicked { name, kicked } = done;
    say(&format!(
        "kicked {} out of the line for {}, after {}",
        who(&kicked.remote_addr, &kicked.identity),
        shown(&name),
        span::since(kicked.queued_at, SystemTime::now()),
    ))
}

fn say(sentence: &str) -> Result<(), Problem> {
    output::write(format!("{}\n", escaped(sentence)).as_bytes())
}

fn who(address: &str, identity: &str) -> String {
    if identity.is_empty() { address.to_owned() } else { format!("{address} ({})", shown(identity)) }
}
