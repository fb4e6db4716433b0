//! When to gather completions for a while before returning from a wait.
//!
//! Between idle and saturated, most turns serve one or two messages and the turn itself costs more than they
//! do. A wait that gathers for some hundred µs then saves a third of the CPU. It is worth nothing when turns
//! are rare or full anyway, and it must not slow clients that send their next message when the answer comes:
//! those are recognised by what gathering does to them, the message rate drops.

/// How long a gathering wait lasts. Measured: 500 µs gave 0.55–0.85 of the CPU at 10–20 k messages/s; the
/// answer to a heartbeat may be that late.
pub(crate) const GATHER_US: u32 = 400;

/// A gathering wait ends early at so many completions: the turn is full then.
pub(crate) const GATHER_EVENTS: usize = 32;

/// What is observed before each decision: long enough for some 25 gathering waits.
const WINDOW_NS: u64 = 10_000_000;

/// How long a decision to gather, or that gathering did not help, stays. With a window of 10 ms, clients that
/// wait for their answers lose 1% to being tested.
const DECISION_NS: u64 = 1_000_000_000;

/// Turns/s below which there is nothing to save: lab measurements show no gain at 2 k.
const TURN_RATE_MIN: u64 = 4_000;

/// Messages per turn above which a turn is well used without gathering.
const FULL_TURN: u64 = 8;

/// One window's observation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Load {
    events: u64,
    turns: u64,
    elapsed_ns: u64,
}

impl Load {
    fn event_rate(self) -> u64 {
        self.events * 1_000_000_000 / self.elapsed_ns.max(1)
    }

    fn turn_rate(self) -> u64 {
        self.turns * 1_000_000_000 / self.elapsed_ns.max(1)
    }

    /// Many turns with little in them.
    fn is_worth_gathering(self) -> bool {
        self.turn_rate() >= TURN_RATE_MIN && self.events < FULL_TURN * self.turns
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mode {
    /// Waits return at the first completion; nothing is decided before `until_ns`.
    Direct { until_ns: u64 },
    /// Gathering is tried; the message rate before it is known.
    Trial { rate_before: u64 },
    /// Gathering helps; asked again from `until_ns` on.
    Gather { until_ns: u64 },
}

/// Decides from messages and turns alone; the clock is a parameter.
#[derive(Debug)]
pub(crate) struct Pacing {
    mode: Mode,
    window_start_ns: u64,
    events: u64,
    turns: u64,
}

impl Pacing {
    pub(crate) fn new() -> Self {
        Self { mode: Mode::Direct { until_ns: 0 }, window_start_ns: 0, events: 0, turns: 0 }
    }

    /// How long the next wait may gather, in µs; 0 for not at all.
    pub(crate) fn min_wait_us(&self) -> u32 {
        if matches!(self.mode, Mode::Direct { .. }) { 0 } else { GATHER_US }
    }

    /// A turn with `events` messages ended at `now_ns`.
    pub(crate) fn turn(&mut self, now_ns: u64, events: u64) {
        self.events += events;
        self.turns += 1;
        let elapsed_ns = now_ns.saturating_sub(self.window_start_ns);
        if elapsed_ns < WINDOW_NS {
            return;
        }
        self.mode = decide(self.mode, Load { events: self.events, turns: self.turns, elapsed_ns }, now_ns);
        (self.window_start_ns, self.events, self.turns) = (now_ns, 0, 0);
    }
}

/// The next mode after a window with this load.
fn decide(mode: Mode, load: Load, now_ns: u64) -> Mode {
    match mode {
        Mode::Direct { until_ns } if now_ns >= until_ns && load.is_worth_gathering() => {
            Mode::Trial { rate_before: load.event_rate() }
        }
        Mode::Direct { .. } => mode,
        // Senders with a timer of their own keep their rate; those that wait for answers lose more than a
        // quarter.
        Mode::Trial { rate_before } if load.event_rate() >= rate_before / 4 * 3 => {
            Mode::Gather { until_ns: now_ns + DECISION_NS }
        }
        Mode::Trial { .. } => Mode::Direct { until_ns: now_ns + DECISION_NS },
        Mode::Gather { until_ns } if now_ns >= until_ns => Mode::Direct { until_ns: 0 },
        // The load went away.
        Mode::Gather { .. } if load.event_rate() < TURN_RATE_MIN => Mode::Direct { until_ns: 0 },
        Mode::Gather { .. } => mode,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs a load for `seconds` of virtual time; `interval_ns` says when the next turn ends and how many
    /// messages it has, given the gathering. Returns messages and the time spent gathering.
    fn run(seconds: u64, turn: impl Fn(u32) -> (u64, u64)) -> (u64, u64, u64) {
        let (mut pacing, mut now_ns, mut messages, mut gathering_ns, mut turns) = (Pacing::new(), 1, 0, 0, 0);
        while now_ns < seconds * 1_000_000_000 {
            let gather_us = pacing.min_wait_us();
            let (step_ns, events) = turn(gather_us);
            now_ns += step_ns;
            messages += events;
            turns += 1;
            if gather_us > 0 {
                gathering_ns += step_ns;
            }
            pacing.turn(now_ns, events);
        }
        (messages, gathering_ns, turns)
    }

    #[test]
    fn timed_senders_at_partial_load_are_gathered() {
        // 20 000 messages/s, whatever we do: a turn each, or eight in 400 µs.
        let (_, gathering_ns, turns) = run(5, |us| if us == 0 { (50_000, 1) } else { (400_000, 8) });
        assert!(gathering_ns > 4_500_000_000, "{gathering_ns}");
        assert!(turns < 20_000, "{turns} turns for 100 000 messages");
    }

    #[test]
    fn one_fast_client_that_waits_for_its_answers_is_not_slowed() {
        let (messages, gathering_ns, _) = run(5, |us| if us == 0 { (50_000, 1) } else { (450_000, 1) });
        assert!(gathering_ns < 100_000_000, "{gathering_ns}");
        assert!(messages > 95_000, "{messages} of 100 000");
    }

    #[test]
    fn idle_and_saturated_turns_do_not_gather() {
        assert_eq!(run(5, |_| (500_000, 1)).1, 0, "2 000 messages/s");
        assert_eq!(run(5, |_| (100_000, 12)).1, 0, "120 000 messages/s in full turns");
    }

    #[test]
    fn gathering_ends_when_the_load_goes_away() {
        let gather = Mode::Gather { until_ns: u64::MAX };
        let load = |events| Load { events, turns: 25, elapsed_ns: WINDOW_NS };
        assert_eq!(decide(gather, load(200), 0), gather);
        assert_eq!(decide(gather, load(20), 0), Mode::Direct { until_ns: 0 });
    }
}
