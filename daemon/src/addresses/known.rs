//! From what the kernel says of addresses to who has left.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::ops::RangeInclusive;
use std::time::{Duration, Instant};

use super::LocalAddress;

/// When an address came to its interface: in 10 ms since the host was booted, as the kernel counts them
/// (IFA_CACHEINFO, cstamp). It wraps after 497 days, and is only ever compared with others of its kind: it
/// counts by a clock that this program cannot read.
pub(super) type Stamp = u32;

/// How long after an address was first seen it cannot be back with the stamp that it had: far longer than the
/// grain of a stamp and the time between two ticks of a kernel, also in a virtual machine that gets no turn.
pub(super) const SETTLES_AFTER: Duration = Duration::from_secs(1);

/// An address on an interface. IPv4 lets one interface have the same address several times, with other
/// prefixes or for other peers, and it stays until the last of these goes. (keepalived adds a VIP as /32,
/// also beside a /24 that is there already.)
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Place {
    // First, so that all places of an address stand together.
    pub(super) address: LocalAddress,
    pub(super) interface: u32,
    pub(super) prefix: u8,
    /// The other end of a line between two hosts, else the address itself.
    pub(super) peer: IpAddr,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Stay {
    /// None where it may have left and be back with the stamp that it had.
    came: Option<Stamp>,
}

/// The addresses of this host, as far as the kernel has told.
#[derive(Debug, Default)]
pub(super) struct Known {
    stays: BTreeMap<Place, Stay>,
    /// What was first seen so lately that it may leave and be back with its stamp, and since when; the oldest
    /// first. Some may have left or come anew.
    fresh: VecDeque<(Instant, Place, Stamp)>,
}

impl Known {
    /// An address is there, or something about it changed. The address, if it has left and come back in
    /// between.
    pub(super) fn has(&mut self, place: Place, came: Stamp, now: Instant) -> Option<LocalAddress> {
        let old = self.stays.insert(place, Stay { came: Some(came) });
        if old.is_some_and(|old| old.came == Some(came)) {
            return None;
        }
        self.fresh.push_back((now, place, came));
        // Another place may have kept it.
        let is_elsewhere = self.places(place.address).any(|(other, _)| *other != place);
        (old.is_some() && !is_elsewhere).then_some(place.address)
    }

    /// An address that came then is gone from an interface. The address, if no other place has it.
    pub(super) fn has_lost(&mut self, place: Place, came: Stamp) -> Option<LocalAddress> {
        let stay = self.stays.get(&place)?;
        // Said of an earlier stay, before the list was made that tells of this one.
        if stay.came.is_some_and(|newer| newer.wrapping_sub(came).cast_signed() > 0) {
            return None;
        }
        self.stays.remove(&place);
        (!self.is_here(place.address)).then_some(place.address)
    }

    /// Messages were lost: from here on the stamps of those that came lately prove nothing.
    pub(super) fn were_lost(&mut self) {
        for (_, place, came) in self.fresh.drain(..) {
            if let Some(stay) = self.stays.get_mut(&place).filter(|stay| stay.came == Some(came)) {
                stay.came = None;
            }
        }
    }

    /// All there is: who has left since the last message that was heard, whether back or not.
    pub(super) fn is_all(&mut self, all: &[(Place, Stamp)], now: Instant) -> Vec<LocalAddress> {
        let before = std::mem::take(&mut self.stays);
        let mut stayed = BTreeSet::new();
        for &(place, came) in all {
            // One that stayed in one place has not left.
            if before.get(&place).is_some_and(|old| old.came == Some(came)) {
                stayed.insert(place.address);
            } else {
                self.fresh.push_back((now, place, came));
            }
            self.stays.insert(place, Stay { came: Some(came) });
        }
        let mut left: Vec<LocalAddress> = before.into_keys().map(|place| place.address).collect();
        left.dedup();
        left.retain(|address| !stayed.contains(address));
        left
    }

    /// No message was lost until now: who was seen early enough would have another stamp if it left and came
    /// back from here on.
    pub(super) fn settle(&mut self, now: Instant) {
        let settled = self.fresh.iter().take_while(|(since, ..)| *since + SETTLES_AFTER <= now).count();
        self.fresh.drain(..settled);
    }

    /// When there is something to settle.
    pub(super) fn settles_at(&self) -> Option<Instant> {
        self.fresh.front().map(|(since, ..)| *since + SETTLES_AFTER)
    }

    pub(super) fn is_here(&self, address: LocalAddress) -> bool {
        self.places(address).next().is_some()
    }

    pub(super) fn addresses(&self) -> impl Iterator<Item = LocalAddress> {
        self.stays.keys().map(|place| place.address)
    }

    fn places(&self, address: LocalAddress) -> impl Iterator<Item = (&Place, &Stay)> {
        self.stays.range(every_place(address))
    }
}

fn every_place(address: LocalAddress) -> RangeInclusive<Place> {
    // IpAddr's order puts IPv4 before IPv6.
    let first = Place { address, interface: 0, prefix: 0, peer: Ipv4Addr::UNSPECIFIED.into() };
    let last =
        Place { interface: u32::MAX, prefix: u8::MAX, peer: Ipv6Addr::from(u128::MAX).into(), ..first };
    first..=last
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Stamp = 500_000;
    const LONG_AGO: Stamp = 1_000;
    const NOBODY: [LocalAddress; 0] = [];

    fn place(interface: u32, last: u8) -> Place {
        let ip = [192, 0, 2, last].into();
        Place { address: LocalAddress::on(ip, interface), interface, prefix: 32, peer: ip }
    }

    /// These places, which have been there for a while, and when that was.
    fn known(places: &[Place]) -> (Known, Instant) {
        let (mut known, start) = (Known::default(), Instant::now());
        for &place in places {
            assert_eq!(known.has(place, LONG_AGO, start), None);
        }
        known.settle(start + SETTLES_AFTER);
        assert_eq!(known.settles_at(), None);
        (known, start + SETTLES_AFTER)
    }

    #[test]
    fn an_address_leaves_when_no_interface_has_it_any_more() {
        let (mut known, _) = known(&[place(1, 9), place(2, 9)]);
        assert_eq!(known.has_lost(place(1, 9), LONG_AGO), None);
        assert_eq!(known.has_lost(place(3, 9), LONG_AGO), None, "it never was there");
        assert_eq!(known.has_lost(place(2, 9), LONG_AGO), Some(place(2, 9).address));
        assert_eq!(known.has_lost(place(2, 9), LONG_AGO), None, "once");
    }

    #[test]
    fn an_address_that_one_interface_has_with_two_prefixes_or_peers_leaves_with_the_last() {
        let narrow = place(1, 9);
        let (wide, line) = (Place { prefix: 24, ..narrow }, Place { peer: [192, 0, 2, 1].into(), ..narrow });
        let (mut known, _) = known(&[narrow, wide, line]);
        assert_eq!(known.has_lost(narrow, LONG_AGO), None);
        assert_eq!(known.has_lost(line, LONG_AGO), None);
        assert_eq!(known.has_lost(wide, LONG_AGO), Some(narrow.address));
    }

    #[test]
    fn a_link_local_address_is_another_on_each_interface() {
        let ip: IpAddr = "fe80::1".parse().unwrap();
        let on =
            |interface| Place { address: LocalAddress::on(ip, interface), peer: ip, ..place(interface, 0) };
        let (mut known, now) = known(&[on(1), on(2)]);
        assert_eq!(known.has_lost(on(1), LONG_AGO), Some(on(1).address));
        assert_eq!(known.is_all(&[(on(2), LONG_AGO)], now), NOBODY);
        assert_eq!(known.is_all(&[], now), [on(2).address]);
    }

    #[test]
    fn a_change_of_an_address_is_no_departure_and_a_new_stamp_is_one() {
        let (mut known, now) = known(&[place(1, 9)]);
        assert_eq!(known.has(place(1, 9), LONG_AGO, now), None, "its lifetime was renewed");
        assert_eq!(known.has(place(1, 9), NOW, now), Some(place(1, 9).address));
        assert_eq!(known.has_lost(place(1, 9), LONG_AGO), None, "said of the first stay, and known");
        assert_eq!(known.has_lost(place(1, 9), NOW), Some(place(1, 9).address));
    }

    #[test]
    fn after_lost_messages_who_is_missing_or_came_anew_has_left() {
        let (mut known, now) = known(&[place(1, 1), place(1, 2), place(1, 3)]);
        let all = [(place(1, 1), LONG_AGO), (place(1, 2), NOW), (place(2, 4), NOW)];
        assert_eq!(known.is_all(&all, now), [place(1, 2).address, place(1, 3).address]);
        assert_eq!(known.addresses().count(), 3);
    }

    #[test]
    fn one_that_may_have_come_back_with_the_same_stamp_has_left() {
        let (mut known, start) = (Known::default(), Instant::now());
        let all = [(place(1, 1), NOW)];
        known.has(place(1, 1), NOW, start);
        assert_eq!(known.is_all(&all, start), NOBODY, "nothing was lost");
        known.were_lost();
        assert_eq!(known.is_all(&all, start), [place(1, 1).address]);
        // And is as fresh as before: the next loss may hide another departure.
        known.settle(start + SETTLES_AFTER / 2);
        known.were_lost();
        assert_eq!(known.has(place(1, 1), NOW, start), Some(place(1, 1).address));
        assert_eq!(known.is_all(&all, start), NOBODY, "once");
        known.settle(known.settles_at().unwrap());
        known.were_lost();
        assert_eq!(known.is_all(&all, start), NOBODY);
    }

    #[test]
    fn one_that_came_anew_before_it_settled_is_not_settled_by_its_first_stay() {
        let (mut known, start) = (Known::default(), Instant::now());
        known.has(place(1, 1), NOW, start);
        known.has(place(1, 1), NOW + 50, start + SETTLES_AFTER / 2);
        known.settle(start + SETTLES_AFTER);
        known.were_lost();
        assert_eq!(known.is_all(&[(place(1, 1), NOW + 50)], start), [place(1, 1).address]);
    }

    #[test]
    fn stamps_wrap() {
        let (mut known, now) = known(&[]);
        known.has(place(1, 1), Stamp::MAX - 5, now);
        assert_eq!(known.has(place(1, 1), 3, now), Some(place(1, 1).address));
        assert_eq!(known.has_lost(place(1, 1), Stamp::MAX - 5), None, "said of the first stay");
        assert_eq!(known.has_lost(place(1, 1), 3), Some(place(1, 1).address));
    }

    #[test]
    fn one_that_stayed_on_another_interface_has_not_left() {
        let (mut known, now) = known(&[place(1, 9), place(2, 9)]);
        assert_eq!(known.is_all(&[(place(2, 9), LONG_AGO)], now), NOBODY);
        assert_eq!(known.has(place(2, 9), LONG_AGO, now), None);
    }
}
