//! Whether a signal for the front is for the command too: decided without clock or process.
//!
//! At a terminal the command is in one group with the front and the keeper. Ctrl-C, a hang-up and a shell's
//! `kill %1` reach all three; a `kill` of the front's number reaches the front alone, and is to be passed on.
//! The keeper is the witness: what it heard too went to the whole group, and the command has it already.
//!
//! Times are nanoseconds of CLOCK_BOOTTIME.

use rustix::process::Signal;

/// How much later than the front the keeper may hear what went to both: what a loaded machine takes to wake
/// two processes. So much later the command has what is passed on, which no person notices.
const WITNESS_NS_MAX: u64 = 100_000_000;

/// How much earlier than the front the keeper may have heard it. A front may be slow to tell; a second signal
/// of a kind that so soon was for the front alone is rare.
const TOLD_NS_MAX: u64 = 500_000_000;

/// Signals for the front of which it is not known yet whether they are for the command.
#[derive(Debug, Default)]
pub(crate) struct Relay {
    /// When the keeper heard a signal last.
    witnessed: Vec<(Signal, u64)>,
    /// What the front told, and when to pass it on.
    told: Vec<(Signal, u64)>,
}

impl Relay {
    /// The keeper heard a signal itself.
    pub(crate) fn witness(&mut self, now_ns: u64, signal: Signal) {
        self.told.retain(|(told, _)| *told != signal);
        self.witnessed.retain(|(witnessed, _)| *witnessed != signal);
        self.witnessed.push((signal, now_ns));
    }

    /// The front tells that it got a signal.
    pub(crate) fn told(&mut self, now_ns: u64, signal: Signal) {
        let is_recent = |&(witnessed, at_ns): &(Signal, u64)| {
            witnessed == signal && now_ns.saturating_sub(at_ns) <= TOLD_NS_MAX
        };
        if !self.witnessed.iter().any(is_recent) {
            self.told.push((signal, now_ns.saturating_add(WITNESS_NS_MAX)));
        }
    }

    /// A signal to be passed on by now.
    pub(crate) fn due(&mut self, now_ns: u64) -> Option<Signal> {
        let due = self.told.iter().position(|&(_, at_ns)| now_ns >= at_ns)?;
        Some(self.told.remove(due).0)
    }

    /// When to ask for what is due.
    pub(crate) fn wake_ns(&self) -> Option<u64> {
        self.told.iter().map(|&(_, at_ns)| at_ns).min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    #[test]
    fn a_signal_for_the_front_alone_is_passed_on_after_a_moment() {
        let mut relay = Relay::default();
        relay.told(0, Signal::TERM);
        assert_eq!((relay.due(99 * MS), relay.wake_ns()), (None, Some(100 * MS)));
        assert_eq!(relay.due(100 * MS), Some(Signal::TERM));
        assert_eq!((relay.due(u64::MAX), relay.wake_ns()), (None, None));
    }

    #[test]
    fn a_signal_for_the_whole_group_is_not_passed_on_whoever_hears_it_first() {
        let mut relay = Relay::default();
        relay.told(0, Signal::INT);
        relay.witness(MS, Signal::INT);
        relay.told(2 * MS, Signal::INT);
        assert_eq!(relay.wake_ns(), None);

        // Another one is no witness, and an old one neither.
        relay.witness(3 * MS, Signal::HUP);
        relay.told(502 * MS, Signal::INT);
        assert_eq!(relay.due(u64::MAX), Some(Signal::INT));
    }

    #[test]
    fn a_signal_for_the_keeper_alone_comes_to_nothing() {
        let mut relay = Relay::default();
        relay.witness(0, Signal::TERM);
        assert_eq!((relay.due(u64::MAX), relay.wake_ns()), (None, None));
    }
}
