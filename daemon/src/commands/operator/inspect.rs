//! `monolock inspect`: one lock with its whole queue.

use std::fmt::Write;
use std::time::SystemTime;

use clap::Args;

use super::problem::{HELP, Problem};
use super::table::{Kind, Table};
use super::{LockArgs, output, span};
use admin_api::Client;
use admin_api::{Lock, Waiter};
use logging::escape::shown;

/// Shows one lock: its holder, and its whole queue in order.
///
/// ADDRESS is what `monolock kick` takes. --json writes the same line as in `monolock locks --json`.
#[derive(Debug, Args)]
#[command(after_help = HELP)]
pub(crate) struct InspectArgs {
    #[command(flatten)]
    pub(super) of: LockArgs,
}

/// Writes what there is to know of a lock.
pub(super) async fn inspect(api: &Client, args: &InspectArgs) -> Result<(), Problem> {
    let lock = api.lock(&args.of.name).await?;
    if args.of.json {
        return output::write_json(&[lock]);
    }
    let width_max = output::terminal().map(|size| size.columns);
    output::write(text(lock, SystemTime::now(), width_max).as_bytes())
}

fn text(lock: Lock, now: SystemTime, width_max: Option<usize>) -> String {
    let mut text = String::new();
    let mut line = |key: &str, value: &str| {
        writeln!(text, "{key:<9}{}", shown(value)).expect("a string takes everything");
    };
    line("name", &lock.name);
    match &lock.holder {
        None => line("holder", "-"),
        Some(holder) => {
            line("holder", &holder.remote_addr);
            line("identity", dash_if_empty(&holder.identity));
            line(
                "held",
                &format!("{}, since {}", span::since(holder.since, now), span::date(holder.since.0)),
            );
            line("lease", &span::lease(holder.lease_ms));
            line("token", &holder.token.to_string());
        }
    }
    line("waiters", &lock.waiters.len().to_string());
    if !lock.waiters.is_empty() {
        text += "\n";
        text += &queue(lock.waiters, now, width_max);
    }
    text
}

fn queue(waiters: Vec<Waiter>, now: SystemTime, width_max: Option<usize>) -> String {
    let columns =
        [("POS", Kind::Number), ("ADDRESS", Kind::Word), ("WAITING", Kind::Number), ("IDENTITY", Kind::Text)];
    let rows = waiters.into_iter().zip(1..).map(|(waiter, position): (Waiter, u64)| {
        let identity = dash_if_empty(&waiter.identity).to_owned();
        [position.to_string(), waiter.remote_addr, span::since(waiter.queued_at, now), identity]
    });
    Table::new(columns, width_max).begin(rows.collect())
}

fn dash_if_empty(text: &str) -> &str {
    if text.is_empty() { "-" } else { text }
}
