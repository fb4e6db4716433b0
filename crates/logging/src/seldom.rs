//! Log lines that others can cause as often as they like: one an interval of each kind, and then how many
//! were left out.

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

    /// Whether a line may be logged. If not, it is counted, and at the end of the interval the log says how
    /// many were.
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
