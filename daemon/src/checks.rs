//! What readiness looks at, by name, and which of its warnings are made to fail, from when on.

use std::time::Duration;

use cli::parse_duration;
use cli::values::positive_duration;

/// The 99th percentile of heartbeats' service time that is worth a warning. Microseconds are normal, and a
/// lease of a tenth of a second is in danger from a fifth of it on.
const P99_MAX_DEFAULT: Duration = Duration::from_millis(5);

/// One thing that readiness looks at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Check {
    /// The process is neither starting nor shutting down.
    Serving,
    /// Every shard's loop turns.
    Shards,
    /// The token ceiling leaves room, or rises.
    Ceiling,
    /// The agent is connected.
    Agent,
    /// No fence is pending.
    Fence,
    /// Heartbeats are served fast.
    P99,
    /// There is room for another connection.
    Descriptors,
    /// The wall clock is synchronised.
    Clock,
    /// Others are heard.
    Isolated,
    /// The audit log is written.
    Audit,
}

/// How many checks there are.
pub(crate) const CHECKS: usize = Check::ALL.len();

impl Check {
    pub(crate) const ALL: [Self; 10] = [
        Self::Serving,
        Self::Shards,
        Self::Ceiling,
        Self::Agent,
        Self::Fence,
        Self::P99,
        Self::Descriptors,
        Self::Clock,
        Self::Isolated,
        Self::Audit,
    ];

    /// Those that are warnings unless a [`Limit`] makes them fail.
    const WARNINGS: [Self; 5] = [Self::P99, Self::Descriptors, Self::Clock, Self::Isolated, Self::Audit];

    /// The value of the label `check`, and the name in a list of limits.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Serving => "serving",
            Self::Shards => "shards",
            Self::Ceiling => "ceiling",
            Self::Agent => "agent",
            Self::Fence => "fence",
            Self::P99 => "p99",
            Self::Descriptors => "descriptors",
            Self::Clock => "clock",
            Self::Isolated => "isolated",
            Self::Audit => "audit",
        }
    }
}

/// A warning that is to fail.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Limit {
    pub(crate) check: Check,
    /// Of [`Check::P99`] only, and there only where it was given.
    pub(crate) above: Option<Duration>,
    /// So long it must have been there.
    pub(crate) lasting: Duration,
}

/// Which warnings are to fail, each at most once: `p99=5ms:10s,descriptors,clock:60s,isolated,audit`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Limits(Vec<Limit>);

impl Limits {
    /// Reads `NAME[=ABOVE][:LASTING]`, with commas between several; none from an empty text.
    ///
    /// # Errors
    ///
    /// What is wrong, by the name of the warning.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let mut limits = Self::default();
        if text.is_empty() {
            return Ok(limits);
        }
        for item in text.split(',') {
            let limit = Limit::parse(item)?;
            if limits.of(limit.check).is_some() {
                return Err(format!("{} is there twice", limit.check.name()));
            }
            limits.0.push(limit);
        }
        Ok(limits)
    }

    pub(crate) fn of(&self, check: Check) -> Option<&Limit> {
        self.0.iter().find(|limit| limit.check == check)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Limit> {
        self.0.iter()
    }

    /// From where on the 99th percentile is worth a warning.
    pub(crate) fn p99_max(&self) -> Duration {
        self.of(Check::P99).and_then(|limit| limit.above).unwrap_or(P99_MAX_DEFAULT)
    }
}

impl Limit {
    fn parse(item: &str) -> Result<Self, String> {
        let (what, lasting) = match item.split_once(':') {
            Some((what, lasting)) => (what, Some(lasting)),
            None => (item, None),
        };
        let (name, above) = match what.split_once('=') {
            Some((name, above)) => (name, Some(above)),
            None => (what, None),
        };
        let check = warning(name)?;
        let of_this = |problem| format!("{name}: {problem}");
        let above = above.map(|above| match check {
            Check::P99 => positive_duration(above).map_err(of_this),
            _ => Err(format!("{name} takes no limit: write {name} or {name}:60s")),
        });
        let lasting = lasting.map_or(Ok(Duration::ZERO), |lasting| parse_duration(lasting).map_err(of_this));
        Ok(Self { check, above: above.transpose()?, lasting: lasting? })
    }
}

fn warning(name: &str) -> Result<Check, String> {
    match Check::ALL.into_iter().find(|check| check.name() == name) {
        Some(check) if Check::WARNINGS.contains(&check) => Ok(check),
        Some(Check::Fence) => {
            Err("fence is never a failure: it would take the address away, cancel the fence, and begin again"
                .to_owned())
        }
        Some(_) => Err(format!("{name} fails anyway")),
        None => {
            let known = Check::WARNINGS.map(Check::name).join(", ");
            Err(format!("{name:?} is none of {known}"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limit(check: Check, above_ms: Option<u64>, lasting_s: u64) -> Limit {
        let above = above_ms.map(Duration::from_millis);
        Limit { check, above, lasting: Duration::from_secs(lasting_s) }
    }

    #[test]
    fn each_warning_may_have_a_duration_and_p99_a_limit_too() {
        let limits = Limits::parse("p99=2ms:10s,descriptors,clock:1m,isolated:0,audit").unwrap();
        let expected = [
            limit(Check::P99, Some(2), 10),
            limit(Check::Descriptors, None, 0),
            limit(Check::Clock, None, 60),
            limit(Check::Isolated, None, 0),
            limit(Check::Audit, None, 0),
        ];
        assert_eq!(limits.iter().copied().collect::<Vec<_>>(), expected);
        assert_eq!(limits.p99_max(), Duration::from_millis(2));
        assert_eq!(Limits::parse("p99:3s").unwrap().p99_max(), P99_MAX_DEFAULT);
        assert_eq!(Limits::parse("").unwrap(), Limits::default());
        assert_eq!(Limits::default().p99_max(), P99_MAX_DEFAULT);
    }

    #[test]
    fn a_mistake_is_told_by_the_name_of_the_warning() {
        for (text, problem) in [
            ("p98=5ms", "\"p98\" is none of p99, descriptors, clock, isolated, audit"),
            ("clock,", "\"\" is none of"),
            ("clock, audit", "\" audit\" is none of"),
            ("Clock", "\"Clock\" is none of"),
            ("p99=5", "p99: the duration has no unit"),
            ("p99=", "p99: a duration is"),
            ("p99=0", "p99: the duration must be positive"),
            ("p99=5ms:", "p99: a duration is"),
            ("clock:-1s", "clock: a duration cannot be negative"),
            ("clock=60s", "clock takes no limit: write clock or clock:60s"),
            ("audit,p99=5ms,audit:3s", "audit is there twice"),
            ("shards", "shards fails anyway"),
            ("fence", "fence is never a failure"),
        ] {
            let error = Limits::parse(text).unwrap_err();
            assert!(error.starts_with(problem), "{text}: {error}");
        }
    }
}
