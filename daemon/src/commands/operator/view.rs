//! What the live view shows: one frame, as text.

use std::time::{Duration, SystemTime};

use super::rank::Ranking;
use super::table::cut;
use super::{locks, span};
use admin_api::About;
use logging::escape::escaped;

/// Lines of a frame besides its locks: two of totals, an empty one, the titles, and where the cursor stays.
pub(super) const OTHER_LINES: usize = 5;

/// What one look at the server found.
#[derive(Debug)]
pub(super) struct Look {
    pub(super) about: About,
    pub(super) ranking: Ranking,
}

/// The frame of one look, or of the problem that is instead of it.
pub(super) fn frame(
    address: &str,
    look: Result<Look, String>,
    now: SystemTime,
    width_max: Option<usize>,
) -> String {
    let fitted = |line: String| cut(&escaped(&line), width_max.unwrap_or(usize::MAX)) + "\n";
    let date = span::date(now);
    match look {
        Err(problem) => {
            // Not cut: it says what to do.
            fitted(format!("monolock at {address}  {date}")) + &escaped(&problem) + "\ntrying again\n"
        }
        Ok(Look { about, ranking }) => {
            let up = span::age(Duration::from_millis(about.uptime_ms));
            let Ranking { first, locks: all, held, waiters, .. } = ranking;
            let rows = first.into_iter().map(|lock| locks::row(lock, now)).collect();
            fitted(format!("monolock {} at {address}  up {up}  {date}", about.version))
                + &fitted(format!("sessions {}  locks {all}  held {held}  waiters {waiters}", about.sessions))
                + "\n"
                + &locks::table(width_max).begin(rows)
        }
    }
}
