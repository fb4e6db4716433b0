//! How many connections fit: the descriptor limit, less what the server needs for itself.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Descriptors kept free for everything but sessions, so that scrapes and health checks go on when sessions
/// have taken all the rest. `localhost` is two socket addresses: for each of them the ops endpoints have 16
/// connections and the admin API 12, which makes 56; one more each that waits for the oldest to go, 4; the
/// listeners of all three addresses, 6. The rest is for files that are open for a moment: a reload's, a
/// scrape's.
const RESERVED: usize = 80;

/// Raises the soft descriptor limit to the hard limit and returns it.
pub(crate) fn raise_descriptor_limit() -> usize {
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit { current: limit.maximum, maximum: limit.maximum };
    let current = match setrlimit(Resource::Nofile, raised) {
        Ok(()) => limit.maximum,
        Err(_) => limit.current,
    };
    current.map_or(usize::MAX, |limit| usize::try_from(limit).unwrap_or(usize::MAX))
}

/// The places for connections, shared by the intake, which takes them, and the shards, which give them back.
#[derive(Debug)]
pub(crate) struct Capacity {
    places: usize,
    taken: AtomicUsize,
}

/// No place is left for a single connection.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct TooFewDescriptors {
    limit: usize,
    needed: usize,
}

impl fmt::Display for TooFewDescriptors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { limit, needed } = self;
        write!(
            f,
            "the limit of {limit} open files leaves no room for a connection: raise it to more than {needed} (ulimit -Hn, LimitNOFILE=)"
        )
    }
}

impl Capacity {
    /// The capacity under a limit of `limit` descriptors, of which `in_use` are open before the first
    /// connection.
    pub(crate) fn new(limit: usize, in_use: usize) -> Result<Arc<Self>, TooFewDescriptors> {
        let needed = in_use + RESERVED;
        if limit <= needed {
            return Err(TooFewDescriptors { limit, needed });
        }
        Ok(Arc::new(Self { places: limit - needed, taken: AtomicUsize::new(0) }))
    }

    /// The number of connections that fit.
    pub(crate) fn places(&self) -> usize {
        self.places
    }

    /// How many of them are taken.
    pub(crate) fn taken(&self) -> usize {
        self.taken.load(Ordering::Relaxed)
    }

    /// Takes a place, if one is free.
    pub(crate) fn take(self: &Arc<Self>) -> Option<Place> {
        let more = |taken| (taken < self.places).then_some(taken + 1);
        self.taken.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).ok()?;
        Some(Place(Some(Arc::clone(self))))
    }

    /// Gives back places that were [kept](Place::keep).
    pub(crate) fn give_back(&self, places: usize) {
        let before = self.taken.fetch_sub(places, Ordering::Relaxed);
        debug_assert!(before >= places, "more places are given back than were taken");
    }
}

/// A place for one connection; given back when dropped.
#[derive(Debug)]
pub(crate) struct Place(Option<Arc<Capacity>>);

impl Place {
    /// Keeps the place taken beyond this value, whose memory a session need not spend. The keeper counts its
    /// places and gives them back by number.
    pub(crate) fn keep(mut self) {
        self.0 = None;
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if let Some(capacity) = &self.0 {
            capacity.give_back(1);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_run_out_and_come_back() {
        let capacity = Capacity::new(RESERVED + 12, 10).unwrap();
        let first = capacity.take().unwrap();
        let second = capacity.take().unwrap();
        assert!(capacity.take().is_none());
        drop(first);
        second.keep();
        let _third = capacity.take().unwrap();
        assert!(capacity.take().is_none(), "a kept place stays taken");
        capacity.give_back(1);
        assert!(capacity.take().is_some());
    }

    #[test]
    fn a_limit_without_room_for_a_connection_is_refused() {
        let refused = Capacity::new(RESERVED + 10, 10).unwrap_err();
        assert_eq!(refused, TooFewDescriptors { limit: RESERVED + 10, needed: RESERVED + 10 });
    }
}
