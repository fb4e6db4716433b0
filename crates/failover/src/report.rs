//! Figures of one scenario.

use std::fmt;
use std::time::Duration;

/// What one run came to.
#[derive(Debug, Clone)]
pub struct Run {
    /// From the last answer of the old server to the first grant of the new one; none where it is no figure.
    pub gap: Option<Duration>,
    /// What proved that the old server can no longer act.
    pub fence: String,
    /// Until our own clients, which back off, had their locks again: the median and the last.
    pub ours: Option<(Duration, Duration)>,
}

/// All runs of one scenario.
#[derive(Debug)]
pub struct Figures<'a> {
    /// The scenario.
    pub name: &'a str,
    /// Each run.
    pub runs: &'a [Run],
    /// The bound, where there is one.
    pub limit: Option<Duration>,
}

impl Figures<'_> {
    /// Sorted gaps.
    fn gaps(&self) -> Vec<Duration> {
        let mut gaps: Vec<Duration> = self.runs.iter().filter_map(|run| run.gap).collect();
        gaps.sort_unstable();
        gaps
    }

    /// The median gap.
    pub fn median(&self) -> Option<Duration> {
        let gaps = self.gaps();
        gaps.get(gaps.len() / 2).copied()
    }

    /// Whether the median keeps to the bound; a busy machine has single runs that do not.
    pub fn keeps_limit(&self) -> bool {
        self.median().zip(self.limit).is_none_or(|(median, limit)| median <= limit)
    }
}

impl fmt::Display for Figures<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let gaps = self.gaps();
        let seconds = |time: Option<Duration>| {
            time.map_or_else(|| "-".into(), |time| format!("{:.3} s", time.as_secs_f64()))
        };
        let last = |of: fn(&(Duration, Duration)) -> Duration| {
            let mut times: Vec<Duration> =
                self.runs.iter().filter_map(|run| run.ours.as_ref().map(of)).collect();
            times.sort_unstable();
            seconds(times.get(times.len() / 2).copied())
        };
        let mut fences: Vec<&str> = self.runs.iter().map(|run| run.fence.as_str()).collect();
        fences.sort_unstable();
        fences.dedup();
        write!(
            f,
            "| {} | {} | {} | {} | {} | {} / {} | {} |",
            self.name,
            self.runs.len(),
            seconds(self.median()),
            seconds(gaps.last().copied()),
            seconds(self.limit),
            last(|ours| ours.0),
            last(|ours| ours.1),
            fences.join("; "),
        )
    }
}

/// The head of the table.
pub const HEAD: &str = "\
| what happens | runs | gap, median | worst | limit | our clients back: half / all | fence |
| --- | --- | --- | --- | --- | --- | --- |";
