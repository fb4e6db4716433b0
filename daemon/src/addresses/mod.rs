//! Which local addresses have left this host. A socket does not notice: after the address has moved, it sends
//! into nothing, and once it comes back, the old session works again as if nothing had been.

mod known;
mod watch;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use logging::seldom::Seldom;
use tokio::runtime::Handle;
use tracing::{Level, info};

pub(crate) use watch::start;

/// Addresses whose last departure is remembered, with some bytes each. When there are more, the older half is
/// forgotten, which only those notice who were in set-up, or did not look, meanwhile: they end, whatever
/// their address is.
const REMEMBERED_MAX: usize = 1 << 16;

/// How often the log tells of a departed address: one that flaps has no end.
const LOG_INTERVAL: Duration = Duration::from_secs(1);

/// An address as a socket has it: IPv4 also where the socket is for both, and a link-local one with its
/// interface, since each may have the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct LocalAddress {
    ip: IpAddr,
    /// Zero unless it is link-local.
    scope: u32,
}

impl LocalAddress {
    fn on(ip: IpAddr, interface: u32) -> Self {
        let ip = ip.to_canonical();
        let is_scoped = matches!(ip, IpAddr::V6(ip) if ip.is_unicast_link_local());
        Self { ip, scope: if is_scoped { interface } else { 0 } }
    }
}

impl From<SocketAddr> for LocalAddress {
    fn from(address: SocketAddr) -> Self {
        let interface = match address {
            SocketAddr::V4(_) => 0,
            SocketAddr::V6(address) => address.scope_id(),
        };
        Self::on(address.ip(), interface)
    }
}

/// Counts departures of local addresses. What holds at one count holds until the next.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub(crate) struct Departures(u64);

/// The local addresses of this host, for those who have connections on them. One thread writes.
#[derive(Debug)]
pub(crate) struct Addresses {
    departures: AtomicU64,
    remembered: Mutex<Remembered>,
    is_watched: AtomicBool,
    lines: Seldom,
    /// Where lines that were left out are counted.
    runtime: OnceLock<Handle>,
}

#[derive(Debug, Default)]
struct Remembered {
    /// When each left last.
    left: HashMap<LocalAddress, Departures>,
    /// Of what left up to here, some is forgotten.
    forgotten: Departures,
    /// What is here, on whatever interface.
    here: BTreeSet<LocalAddress>,
}

impl Default for Addresses {
    fn default() -> Self {
        Self {
            departures: AtomicU64::default(),
            remembered: Mutex::default(),
            is_watched: AtomicBool::default(),
            lines: Seldom::new("departed addresses", Level::INFO, LOG_INTERVAL),
            runtime: OnceLock::new(),
        }
    }
}

impl Addresses {
    /// How many addresses have left so far. Whoever accepts a connection after this look hears of each later
    /// departure of its address.
    pub(crate) fn departures(&self) -> Departures {
        Departures(self.departures.load(Ordering::SeqCst))
    }

    /// Whether the address has left since then, or may have: of what is long ago not all is remembered.
    pub(crate) fn has_left_since(&self, address: LocalAddress, then: Departures) -> bool {
        self.departures() != then && self.remembered().has_left_since(address, then)
    }

    /// Whether a connection that was accepted after these departures has lost its address: it left since
    /// then, or it had left before, with the connection in the listener's queue, and is not back.
    pub(crate) fn is_lost(&self, address: LocalAddress, then: Departures) -> bool {
        // Most hosts never lose one.
        if self.departures() == Departures::default() {
            return false;
        }
        let remembered = self.remembered();
        // An address that comes back is heard of only while somebody listens.
        let is_away = self.is_watched() && remembered.is_away(address);
        is_away || remembered.has_left_since(address, then)
    }

    /// Whether the address is on an interface of this host; unknown while nobody watches.
    pub(crate) fn is_here(&self, address: IpAddr) -> Option<bool> {
        self.is_watched().then(|| self.remembered().here.iter().any(|here| here.ip == address))
    }

    /// Whether departures are noticed.
    pub(crate) fn is_watched(&self) -> bool {
        self.is_watched.load(Ordering::Relaxed)
    }

    /// A shard has ended so many sessions of each of these addresses.
    pub(crate) fn log_ended(&self, shard: usize, ended: &BTreeMap<LocalAddress, usize>) {
        let Some(runtime) = self.runtime.get() else { return };
        let _context = runtime.enter();
        for (address, sessions) in ended {
            if self.lines.may_log() {
                info!(address = %address.ip, shard, sessions, "sessions ended: their local address has left");
            }
        }
    }

    fn watched(&self, is_watched: bool) {
        self.is_watched.store(is_watched, Ordering::Relaxed);
    }

    /// These have left; and of these it is known whether they are here.
    fn change(&self, left: &[LocalAddress], here: impl IntoIterator<Item = (LocalAddress, bool)>) {
        let mut remembered = self.remembered();
        for (address, is_here) in here {
            if is_here {
                remembered.here.insert(address);
            } else {
                remembered.here.remove(&address);
            }
        }
        for address in left {
            // Within the lock: who sees the count finds the address.
            let departure = Departures(self.departures.fetch_add(1, Ordering::SeqCst) + 1);
            remembered.has_left(*address, departure);
        }
    }

    /// These have left, and that is all there is.
    fn replace(&self, left: &[LocalAddress], here: impl IntoIterator<Item = LocalAddress>) {
        self.remembered().here = here.into_iter().collect();
        self.change(left, []);
    }

    fn remembered(&self) -> MutexGuard<'_, Remembered> {
        self.remembered.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Remembered {
    fn has_left(&mut self, address: LocalAddress, departure: Departures) {
        self.left.insert(address, departure);
        if self.left.len() > REMEMBERED_MAX {
            let mut departures: Vec<Departures> = self.left.values().copied().collect();
            let (_, median, _) = departures.select_nth_unstable(REMEMBERED_MAX / 2);
            self.forgotten = *median;
            self.left.retain(|_, departure| *departure > self.forgotten);
        }
    }

    fn has_left_since(&self, address: LocalAddress, then: Departures) -> bool {
        then < self.forgotten || self.left.get(&address).is_some_and(|departure| *departure > then)
    }

    fn is_away(&self, address: LocalAddress) -> bool {
        self.left.contains_key(&address) && !self.here.contains(&address)
    }
}

/// What shards and intake share.
pub(crate) type Shared = Arc<Addresses>;

#[cfg(test)]
mod tests {
    use super::*;

    fn ip(last: u16) -> LocalAddress {
        LocalAddress::on([192, 0, (last >> 8) as u8, last as u8].into(), 1)
    }

    #[test]
    fn a_connection_is_told_of_each_departure_of_its_address_after_it_was_accepted() {
        let addresses = Addresses::default();
        let before = addresses.departures();
        addresses.change(&[ip(1)], [(ip(1), false)]);
        let between = addresses.departures();
        addresses.change(&[ip(2)], [(ip(1), true)]);
        assert!(addresses.has_left_since(ip(1), before) && addresses.has_left_since(ip(2), before));
        assert!(!addresses.has_left_since(ip(1), between), "that is the second stay");
        assert!(addresses.has_left_since(ip(2), between));
        assert!(!addresses.has_left_since(ip(2), addresses.departures()));
    }

    #[test]
    fn a_connection_that_waited_in_the_listeners_queue_while_its_address_left_is_lost_until_that_is_back() {
        let addresses = Addresses::default();
        addresses.watched(true);
        addresses.replace(&[], [ip(1)]);
        assert!(!addresses.is_lost(ip(1), addresses.departures()));
        addresses.change(&[ip(1)], [(ip(1), false)]);
        assert!(addresses.is_lost(ip(1), addresses.departures()));
        assert!(!addresses.is_lost(ip(2), addresses.departures()), "one that no interface ever had");
        addresses.watched(false);
        assert!(!addresses.is_lost(ip(1), addresses.departures()), "it may be back, and nobody heard of it");
        addresses.watched(true);
        addresses.change(&[], [(ip(1), true)]);
        assert!(!addresses.is_lost(ip(1), addresses.departures()));
    }

    #[test]
    fn thousands_of_departures_concern_nobody_else() {
        let addresses = Addresses::default();
        let before = addresses.departures();
        let others: Vec<LocalAddress> = (1..10_000).map(ip).collect();
        for _ in 0..10 {
            addresses.change(&others, []);
        }
        assert!(!addresses.has_left_since(ip(0), before));
        assert!(addresses.has_left_since(ip(9), before));
    }

    #[test]
    fn what_is_not_remembered_any_more_may_have_been_anything() {
        let addresses = Addresses::default();
        let before = addresses.departures();
        let many = |n: usize| LocalAddress::on(std::net::Ipv4Addr::from(n as u32).into(), 1);
        let others: Vec<LocalAddress> = (0..=REMEMBERED_MAX).map(many).collect();
        addresses.change(&others, []);
        assert!(addresses.has_left_since(ip(9), before));
        assert!(!addresses.has_left_since(ip(9), addresses.departures()), "nothing since then");
        assert!(addresses.remembered().left.len() <= REMEMBERED_MAX);
    }

    #[test]
    fn ipv4_is_the_same_on_a_socket_for_both() {
        let address = |text: &str| LocalAddress::from(text.parse::<SocketAddr>().unwrap());
        assert_eq!(address("[::ffff:192.0.2.1]:1"), address("192.0.2.1:2"));
        assert_ne!(address("[fe80::1%2]:1"), address("[fe80::1%3]:1"));
        assert_eq!(address("[2001:db8::1%2]:1"), address("[2001:db8::1]:1"));
    }
}
