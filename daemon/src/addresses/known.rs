//! From what the kernel says of addresses to who has left.

use std::collections::BTreeMap;
use std::net::IpAddr;

/// When an address came to its interface: in 10 ms since the host was booted, as the kernel counts them
/// (IFA_CACHEINFO). It wraps after 497 days.
pub(super) type Stamp = u32;

/// How far the kernel's count and CLOCK_MONOTONIC may be apart: a second. Measured: 0.3 s.
const APART_MAX: Stamp = 100;

/// An address on an interface.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Place {
    pub(super) interface: u32,
    pub(super) address: IpAddr,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Stay {
    came: Stamp,
    /// When it was last known to be in this stay.
    seen: Stamp,
}

/// The addresses of this host, as far as the kernel has told.
#[derive(Debug, Default)]
pub(super) struct Known {
    stays: BTreeMap<Place, Stay>,
}

impl Known {
    /// An address is there, or something about it changed. The address, if it has left and come back in
    /// between.
    pub(super) fn has(&mut self, place: Place, came: Stamp, now: Stamp) -> Option<IpAddr> {
        let old = self.stays.get(&place).copied();
        if old.is_none_or(|old| old.came != came) {
            self.stays.insert(place, Stay { came, seen: now });
        }
        // Another interface may have kept it.
        let has_left = old.is_some_and(|old| old.came != came) && !self.is_elsewhere(place);
        has_left.then_some(place.address)
    }

    /// An address is gone from an interface. The address, if no other one has it.
    pub(super) fn has_lost(&mut self, place: Place) -> Option<IpAddr> {
        let was_here = self.stays.remove(&place).is_some();
        (was_here && !self.is_here(place.address)).then_some(place.address)
    }

    /// All there is: who has left since the last message, whether back or not. Where messages were lost, an
    /// address may even be back with the stamp that it had.
    pub(super) fn is_all(&mut self, all: &[(Place, Stamp)], now: Stamp, were_lost: bool) -> Vec<IpAddr> {
        let before = std::mem::take(&mut self.stays);
        self.stays.extend(all.iter().map(|&(place, came)| (place, Stay { came, seen: now })));
        // One that stayed on one interface has not left.
        let stayed = |place: &Place, old: &Stay| {
            let is_same = self.stays.get(place).is_some_and(|new| new.came == old.came);
            is_same && !(were_lost && old.may_come_again_with_its_stamp())
        };
        let mut left: Vec<IpAddr> = before.keys().map(|place| place.address).collect();
        left.dedup();
        left.retain(|&address| {
            !before.iter().any(|(place, old)| place.address == address && stayed(place, old))
        });
        left.sort_unstable();
        left.dedup();
        left
    }

    /// Whether an address came so lately that its stamp would not tell a second stay from this one.
    pub(super) fn has_fresh(&self) -> bool {
        self.stays.values().any(|stay| stay.may_come_again_with_its_stamp())
    }

    pub(super) fn addresses(&self) -> Vec<IpAddr> {
        let mut addresses: Vec<IpAddr> = self.stays.keys().map(|place| place.address).collect();
        addresses.sort_unstable();
        addresses.dedup();
        addresses
    }

    fn is_here(&self, address: IpAddr) -> bool {
        self.stays.keys().any(|place| place.address == address)
    }

    fn is_elsewhere(&self, than: Place) -> bool {
        self.stays.keys().any(|place| place.address == than.address && *place != than)
    }
}

impl Stay {
    /// It was last seen so soon after it came that it may have left and come back within the 10 ms of its
    /// stamp.
    fn may_come_again_with_its_stamp(self) -> bool {
        let age = self.seen.wrapping_sub(self.came).cast_signed();
        age <= APART_MAX.cast_signed()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Stamp = 500_000;
    const LONG_AGO: Stamp = 1_000;

    fn place(interface: u32, last: u8) -> Place {
        Place { interface, address: [192, 0, 2, last].into() }
    }

    fn known(places: &[Place]) -> Known {
        let mut known = Known::default();
        for &place in places {
            assert_eq!(known.has(place, LONG_AGO, NOW), None);
        }
        known
    }

    #[test]
    fn an_address_leaves_when_no_interface_has_it_any_more() {
        let mut known = known(&[place(1, 9), place(2, 9)]);
        assert_eq!(known.has_lost(place(1, 9)), None);
        assert_eq!(known.has_lost(place(3, 9)), None, "it never was there");
        assert_eq!(known.has_lost(place(2, 9)), Some(place(2, 9).address));
        assert_eq!(known.has_lost(place(2, 9)), None, "once");
    }

    #[test]
    fn a_change_of_an_address_is_no_departure_and_a_new_stamp_is_one() {
        let mut known = known(&[place(1, 9)]);
        assert_eq!(known.has(place(1, 9), LONG_AGO, NOW + 5), None, "its lifetime was renewed");
        assert_eq!(known.has(place(1, 9), NOW + 7, NOW + 8), Some(place(1, 9).address));
    }

    #[test]
    fn after_lost_messages_who_is_missing_or_came_anew_has_left() {
        let mut known = known(&[place(1, 1), place(1, 2), place(1, 3)]);
        let all = [(place(1, 1), LONG_AGO), (place(1, 2), NOW + 50), (place(2, 4), NOW + 60)];
        assert_eq!(known.is_all(&all, NOW + 70, true), [place(1, 2).address, place(1, 3).address]);
        assert_eq!(known.addresses().len(), 3);
    }

    #[test]
    fn one_that_may_have_come_back_with_the_same_stamp_has_left() {
        let mut known = Known::default();
        known.has(place(1, 1), NOW, NOW);
        assert!(known.has_fresh());
        assert_eq!(
            known.is_all(&[(place(1, 1), NOW)], NOW + 50, false),
            [] as [IpAddr; 0],
            "nothing was lost"
        );
        assert_eq!(known.is_all(&[(place(1, 1), NOW)], NOW + 1_000, true), [place(1, 1).address]);
        assert!(!known.has_fresh());
        assert_eq!(known.is_all(&[(place(1, 1), NOW)], NOW + 1_001, true), [] as [IpAddr; 0]);
        // The count has wrapped since it came.
        let mut known = Known::default();
        known.has(place(1, 1), Stamp::MAX - 5, 2_000);
        assert_eq!(known.is_all(&[(place(1, 1), Stamp::MAX - 5)], 3_000, true), [] as [IpAddr; 0]);
    }

    #[test]
    fn one_that_stayed_on_another_interface_has_not_left() {
        let mut known = known(&[place(1, 9), place(2, 9)]);
        assert_eq!(known.is_all(&[(place(2, 9), LONG_AGO)], NOW, true), [] as [IpAddr; 0]);
        assert_eq!(known.has(place(2, 9), LONG_AGO, NOW), None);
    }
}
