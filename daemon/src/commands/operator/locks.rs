//! `monolock locks`: every lock that is held or waited for.

use std::time::SystemTime;

use clap::Args;

use super::problem::{HELP, Problem};
use super::table::{Kind, Table};
use super::{AdminArgs, output, span};
use admin_api::PATTERN_BYTES_MAX;
use admin_api::{Client, Summary};
use admin_api::{Holder, Lock};

/// Lists the locks that are held or waited for, by name.
///
/// HOLDER is the identity in the client's certificate, or else its address; HELD is by this machine's clock.
/// On a terminal long names are cut to its width, in a pipe they are whole. What a terminal would obey is
/// shown as an escape, as in \u001b. The list is no snapshot: each lock is as it was at one moment.
///
/// For scripts, --json writes one lock a line, as the admin API describes it. In jq's words: .name; .holder,
/// null when there are only waiters, with .identity .remote_addr .since .lease_ms .token; .waiters[] in the
/// order of the queue, each with .identity .remote_addr .queued_at. Times are RFC 3339 in UTC.
#[derive(Debug, Args)]
#[command(after_help = HELP)]
pub(crate) struct LocksArgs {
    #[command(flatten)]
    pub(super) admin: AdminArgs,
    /// JSON, one lock a line.
    #[arg(long)]
    json: bool,
    /// Which names: * is any run of characters, / among them, and ? is exactly one.
    #[arg(value_parser = glob)]
    glob: Option<String>,
}

fn glob(text: &str) -> Result<String, String> {
    if text.len() > PATTERN_BYTES_MAX {
        return Err(format!("it is longer than {PATTERN_BYTES_MAX} bytes"));
    }
    Ok(text.to_owned())
}

/// Writes the list.
pub(super) async fn list(api: &Client, args: &LocksArgs) -> Result<(), Problem> {
    let pattern = args.glob.as_deref();
    if args.json {
        let write = |locks: Vec<Lock>| output::write_json(&locks);
        return api.each_page(pattern, write).await;
    }
    let mut table = table(output::terminal().map(|size| size.columns));
    let mut begun = false;
    let write = |locks: Vec<Summary>| {
        let now = SystemTime::now();
        let rows = locks.into_iter().map(|lock| row(lock, now)).collect();
        let text = if begun { table.go_on(rows) } else { table.begin(rows) };
        begun = true;
        output::write(text.as_bytes())
    };
    api.each_page(pattern, write).await
}

/// A table of locks.
pub(super) fn table(width_max: Option<usize>) -> Table<6> {
    let columns = [
        ("NAME", Kind::Text),
        ("HOLDER", Kind::Text),
        ("HELD", Kind::Number),
        ("LEASE", Kind::Number),
        ("TOKEN", Kind::Number),
        ("WAITERS", Kind::Number),
    ];
    Table::new(columns, width_max)
}

/// A lock's row in that table.
pub(super) fn row(lock: Summary, now: SystemTime) -> [String; 6] {
    let Summary { name, holder, waiters } = lock;
    let of_holder = |show: &dyn Fn(&Holder) -> String| holder.as_ref().map_or_else(|| "-".to_owned(), show);
    [
        name,
        of_holder(&|holder| who(&holder.identity, &holder.remote_addr).to_owned()),
        of_holder(&|holder| span::since(holder.since, now)),
        of_holder(&|holder| span::lease(holder.lease_ms)),
        of_holder(&|holder| holder.token.to_string()),
        waiters.to_string(),
    ]
}

fn who<'a>(identity: &'a str, address: &'a str) -> &'a str {
    if identity.is_empty() { address } else { identity }
}
