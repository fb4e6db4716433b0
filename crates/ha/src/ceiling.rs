//! Token ceilings of a pair: how far the active node may count, and from where its successor counts.
//!
//! The two rules fit together, and the proof is short. The standby stamps a copy with a time *before* the
//! active read out what it copied; the active learns of the copy *after* it was stored. So the active's
//! `elapsed` is at most the standby's `age`, and the step that the active adds is the step that its
//! successor adds.

use serde::{Deserialize, Serialize};

use crate::identity::BootId;

/// A token above which nothing is issued, in units of a token: 2⁻²⁰ s.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
pub struct Ceiling(pub u64);

/// One second, in units of a token.
const SECOND: u64 = 1 << 20;
/// One step, in units of a token: a ceiling is raised 2 s ahead of use.
pub const STEP: u64 = 2 * SECOND;
/// What a successor adds for everything that was rounded, in units of a token.
const SLACK: u64 = SECOND;

impl Ceiling {
    /// This ceiling and `units` of a token more.
    pub(crate) fn plus(self, units: u64) -> Self {
        Self(self.0.saturating_add(units))
    }

    /// This ceiling and a time of `ns` more, rounded down.
    fn plus_ns(self, ns: u64) -> Self {
        self.plus(u64::try_from((u128::from(ns) << 20) / 1_000_000_000).unwrap_or(u64::MAX))
    }
}

/// A ceiling, and when it was so.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Stamped {
    /// The ceiling.
    pub ceiling: Ceiling,
    /// The boot whose clock `at_ns` is.
    pub boot: BootId,
    /// CLOCK_BOOTTIME, ns.
    pub at_ns: u64,
}

impl Stamped {
    /// What it may have grown to by now: its age × 1.001 more. A stamp of another boot has no age.
    fn aged(self, boot: BootId, now_ns: u64) -> Ceiling {
        let age_ns = if self.boot == boot { now_ns.saturating_sub(self.at_ns) } else { 0 };
        self.ceiling.plus_ns(age_ns.saturating_add(age_ns / 1000 + 1))
    }
}

/// Where a node begins to count whose predecessor did not say its final ceiling (a power fence, `--force-
/// unfenced`): copied ceiling + age of the copy × 1.001 + one step + 1 s (spec: "Tokens of a pair").
///
/// A node that was active itself, was fenced, and comes back without having read its successor has no fresh
/// copy. Its own last ceiling, aged likewise, stands in for that: the successor began from it, two steps
/// away.
pub(crate) fn begin_unsaid(own: Stamped, copied: Option<Stamped>, boot: BootId, now_ns: u64) -> Ceiling {
    let own = own.aged(boot, now_ns).plus(2 * (STEP + SLACK));
    let copied = copied.map(|copied| copied.aged(boot, now_ns).plus(STEP + SLACK));
    copied.map_or(own, |copied| copied.max(own))
}

/// How far an active node may raise its ceiling: what the standby has confirmed, the time that has passed
/// since, and one step; whatever its wall clock says.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Allowance {
    confirmed: Ceiling,
    since_ns: u64,
}

impl Allowance {
    /// From the ceiling with which a term begins: both nodes know it.
    pub(crate) fn begin(ceiling: Ceiling, now_ns: u64) -> Self {
        Self { confirmed: ceiling, since_ns: now_ns }
    }

    /// The highest ceiling that may be stored now.
    pub(crate) fn limit(self, now_ns: u64) -> Ceiling {
        self.confirmed.plus_ns(now_ns.saturating_sub(self.since_ns)).plus(STEP)
    }

    /// The standby says what it has stored. Only a confirmation that allows more counts.
    pub(crate) fn confirm(&mut self, copied: Ceiling, now_ns: u64) {
        let confirmed = Self::begin(copied, now_ns);
        if confirmed.limit(now_ns) > self.limit(now_ns) {
            *self = confirmed;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BOOT: BootId = BootId(1);
    const S: u64 = 1_000_000_000;

    fn at(ceiling_s: u64, at_ns: u64) -> Stamped {
        Stamped { ceiling: Ceiling(ceiling_s * SECOND), boot: BOOT, at_ns }
    }

    #[test]
    fn a_successor_begins_above_whatever_an_active_node_may_have_issued() {
        // Copies that were lost, stored late, and a clock that runs 0.1% fast on the active node.
        for (copied_at_s, confirmed_at_s, dies_at_s) in
            [(0, 0, 0), (0, 1, 1), (5, 9, 500), (100, 100, 90_000)]
        {
            let mut allowance = Allowance::begin(Ceiling(1_000 * SECOND), 0);
            let copied = allowance.limit(copied_at_s * S);
            allowance.confirm(copied, confirmed_at_s * S);
            let dies_fast_ns = dies_at_s * S + dies_at_s * S / 1001;
            let issued_max = allowance.limit(dies_fast_ns);
            let copied = Stamped { ceiling: copied, boot: BOOT, at_ns: copied_at_s * S };
            let begin = begin_unsaid(at(0, 0), Some(copied), BOOT, dies_at_s * S);
            assert!(begin >= issued_max, "{copied_at_s} {dies_at_s}: {begin:?} {issued_max:?}");
        }
    }

    #[test]
    fn an_older_confirmation_takes_nothing_back() {
        let mut allowance = Allowance::begin(Ceiling(10 * SECOND), 0);
        let before = allowance.limit(100 * S);
        allowance.confirm(Ceiling(SECOND), 100 * S);
        assert_eq!(allowance.limit(100 * S), before);
        allowance.confirm(Ceiling(200 * SECOND), 100 * S);
        assert_eq!(allowance.limit(101 * S), Ceiling(203 * SECOND));
    }

    #[test]
    fn a_fenced_node_that_fences_back_unheard_begins_above_its_successor() {
        // Y is active with ceiling 100 s, X copied that at 0 and shoots Y at 10 s.
        let x_begins = begin_unsaid(at(0, 0), Some(at(100, 0)), BOOT, 10 * S);
        let x_ends = Allowance::begin(x_begins, 10 * S).limit(20 * S);
        // Y restarts on the same boot with an ancient copy of X, and shoots at 20 s.
        let y_begins = begin_unsaid(at(100, 0), Some(at(3, 0)), BOOT, 20 * S);
        assert!(y_begins >= x_ends, "{y_begins:?} {x_ends:?}");
    }
}
