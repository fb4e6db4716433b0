//! What the clients of a drill saw, and the verdict. No clock here: times are nanoseconds of CLOCK_BOOTTIME.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::time::Duration;

use client::GIVE_UP_TENTHS;
use protocol::Token;

/// With a score of clients grants are some milliseconds apart. What is longer than this is no service.
const GAP_MIN_NS: u64 = 150_000_000;

/// A holder may believe in its lock for 0.8 of its lease after the old server's last word; this much more,
/// and somebody has confirmed it since.
const SLACK_NS: u64 = 100_000_000;

/// Reasons that are told; there are few kinds of them.
const REASONS_MAX: usize = 5;

/// A time without a grant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Gap {
    pub(super) from_ns: u64,
    pub(super) to_ns: u64,
}

/// Everything so far.
#[derive(Debug)]
pub(super) struct Record {
    lease: Duration,
    last_ns: u64,
    grants: u64,
    largest: Token,
    /// The newest grant of each lock.
    newest: BTreeMap<String, (Token, u64)>,
    gaps: Vec<Gap>,
    shown: usize,
    reasons: BTreeMap<String, u64>,
    faults: Vec<String>,
}

pub(super) struct Verdict {
    pub(super) passed: bool,
    pub(super) text: String,
}

impl Record {
    pub(super) fn new(now_ns: u64, lease: Duration) -> Self {
        Self {
            lease,
            last_ns: now_ns,
            grants: 0,
            largest: Token(0),
            newest: BTreeMap::new(),
            gaps: Vec::new(),
            shown: 0,
            reasons: BTreeMap::new(),
            faults: Vec::new(),
        }
    }

    /// The largest token that was read: a grant that is asked for from now on has a larger one.
    pub(super) fn largest(&self) -> Token {
        self.largest
    }

    /// A grant was read. `floor` is what [`Record::largest`] was before it was asked for.
    pub(super) fn granted(&mut self, now_ns: u64, floor: Token, lock: &str, token: Token) {
        if token <= floor {
            self.fault(format!("token {token} was granted after token {floor}"));
        }
        if now_ns.saturating_sub(self.last_ns) > GAP_MIN_NS {
            self.gaps.push(Gap { from_ns: self.last_ns, to_ns: now_ns });
        }
        self.last_ns = self.last_ns.max(now_ns);
        self.grants += 1;
        self.largest = self.largest.max(token);
        let newest = self.newest.entry(lock.to_owned()).or_insert((token, now_ns));
        if newest.0 < token {
            *newest = (token, now_ns);
        }
    }

    /// A client looks, and believes that it holds the lock.
    pub(super) fn holds(&mut self, now_ns: u64, lock: &str, token: Token) {
        let Some(&(newest, since_ns)) = self.newest.get(lock) else { return };
        let lease_ns = u64::try_from(self.lease.as_nanos()).unwrap_or(u64::MAX);
        let may_believe_ns = lease_ns / 10 * GIVE_UP_TENTHS + SLACK_NS;
        if token < newest && now_ns.saturating_sub(since_ns) > may_believe_ns {
            self.fault(format!("{lock}: token {token} was confirmed after token {newest} was granted"));
        }
    }

    /// An attempt failed as attempts do while the address moves.
    pub(super) fn failed(&mut self, reason: String) {
        if self.reasons.len() < REASONS_MAX || self.reasons.contains_key(&reason) {
            *self.reasons.entry(reason).or_default() += 1;
        }
    }

    /// Something that must not be.
    pub(super) fn fault(&mut self, what: String) {
        if self.faults.len() < REASONS_MAX && !self.faults.contains(&what) {
            self.faults.push(what);
        }
    }

    /// Gaps that have ended since the last call.
    pub(super) fn new_gaps(&mut self) -> Vec<Gap> {
        let gaps = self.gaps[self.shown..].to_vec();
        self.shown = self.gaps.len();
        gaps
    }

    pub(super) fn verdict(&self, now_ns: u64) -> Verdict {
        let mut faults = self.faults.clone();
        let silent_ns = now_ns.saturating_sub(self.last_ns);
        if self.grants == 0 {
            faults.push("nothing was granted".into());
        } else if silent_ns > 2 * GAP_MIN_NS {
            faults.push(format!("nothing was granted for the last {}", seconds(silent_ns)));
        }
        let longest = self.gaps.iter().map(|gap| gap.to_ns - gap.from_ns).max();
        let mut text = String::new();
        let gaps = match (self.gaps.len(), longest) {
            (1, Some(longest)) => format!("1 interruption of {}", seconds(longest)),
            (count, Some(longest)) => format!("{count} interruptions, the longest {}", seconds(longest)),
            _ => "no interruption: was there a failover?".into(),
        };
        // Writing to a string cannot fail.
        let _ = writeln!(text, "{} grants, {gaps}", self.grants);
        for (reason, count) in &self.reasons {
            let _ = writeln!(text, "{count} attempts failed: {}", logging::escape::escaped(reason));
        }
        for fault in &faults {
            let _ = writeln!(text, "WRONG: {}", logging::escape::escaped(fault));
        }
        let passed = faults.is_empty();
        if passed {
            text.push_str("passed: tokens rose, and no two clients held one lock\n");
        } else {
            text.push_str("failed\n");
        }
        Verdict { passed, text }
    }
}

fn seconds(ns: u64) -> String {
    format!("{:.3} s", Duration::from_nanos(ns).as_secs_f64())
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    fn record() -> Record {
        let mut record = Record::new(0, Duration::from_secs(1));
        record.granted(10 * MS, Token(0), "a", Token(5));
        record
    }

    #[test]
    fn an_interruption_is_from_the_last_grant_to_the_next_and_told_once() {
        let mut record = record();
        record.granted(20 * MS, Token(5), "b", Token(6));
        record.failed("refused".into());
        record.granted(420 * MS, Token(6), "b", Token(7));
        assert_eq!(record.new_gaps(), [Gap { from_ns: 20 * MS, to_ns: 420 * MS }]);
        assert_eq!(record.new_gaps(), []);
        let verdict = record.verdict(430 * MS);
        assert!(verdict.passed);
        assert_eq!(
            verdict.text,
            "3 grants, 1 interruption of 0.400 s\n1 attempts failed: refused\n\
             passed: tokens rose, and no two clients held one lock\n"
        );
    }

    #[test]
    fn a_token_that_does_not_rise_fails_the_drill() {
        let mut record = record();
        record.granted(20 * MS, Token(5), "b", Token(5));
        let verdict = record.verdict(30 * MS);
        assert!(!verdict.passed && verdict.text.contains("token 5 was granted after token 5"));
    }

    #[test]
    fn an_old_holder_may_believe_for_a_while_and_not_be_confirmed() {
        let mut record = record();
        record.granted(100 * MS, Token(5), "a", Token(9));
        record.holds(900 * MS, "a", Token(5));
        assert!(record.verdict(150 * MS).passed);
        record.holds(1100 * MS, "a", Token(5));
        assert!(record.verdict(150 * MS).text.contains("was confirmed after token 9"));
    }

    #[test]
    fn a_drill_at_whose_end_nobody_serves_fails() {
        assert!(!Record::new(0, Duration::from_secs(1)).verdict(0).passed);
        assert!(record().verdict(100 * MS).passed);
        assert!(!record().verdict(1000 * MS).passed);
    }
}
