//! The looks at what readiness is judged by: for each scrape and probe one, and between them often enough to
//! know since when something is wrong.

use std::time::Duration;

use super::phase::Phase;
use super::readiness::{Judge, Verdict};
use super::sources::Sources;
use super::vitals::Vitals;
use super::window::Window;
use crate::clock;
use crate::metrics::cells::Cells;
use crate::settings::ReadySettings;

/// How often there is a look when nobody asks: so exactly is it known since when something is wrong.
pub(super) const LOOK_INTERVAL: Duration = Duration::from_millis(100);

/// One look: what was seen, and what it means.
#[derive(Debug, Clone)]
pub(super) struct Look {
    pub(super) vitals: Vitals,
    pub(super) verdict: Verdict,
    /// From where on the 99th percentile is worth a warning.
    pub(super) p99_max: Duration,
}

/// What was seen so far.
#[derive(Debug)]
pub(super) struct Watch {
    sources: Sources,
    /// The last numbers read of each shard.
    shards: Vec<Cells>,
    window: Window,
    judge: Judge,
}

impl Watch {
    pub(super) fn new(sources: Sources, settings: ReadySettings) -> Self {
        Self {
            shards: vec![Cells::default(); sources.shards.len()],
            window: Window::new(clock::monotonic_ns()),
            judge: Judge::new(settings),
            sources,
        }
    }

    /// Looks now.
    pub(super) fn look(&mut self, phase: Phase) -> Look {
        let now_ns = clock::monotonic_ns();
        if self.window.is_due(now_ns) {
            self.read_shards();
            let mut all = Cells::default();
            self.shards.iter().for_each(|cells| all.merge(cells));
            self.window.take(now_ns, &all);
        }
        let vitals = Vitals::read(&self.sources, phase, self.window.p99_ns());
        let verdict = self.judge.judge(&vitals);
        Look { vitals, verdict, p99_max: self.judge.p99_max() }
    }

    fn read_shards(&mut self) {
        for (cells, published) in self.shards.iter_mut().zip(&self.sources.shards) {
            if let Some(read) = published.read() {
                *cells = read;
            }
        }
    }
}
