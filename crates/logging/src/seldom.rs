//! Log lines that others can cause as often as they like: one an interval of each kind, and then how many were left out.

use std::mem;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::{Instant, sleep_until};
use tracing::{Level, info, warn};

/// One kind of line. Clones are of the same kind.
#[derive(Debug, Clone)]
pub struct Seldom(Arc<Kind>);

#[derive(Debug)]
struct Kind {
    name: &'static str,
    level: Level,
    interval: Duration,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// When the last line was logged.
    logged: Option<Instant>,
    /// Lines since then.
    left_out: u64,
}

impl Seldom {
    /// Lines of this level, INFO or WARN; `name` stands before the number of those that were left out.
    pub fn new(name: &'static str, level: Level, interval: Duration) -> Self {
        Self(Arc::new(Kind { name, level, interval, state: Mutex::default() }))
    }

    /// Whether a line may be logged. If not, it is counted, and at the end of the interval the log says how many were.
    ///
    /// # Panics
    ///
    /// Outside of a tokio runtime.
    pub fn may_log(&self) -> bool {
        let now = Instant::now();
        let mut state = self.0.state();
        let next = state.logged.map(|logged| logged + self.0.interval).filter(|next| *next > now);
        let Some(next) = next else {
            state.logged = Some(now);
            return true;
        };
        state.left_out += 1;
        if state.left_out == 1 {
            let kind = Arc::clone(&self.0);
            tokio::spawn(async move {
                sleep_until(next).await;
                kind.say_left_out();
            });
        }
        false
    }
}

impl Kind {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn say_left_out(&self) {
        let left_out = mem::take(&mut self.state().left_out);
        if left_out == 0 {
            return;
        }
        match self.level {
            Level::WARN => warn!(left_out, "{}: more lines like this one were left out", self.name),
            _ => info!(left_out, "{}: more lines like this one were left out", self.name),
        }
    }
}

/// The end of the process loses none either.
impl Drop for Kind {
    fn drop(&mut self) {
        self.say_left_out();
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::sleep;

    use super::*;
    use testkit::diagnostics::Diagnostics;

    const INTERVAL: Duration = Duration::from_secs(1);

    fn log(seldom: &Seldom, times: usize) {
        (0..times).filter(|_| seldom.may_log()).for_each(|number| info!(number, "refused"));
    }

    #[tokio::test(start_paused = true)]
    async fn of_many_lines_one_an_interval_is_logged_and_the_others_are_told_by_number_also_when_no_more_come()
     {
        let diagnostics = Diagnostics::new();
        let seldom = Seldom::new("refused", Level::INFO, INTERVAL);
        log(&seldom, 5);
        assert_eq!(diagnostics.lines(), [" INFO refused number=0"]);
        sleep(2 * INTERVAL).await;
        let left_out = " INFO refused: more lines like this one were left out left_out=4";
        assert_eq!(diagnostics.lines(), [" INFO refused number=0", left_out]);
        log(&seldom, 1);
        sleep(10 * INTERVAL).await;
        assert_eq!(diagnostics.lines()[2..], [" INFO refused number=0"]);
    }

    #[tokio::test(start_paused = true)]
    async fn the_end_tells_the_number_too_and_in_the_level_of_the_lines() {
        let diagnostics = Diagnostics::new();
        let seldom = Seldom::new("cannot accept", Level::WARN, INTERVAL);
        log(&seldom, 3);
        drop(seldom);
        sleep(2 * INTERVAL).await;
        let left_out = " WARN cannot accept: more lines like this one were left out left_out=2";
        assert_eq!(diagnostics.lines()[1..], [left_out]);
    }
}
