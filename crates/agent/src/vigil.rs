//! Whether a server is fit to have the address: decided from its beats, without a clock.

/// Between two beats of a server's control thread.
pub(crate) const BEAT_MS: u64 = 50;

/// A control thread that has not beaten for so long hangs. Six beats: a scheduler that is late by five does
/// not move an address.
pub(crate) const SILENT_NS: u64 = 300_000_000;

/// What is known of the connected server.
#[derive(Debug, Default)]
pub(crate) struct Vigil {
    last: Option<Beat>,
}

#[derive(Debug, Clone, Copy)]
struct Beat {
    at_ns: u64,
    ready: bool,
}

impl Vigil {
    /// A beat. It counts from when it was sent: after a stop of this process or of the machine, those
    /// that lie in the queue are as old as they are. A time that has not come yet is none.
    pub(crate) fn beat(&mut self, sent_ns: u64, ready: bool, now_ns: u64) {
        self.last = (sent_ns <= now_ns).then_some(Beat { at_ns: sent_ns, ready });
    }

    /// The connection has ended.
    pub(crate) fn lost(&mut self) {
        self.last = None;
    }

    /// Why it is not connected, beating and ready.
    pub(crate) fn fault(&self, now_ns: u64) -> Option<&'static str> {
        match self.last {
            None => Some("no server is connected"),
            Some(beat) if now_ns.saturating_sub(beat.at_ns) >= SILENT_NS => Some("no beat for 300 ms"),
            Some(beat) if !beat.ready => Some("the server is not ready"),
            Some(_) => None,
        }
    }

    /// How long it may go on without another beat, ns.
    pub(crate) fn left_ns(&self, now_ns: u64) -> Option<u64> {
        let last = self.last.filter(|_| self.fault(now_ns).is_none())?;
        Some((last.at_ns + SILENT_NS).saturating_sub(now_ns))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    impl Vigil {
        fn is_well(&self, now_ns: u64) -> bool {
            self.fault(now_ns).is_none()
        }
    }

    const MS: u64 = 1_000_000;

    #[test]
    fn a_server_is_well_for_300_ms_after_a_beat_and_not_before_the_first() {
        let mut vigil = Vigil::default();
        assert!(!vigil.is_well(0));
        vigil.beat(1000 * MS, true, 1001 * MS);
        assert!(vigil.is_well(1299 * MS));
        assert_eq!(vigil.left_ns(1200 * MS), Some(100 * MS));
        assert!(!vigil.is_well(1300 * MS));
        assert_eq!(vigil.left_ns(1300 * MS), None);
    }

    #[test]
    fn a_beat_that_lay_in_the_queue_is_as_old_as_it_is() {
        let mut vigil = Vigil::default();
        vigil.beat(1000 * MS, true, 60_000 * MS);
        assert!(!vigil.is_well(60_000 * MS));
    }

    #[test]
    fn a_beat_from_another_clock_is_none() {
        let mut vigil = Vigil::default();
        vigil.beat(2000 * MS, true, 1000 * MS);
        assert!(!vigil.is_well(1000 * MS) && !vigil.is_well(2001 * MS));
    }

    #[test]
    fn who_is_not_ready_or_has_gone_is_not_well() {
        let mut vigil = Vigil::default();
        vigil.beat(1000 * MS, false, 1000 * MS);
        assert!(!vigil.is_well(1000 * MS));
        vigil.beat(1010 * MS, true, 1010 * MS);
        assert!(vigil.is_well(1010 * MS));
        vigil.lost();
        assert!(!vigil.is_well(1010 * MS));
    }
}
