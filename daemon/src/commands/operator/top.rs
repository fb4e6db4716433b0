//! `monolock top`: a live view of locks and queues.

use std::time::{Duration, Instant, SystemTime};

use clap::Args;

use super::AdminArgs;
use super::output::{self, Size};
use super::problem::{HELP, Problem};
use super::rank::{Ranking, Sort};
use super::view::{self, Look};
use admin_api::Client;
use cli::parse_duration;

/// The shortest time between two looks: a person sees no more, and the server has better things to do.
const INTERVAL_MIN: Duration = Duration::from_millis(100);

/// Locks of a frame where no terminal says how many fit: they fit on the smallest.
const ROWS_DEFAULT: usize = 20;

/// The most locks of a frame: a page of the API.
const ROWS_MAX: usize = admin_api::PAGE_LOCKS_MAX;

/// Shows locks and queues, again and again.
///
/// The totals are of all locks that are held or waited for; the table has the first ones by --sort. A look at
/// very many locks takes a while: half of the time at least is left between two. Rates (grants, releases) are
/// not to be had from looks; the server's /metrics has them.
///
/// While the server does not answer, the frame says why, and it goes on trying; with --once it ends. Over a
/// pipe, or with TERM=dumb, frames follow each other with an empty line between them. Ctrl-C ends it.
#[derive(Debug, Args)]
#[command(after_help = HELP)]
pub(crate) struct TopArgs {
    #[command(flatten)]
    pub(super) admin: AdminArgs,
    /// The time between two looks.
    #[arg(long, value_name = "DURATION", default_value = "2s", value_parser = interval)]
    interval: Duration,
    /// How many locks are shown [default: what fits on the terminal, 20 in a pipe].
    #[arg(long, value_name = "N", value_parser = rows)]
    rows: Option<usize>,
    /// What comes first.
    #[arg(long, value_name = "ORDER", default_value = "waiters")]
    sort: Sort,
    /// One frame, and that is all.
    #[arg(long)]
    once: bool,
}

fn interval(text: &str) -> Result<Duration, String> {
    let interval = parse_duration(text)?;
    if interval < INTERVAL_MIN {
        return Err(format!("at least {} ms are expected", INTERVAL_MIN.as_millis()));
    }
    Ok(interval)
}

fn rows(text: &str) -> Result<usize, String> {
    let rows = text.parse().ok().filter(|rows| *rows <= ROWS_MAX);
    rows.ok_or_else(|| format!("a number up to {ROWS_MAX} is expected"))
}

/// Shows frames until the reader has gone.
pub(super) async fn top(api: &Client, args: &TopArgs) -> Result<(), Problem> {
    if args.once {
        let size = output::terminal();
        let look = look(api, args, args.rows.unwrap_or(fitting(size))).await?;
        return output::write(frame(api, Ok(look), size).as_bytes());
    }
    let redraws = output::terminal().is_some() && obeys(std::env::var_os("TERM").as_deref());
    loop {
        let started = Instant::now();
        let size = output::terminal();
        let fitting = fitting(size);
        // More would move the top of the frame out of sight.
        let rows = args.rows.map_or(fitting, |rows| if redraws { rows.min(fitting) } else { rows });
        let look = look(api, args, rows).await.map_err(|problem| problem.to_string());
        let frame = frame(api, look, size);
        output::write(if redraws { redrawn(&frame) } else { frame + "\n" }.as_bytes())?;
        tokio::time::sleep(args.interval.max(started.elapsed())).await;
    }
}

/// Whether a terminal of this type understands more than text.
fn obeys(term: Option<&std::ffi::OsStr>) -> bool {
    term.is_some_and(|term| !term.is_empty() && term != "dumb")
}

/// How many locks a frame has place for.
fn fitting(size: Option<Size>) -> usize {
    size.map_or(ROWS_DEFAULT, |size| size.rows.saturating_sub(view::OTHER_LINES))
}

async fn look(api: &Client, args: &TopArgs, rows: usize) -> Result<Look, Problem> {
    let mut ranking = Ranking::new(args.sort, rows);
    let about = api.about().await?;
    api.each_page(None, |locks| {
        ranking.add(locks);
        Ok::<_, Problem>(())
    })
    .await?;
    Ok(Look { about, ranking })
}

fn frame(api: &Client, look: Result<Look, String>, size: Option<Size>) -> String {
    view::frame(&api.address(), look, SystemTime::now(), size.map(|size| size.columns))
}

/// A frame in place of the last one: from the top left, each line to its end, and nothing below.
fn redrawn(frame: &str) -> String {
    let lines: String = frame.lines().map(|line| format!("{line}\x1b[K\n")).collect();
    format!("\x1b[H{lines}\x1b[J")
}
