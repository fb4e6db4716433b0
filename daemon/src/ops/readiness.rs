//! Whether this instance should receive traffic, judged from what others published.

use std::time::Duration;

use super::phase::Phase;
use super::sources::Ceiling;
use super::vitals::{Audit, Vitals};
use crate::checks::{CHECKS, Check};
use crate::settings::ReadySettings;

/// How long the token ceiling may be reached, and an agent away, before that fails.
const GRACE_NS: u64 = 1_000_000_000;

/// How long audit events may wait without one being written, before that is worth a warning: a hundred of the
/// writer's rests.
const AUDIT_STILL_NS: u64 = 1_000_000_000;

/// How long a lost audit event is worth a warning.
const AUDIT_LOST_NS: u64 = 10_000_000_000;

/// A look that comes so late, five times its interval, was held up itself, as by a machine that was paused.
const LOOK_LATE_NS: u64 = 500_000_000;

/// So long shards may then take for their next turn: the longest sleep of a healthy one is 200 ms.
const CATCH_UP_NS: u64 = 250_000_000;

/// How often they may: where every look is late, a shard that hangs is found all the same.
const CATCH_UP_INTERVAL_NS: u64 = 5_000_000_000;

const NS_PER_MS: u64 = 1_000_000;

/// Why the gate lets nobody through; `None` while it is open.
pub(super) fn closed(phase: Phase, gate: locks::Gate) -> Option<&'static str> {
    match (phase, gate) {
        (Phase::ShuttingDown, _) | (_, locks::Gate::ShuttingDown) => Some("shutting down"),
        (Phase::Starting, _) => Some("starting"),
        (Phase::Serving, locks::Gate::Standby) => Some("standby"),
        (Phase::Serving, locks::Gate::Open(_)) => None,
    }
}

/// A line of the answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Line {
    pub(super) text: String,
    /// This instance should receive no traffic; else it is a warning.
    pub(super) fails: bool,
}

/// What came out.
#[derive(Debug, Clone, Default)]
pub(super) struct Verdict {
    pub(super) lines: Vec<Line>,
    /// For how long each check has gone wrong, in the order of [`Check::ALL`]; 0 = fine.
    pub(super) failing_ns: [u64; CHECKS],
}

impl Verdict {
    pub(super) fn is_ready(&self) -> bool {
        self.lines.iter().all(|line| !line.fails)
    }
}

/// The judge: the rules, and since when what is wrong. Times are CLOCK_MONOTONIC.
#[derive(Debug)]
pub(super) struct Judge {
    rules: ReadySettings,
    since_ns: [Option<u64>; CHECKS],
    /// The last ceiling seen, and since when it is that and reached.
    ceiling: Option<(Ceiling, u64)>,
    audit: Option<AuditSeen>,
    looked_ns: Option<u64>,
    /// When a look was late, and shards were let catch up.
    late_ns: Option<u64>,
}

/// The audit log as it stood at the last look.
#[derive(Debug, Clone, Copy)]
struct AuditSeen {
    dropped_total: u64,
    lost_ns: Option<u64>,
    written_total: u64,
    /// An event was written, or none waited.
    moved_ns: u64,
}

/// One thing that is wrong.
struct Wrong {
    check: Check,
    since_ns: u64,
    text: String,
}

impl Judge {
    pub(super) fn new(rules: ReadySettings) -> Self {
        Self { rules, since_ns: [None; CHECKS], ceiling: None, audit: None, looked_ns: None, late_ns: None }
    }

    /// From where on the 99th percentile is worth a warning.
    pub(super) fn p99_max(&self) -> Duration {
        self.rules.limits.p99_max()
    }

    /// Judges. To be asked often: what nobody looked at has no beginning.
    pub(super) fn judge(&mut self, vitals: &Vitals) -> Verdict {
        let now_ns = vitals.now_ns;
        let mut wrong = Vec::new();
        let catching_up = self.are_catching_up(now_ns);
        self.serving(vitals, &mut wrong);
        // Shards that have not turned yet, or never will again, are part of starting and shutting down.
        if vitals.phase == Phase::Serving && !catching_up {
            self.shards(vitals, &mut wrong);
        }
        self.pair(vitals, &mut wrong);
        self.warnings(vitals, &mut wrong);

        let mut verdict = Verdict::default();
        let before = std::mem::take(&mut self.since_ns);
        for Wrong { check, since_ns, text } in wrong {
            let index = check as usize;
            let since_ns = before[index].map_or(since_ns, |before_ns| before_ns.min(since_ns));
            let since_ns = self.since_ns[index].map_or(since_ns, |other_ns| other_ns.min(since_ns));
            self.since_ns[index] = Some(since_ns);
            // At least 1: it is not fine.
            let lasting_ns = now_ns.saturating_sub(since_ns).max(1);
            verdict.failing_ns[index] = verdict.failing_ns[index].max(lasting_ns);
            if let Some(fails) = self.fails(check, lasting_ns) {
                verdict.lines.push(Line { text, fails });
            }
        }
        if vitals.phase != Phase::Serving {
            verdict.lines.truncate(1);
        }
        // What fails comes first.
        verdict.lines.sort_by_key(|line| !line.fails);
        verdict
    }

    /// Whether the whole process stood still until now, so that the age of the shards' beats says nothing.
    fn are_catching_up(&mut self, now_ns: u64) -> bool {
        let looked_ns = self.looked_ns.replace(now_ns).unwrap_or(now_ns);
        let may_again = self.late_ns.is_none_or(|late_ns| now_ns - late_ns >= CATCH_UP_INTERVAL_NS);
        if now_ns - looked_ns > LOOK_LATE_NS && may_again {
            self.late_ns = Some(now_ns);
        }
        self.late_ns.is_some_and(|late_ns| now_ns - late_ns < CATCH_UP_NS)
    }

    /// Whether it fails after that time, or is a warning; `None` while it is not worth a line.
    fn fails(&self, check: Check, lasting_ns: u64) -> Option<bool> {
        match check {
            Check::Serving | Check::Shards => Some(true),
            Check::Ceiling | Check::Agent => (lasting_ns >= GRACE_NS).then_some(true),
            Check::Fence => Some(false),
            Check::P99 | Check::Descriptors | Check::Clock | Check::Isolated | Check::Audit => {
                let limit = self.rules.limits.of(check);
                Some(limit.is_some_and(|limit| u128::from(lasting_ns) >= limit.lasting.as_nanos()))
            }
        }
    }

    fn serving(&self, vitals: &Vitals, wrong: &mut Vec<Wrong>) {
        let text = match vitals.phase {
            Phase::Serving if vitals.gives_address => "the address goes to the peer: a switchover",
            Phase::Serving => return,
            Phase::Starting => "starting",
            Phase::ShuttingDown => "shutting down",
        };
        wrong.push(Wrong { check: Check::Serving, since_ns: vitals.now_ns, text: text.to_owned() });
    }

    /// Each shard has its line.
    fn shards(&self, vitals: &Vitals, wrong: &mut Vec<Wrong>) {
        let stall_ns_max = u64::try_from(self.rules.stall_max.as_nanos()).unwrap_or(u64::MAX);
        for (shard, stall_ns) in vitals.stalls_ns.iter().enumerate() {
            let (over_ns, text) = match *stall_ns {
                None => (0, format!("shard {shard}: no turn yet")),
                Some(stall_ns) if stall_ns > stall_ns_max => (
                    stall_ns - stall_ns_max,
                    format!("shard {shard}: no turn for {} ms", stall_ns / NS_PER_MS),
                ),
                Some(_) => continue,
            };
            let since_ns = vitals.now_ns.saturating_sub(over_ns);
            wrong.push(Wrong { check: Check::Shards, since_ns, text });
        }
    }

    /// What only a server of a pair has.
    fn pair(&mut self, vitals: &Vitals, wrong: &mut Vec<Wrong>) {
        let now_ns = vitals.now_ns;
        let before = self.ceiling.take();
        if let Some(ceiling) = vitals.ceiling
            && ceiling.reached
        {
            // One that has risen meanwhile is reached anew.
            let since_ns =
                before.filter(|(seen, _)| *seen == ceiling).map_or(now_ns, |(_, since_ns)| since_ns);
            self.ceiling = Some((ceiling, since_ns));
            if before.is_some_and(|(seen, _)| seen != ceiling) {
                self.since_ns[Check::Ceiling as usize] = None;
            }
            let text = format!("token ceiling: reached, and not risen for {}", for_ms(now_ns - since_ns));
            wrong.push(Wrong { check: Check::Ceiling, since_ns, text });
        }
        let since = |check: Check| self.since_ns[check as usize].unwrap_or(now_ns);
        if vitals.agent_connected == Some(false) {
            let since_ns = since(Check::Agent);
            let text = format!("agent: not connected for {}", for_ms(now_ns - since_ns));
            wrong.push(Wrong { check: Check::Agent, since_ns, text });
        }
        if vitals.fence_pending == Some(true) {
            let text = "fence pending: this node wants to be active, and may not yet".to_owned();
            wrong.push(Wrong { check: Check::Fence, since_ns: now_ns, text });
        }
    }

    fn warnings(&mut self, vitals: &Vitals, wrong: &mut Vec<Wrong>) {
        let p99_ns_max = u64::try_from(self.p99_max().as_nanos()).unwrap_or(u64::MAX);
        let slow = vitals.p99_ns.filter(|p99_ns| *p99_ns > p99_ns_max).map(|p99_ns| {
            let (p99_ms, max_ms) = (ms(p99_ns), ms(p99_ns_max));
            format!("p99 of heartbeats: {p99_ms} ms over the last 10 s, above {max_ms} ms")
        });
        let full = match (&vitals.places, vitals.table_full) {
            (_, true) => Some("descriptors: the process has as many open files as it may".to_owned()),
            (places, _) if places.taken >= places.all => {
                Some(format!("descriptors: all {} places for connections are taken", places.all))
            }
            _ => None,
        };
        let clock = (vitals.clock_synchronised == Some(false)).then(|| "clock: not synchronised".to_owned());
        let isolated = (vitals.isolated == Some(true)).then(|| "isolated: no other host is heard".to_owned());
        let audit = self.audit(vitals);
        let all = [
            (Check::P99, slow),
            (Check::Descriptors, full),
            (Check::Clock, clock),
            (Check::Isolated, isolated),
            (Check::Audit, audit),
        ];
        wrong.extend(
            all.into_iter()
                .filter_map(|(check, text)| Some(Wrong { check, since_ns: vitals.now_ns, text: text? })),
        );
    }

    /// Why the audit log is not written as it should.
    fn audit(&mut self, vitals: &Vitals) -> Option<String> {
        let (now_ns, log) = (vitals.now_ns, vitals.audit?);
        let Audit { fails, dropped_total, written_total, unwritten } = log;
        let before =
            self.audit.unwrap_or(AuditSeen { dropped_total, lost_ns: None, written_total, moved_ns: now_ns });
        let lost = dropped_total != before.dropped_total;
        let moved = unwritten == 0 || written_total != before.written_total;
        let seen = AuditSeen {
            dropped_total,
            lost_ns: if lost { Some(now_ns) } else { before.lost_ns },
            written_total,
            moved_ns: if moved { now_ns } else { before.moved_ns },
        };
        self.audit = Some(seen);
        let still_ns = now_ns - seen.moved_ns;
        if fails {
            Some("audit log: it cannot be written".to_owned())
        } else if still_ns >= AUDIT_STILL_NS {
            Some(format!("audit log: {unwritten} events wait, and none is written for {}", for_ms(still_ns)))
        } else if seen.lost_ns.is_some_and(|lost_ns| now_ns - lost_ns < AUDIT_LOST_NS) {
            Some("audit log: events were lost in the last 10 s".to_owned())
        } else {
            None
        }
    }
}

fn for_ms(ns: u64) -> String {
    format!("{} ms", ns / NS_PER_MS)
}

/// Milliseconds with the digits that matter.
fn ms(ns: u64) -> f64 {
    (ns as f64 / 1e4).round() / 1e2
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checks::Limits;
    use crate::ops::phase::Lifecycle;
    use crate::ops::tests::ready_settings;
    use crate::ops::vitals::Places;

    const MS: u64 = NS_PER_MS;
    const S: u64 = 1000 * MS;
    const NOW_NS: u64 = 100 * S;

    fn judge_of(limits: &str) -> Judge {
        Judge::new(ReadySettings { limits: Limits::parse(limits).unwrap(), ..ready_settings() })
    }

    /// A server in health, with all parts.
    fn vitals(now_ns: u64) -> Vitals {
        Vitals {
            now_ns,
            phase: Phase::Serving,
            gate: locks::Gate::Open(locks::Opening::FIRST),
            gives_address: false,
            stalls_ns: vec![Some(0), Some(S)],
            ceiling: Some(Ceiling { token: 1, reached: false }),
            agent_connected: Some(true),
            fence_pending: Some(false),
            p99_ns: Some(5 * MS),
            places: Places { all: 8, taken: 7 },
            table_full: false,
            clock_synchronised: Some(true),
            isolated: Some(false),
            audit: Some(Audit { fails: false, dropped_total: 3, written_total: 9, unwritten: 0 }),
        }
    }

    fn said(verdict: &Verdict) -> Vec<String> {
        let line = |line: &Line| format!("{}{}", if line.fails { "" } else { "warning: " }, line.text);
        verdict.lines.iter().map(line).collect()
    }

    fn failing_ns(verdict: &Verdict, check: Check) -> u64 {
        verdict.failing_ns[check as usize]
    }

    /// Looks each 100 ms for a while. What was said at first, and what at last; how long readiness failed.
    fn looks(
        judge: &mut Judge,
        for_ns: u64,
        change: impl Fn(&mut Vitals, u64),
    ) -> (Vec<String>, Vec<String>, u64) {
        let mut verdicts = (0..=for_ns / (100 * MS)).map(|step| {
            let mut vitals = vitals(NOW_NS + step * 100 * MS);
            change(&mut vitals, step * 100 * MS);
            judge.judge(&vitals)
        });
        let first = verdicts.next().unwrap();
        let (mut last, mut failed) = (said(&first), u64::from(!first.is_ready()));
        for verdict in verdicts {
            failed += u64::from(!verdict.is_ready());
            last = said(&verdict);
        }
        (said(&first), last, failed * 100 * MS)
    }

    #[test]
    fn ready_is_who_serves_and_with_whom_nothing_is_wrong() {
        let verdict = judge_of("").judge(&vitals(NOW_NS));
        assert!(verdict.is_ready() && verdict.lines.is_empty(), "{verdict:?}");
        assert_eq!(verdict.failing_ns, [0; CHECKS]);
        for (phase, line) in [(Phase::Starting, "starting"), (Phase::ShuttingDown, "shutting down")] {
            // Shards that do not turn then are no news.
            let bad = Vitals { phase, stalls_ns: vec![None], isolated: Some(true), ..vitals(NOW_NS) };
            let verdict = judge_of("").judge(&bad);
            assert!(!verdict.is_ready());
            assert_eq!(said(&verdict), [line]);
            assert!(failing_ns(&verdict, Check::Serving) > 0);
        }
    }

    #[test]
    fn what_a_server_does_not_have_is_fine() {
        let bare = Vitals {
            ceiling: None,
            agent_connected: None,
            fence_pending: None,
            p99_ns: None,
            clock_synchronised: None,
            isolated: None,
            audit: None,
            ..vitals(NOW_NS)
        };
        let verdict = judge_of("p99,descriptors,clock,isolated,audit").judge(&bare);
        assert!(verdict.is_ready() && verdict.lines.is_empty(), "{verdict:?}");
    }

    #[test]
    fn each_stalled_shard_has_its_line_and_the_longest_stall_counts() {
        let stalls_ns = vec![None, Some(0), Some(1532 * MS), Some(S + 1), Some(S)];
        let verdict = judge_of("").judge(&Vitals { stalls_ns, ..vitals(NOW_NS) });
        let expected =
            ["shard 0: no turn yet", "shard 2: no turn for 1532 ms", "shard 3: no turn for 1000 ms"];
        assert_eq!(said(&verdict), expected);
        assert_eq!(failing_ns(&verdict, Check::Shards), 532 * MS);
        assert!(!verdict.is_ready());
    }

    #[test]
    fn how_long_a_shard_may_stall_is_a_setting() {
        let settings = ReadySettings { stall_max: Duration::from_secs(3), ..ready_settings() };
        let mut judge = Judge::new(settings);
        assert!(judge.judge(&Vitals { stalls_ns: vec![Some(3 * S)], ..vitals(NOW_NS) }).is_ready());
        assert!(!judge.judge(&Vitals { stalls_ns: vec![Some(3 * S + 1)], ..vitals(NOW_NS) }).is_ready());
    }

    #[test]
    fn a_process_that_stood_still_as_a_whole_lets_its_shards_turn_first() {
        let mut judge = judge_of("");
        let stalled = |now_ns| Vitals { stalls_ns: vec![Some(9 * S)], ..vitals(now_ns) };
        judge.judge(&vitals(NOW_NS));
        let woken_ns = NOW_NS + 9 * S;
        assert!(judge.judge(&stalled(woken_ns)).is_ready());
        assert!(judge.judge(&stalled(woken_ns + CATCH_UP_NS - 1)).is_ready());
        assert!(!judge.judge(&stalled(woken_ns + CATCH_UP_NS)).is_ready(), "this one hangs");
        // Where every look is late, that is no excuse.
        let failed = (1..10).filter(|look| !judge.judge(&stalled(woken_ns + look * S)).is_ready()).count();
        assert_eq!(failed, 8);
    }

    #[test]
    fn a_ceiling_that_is_reached_fails_when_it_has_not_risen_for_a_second() {
        let reached = |vitals: &mut Vitals, _| vitals.ceiling = Some(Ceiling { token: 7, reached: true });
        let (first, last, failed_ns) = looks(&mut judge_of(""), 2 * S, reached);
        assert!(first.is_empty(), "{first:?}");
        assert_eq!(last, ["token ceiling: reached, and not risen for 2000 ms"]);
        assert_eq!(failed_ns, 1100 * MS, "from one second on");

        let rising = |vitals: &mut Vitals, at_ns: u64| {
            vitals.ceiling = Some(Ceiling { token: at_ns / (900 * MS), reached: true });
        };
        assert_eq!(looks(&mut judge_of(""), 5 * S, rising).2, 0);
        let with_pauses = |vitals: &mut Vitals, at_ns: u64| {
            vitals.ceiling = Some(Ceiling { token: 7, reached: !at_ns.is_multiple_of(500 * MS) });
        };
        assert_eq!(looks(&mut judge_of(""), 5 * S, with_pauses).2, 0);
    }

    #[test]
    fn an_agent_may_be_away_for_a_second() {
        let away = |vitals: &mut Vitals, at_ns: u64| vitals.agent_connected = Some(at_ns > 1500 * MS);
        let mut judge = judge_of("");
        assert_eq!(looks(&mut judge, 3 * S, away).2, 600 * MS);
        let (_, last, _) = looks(&mut judge_of(""), S, away);
        assert_eq!(last, ["agent: not connected for 1000 ms"]);
    }

    #[test]
    fn a_pending_fence_is_only_ever_a_warning() {
        let pending = |vitals: &mut Vitals, _| vitals.fence_pending = Some(true);
        let (_, last, failed_ns) =
            looks(&mut judge_of("p99,descriptors,clock,isolated,audit"), 60 * S, pending);
        assert_eq!(last, ["warning: fence pending: this node wants to be active, and may not yet"]);
        assert_eq!(failed_ns, 0);
    }

    /// What makes one of the warnings.
    fn wrong(check: Check, vitals: &mut Vitals) {
        match check {
            Check::P99 => vitals.p99_ns = Some(7_125_000),
            Check::Descriptors => vitals.places.taken = 8,
            Check::Clock => vitals.clock_synchronised = Some(false),
            Check::Isolated => vitals.isolated = Some(true),
            Check::Audit => vitals.audit.as_mut().unwrap().fails = true,
            other => panic!("{other:?} is no warning"),
        }
    }

    #[test]
    fn a_warning_fails_only_when_asked_for_and_once_it_has_lasted() {
        for (check, line) in [
            (Check::P99, "p99 of heartbeats: 7.13 ms over the last 10 s, above 5 ms"),
            (Check::Descriptors, "descriptors: all 8 places for connections are taken"),
            (Check::Clock, "clock: not synchronised"),
            (Check::Isolated, "isolated: no other host is heard"),
            (Check::Audit, "audit log: it cannot be written"),
        ] {
            let change = |vitals: &mut Vitals, _| wrong(check, vitals);
            let warned = vec![format!("warning: {line}")];
            let (first, last, failed_ns) = looks(&mut judge_of(""), 3 * S, change);
            assert_eq!((first, last, failed_ns), (warned.clone(), warned.clone(), 0));
            let (first, last, failed_ns) =
                looks(&mut judge_of(&format!("{}:2s", check.name())), 3 * S, change);
            assert_eq!((first, last), (warned, vec![line.to_owned()]));
            assert_eq!(failed_ns, 1100 * MS);
            let (_, _, failed_ns) = looks(&mut judge_of(check.name()), 3 * S, change);
            assert_eq!(failed_ns, 3100 * MS, "at once");
        }
    }

    #[test]
    fn a_warning_that_went_away_begins_anew() {
        let mut judge = judge_of("clock:2s");
        let unsteady = |vitals: &mut Vitals, at_ns: u64| {
            vitals.clock_synchronised = Some(at_ns.is_multiple_of(1900 * MS))
        };
        assert_eq!(looks(&mut judge, 10 * S, unsteady).2, 0);
    }

    #[test]
    fn what_fails_comes_before_what_is_a_warning() {
        let mut judge = judge_of("isolated");
        let mut bad = vitals(NOW_NS);
        [Check::Clock, Check::Isolated].into_iter().for_each(|check| wrong(check, &mut bad));
        assert_eq!(
            said(&judge.judge(&bad)),
            ["isolated: no other host is heard", "warning: clock: not synchronised"]
        );
    }

    #[test]
    fn a_table_that_is_full_is_worth_the_warning_of_full_places() {
        let verdict = judge_of("").judge(&Vitals { table_full: true, ..vitals(NOW_NS) });
        assert_eq!(said(&verdict), ["warning: descriptors: the process has as many open files as it may"]);
    }

    #[test]
    fn p99_is_held_against_the_limit_that_was_given() {
        let slow = Vitals { p99_ns: Some(7 * MS), ..vitals(NOW_NS) };
        assert!(judge_of("p99=7ms").judge(&slow).is_ready());
        assert!(!judge_of("p99=6ms").judge(&slow).is_ready());
    }

    #[test]
    fn an_audit_log_that_loses_events_or_stands_still_is_worth_a_warning() {
        let lost = |vitals: &mut Vitals, at_ns: u64| {
            vitals.audit.as_mut().unwrap().dropped_total += u64::from(at_ns >= S);
        };
        let (first, last, _) = looks(&mut judge_of(""), 10 * S, lost);
        assert!(first.is_empty(), "what was lost before the first look is long ago");
        assert_eq!(last, ["warning: audit log: events were lost in the last 10 s"]);
        assert!(looks(&mut judge_of(""), 11 * S, lost).1.is_empty());

        let still = |vitals: &mut Vitals, at_ns: u64| {
            vitals.audit.as_mut().unwrap().unwritten = 40;
            vitals.audit.as_mut().unwrap().written_total += at_ns.min(S);
        };
        let (_, last, _) = looks(&mut judge_of(""), 2 * S, still);
        assert_eq!(last, ["warning: audit log: 40 events wait, and none is written for 1000 ms"]);
        let busy = |vitals: &mut Vitals, at_ns: u64| {
            vitals.audit.as_mut().unwrap().unwritten = 40;
            vitals.audit.as_mut().unwrap().written_total += at_ns;
        };
        assert!(looks(&mut judge_of(""), 20 * S, busy).1.is_empty());
    }

    #[test]
    fn only_an_open_gate_of_a_server_that_serves_lets_anybody_through() {
        use locks::Gate;
        const OPEN: Gate = Gate::Open(locks::Opening::FIRST);
        assert_eq!(closed(Phase::Serving, OPEN), None);
        assert_eq!(closed(Phase::Serving, Gate::Standby), Some("standby"));
        assert_eq!(closed(Phase::Serving, Gate::ShuttingDown), Some("shutting down"));
        assert_eq!(closed(Phase::ShuttingDown, OPEN), Some("shutting down"));
        assert_eq!(closed(Phase::Starting, OPEN), Some("starting"));
    }

    #[test]
    fn a_life_does_not_go_backwards() {
        let life = Lifecycle::default();
        assert_eq!(life.phase(), Phase::Starting);
        life.advance(Phase::ShuttingDown);
        life.advance(Phase::Serving);
        assert_eq!(life.phase(), Phase::ShuttingDown);
    }
}
