//! Which local addresses have left this host. A socket does not notice: after the address has moved, it sends
//! into nothing, and once it comes back, the old session works again as if nothing had been.

mod known;
mod watch;

use std::collections::VecDeque;
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

pub(crate) use watch::start;

/// Departures that are remembered. A connection that was in set-up over more of them ends, whatever its
/// address is.
const REMEMBERED_MAX: usize = 1024;

/// Counts departures of local addresses. What holds at one count holds until the next.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub(crate) struct Departures(u64);

/// The local addresses of this host, for those who have connections on them. One thread writes.
#[derive(Debug, Default)]
pub(crate) struct Addresses {
    departures: AtomicU64,
    remembered: Mutex<Remembered>,
    is_watched: AtomicBool,
}

#[derive(Debug, Default)]
struct Remembered {
    /// The last departures, the newest at the end.
    left: VecDeque<IpAddr>,
    /// What is here, on whatever interface.
    here: Vec<IpAddr>,
}

impl Addresses {
    /// How many addresses have left so far. Whoever accepts a connection after this look hears of each later
    /// departure of its address.
    pub(crate) fn departures(&self) -> Departures {
        Departures(self.departures.load(Ordering::SeqCst))
    }

    /// Whether the address has left since then, or may have: of what is long ago nothing is remembered.
    pub(crate) fn has_left_since(&self, address: IpAddr, then: Departures) -> bool {
        let departures = self.departures();
        if departures == then {
            return false;
        }
        let remembered = self.remembered();
        match usize::try_from(self.departures().0 - then.0) {
            Ok(left) if left <= remembered.left.len() => {
                remembered.left.iter().rev().take(left).any(|it| *it == address)
            }
            _ => true,
        }
    }

    /// Whether the address is on an interface of this host; unknown while nobody watches.
    pub(crate) fn is_here(&self, address: IpAddr) -> Option<bool> {
        self.is_watched().then(|| self.remembered().here.contains(&address))
    }

    /// Whether departures are noticed.
    pub(crate) fn is_watched(&self) -> bool {
        self.is_watched.load(Ordering::Relaxed)
    }

    fn change(&self, left: Vec<IpAddr>, here: Vec<IpAddr>) {
        let mut remembered = self.remembered();
        remembered.here = here;
        for address in left {
            if remembered.left.len() == REMEMBERED_MAX {
                remembered.left.pop_front();
            }
            remembered.left.push_back(address);
            // Within the lock: who sees the count finds the address.
            self.departures.fetch_add(1, Ordering::SeqCst);
        }
    }

    fn remembered(&self) -> MutexGuard<'_, Remembered> {
        self.remembered.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What shards and intake share.
pub(crate) type Shared = Arc<Addresses>;

#[cfg(test)]
mod tests {
    use super::*;

    fn ip(last: u8) -> IpAddr {
        [192, 0, 2, last].into()
    }

    #[test]
    fn a_connection_is_told_of_each_departure_of_its_address_after_it_was_accepted() {
        let addresses = Addresses::default();
        let before = addresses.departures();
        addresses.change(vec![ip(1)], vec![]);
        let between = addresses.departures();
        addresses.change(vec![ip(2)], vec![ip(1)]);
        assert!(addresses.has_left_since(ip(1), before) && addresses.has_left_since(ip(2), before));
        assert!(!addresses.has_left_since(ip(1), between), "that is the second stay");
        assert!(addresses.has_left_since(ip(2), between));
        assert!(!addresses.has_left_since(ip(2), addresses.departures()));
    }

    #[test]
    fn what_is_not_remembered_any_more_may_have_been_anything() {
        let addresses = Addresses::default();
        let before = addresses.departures();
        addresses.change(vec![ip(1); REMEMBERED_MAX + 1], vec![]);
        assert!(addresses.has_left_since(ip(9), before));
    }
}
