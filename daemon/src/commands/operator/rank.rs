//! Which locks a live view shows first: the best so many of any number.

use std::cmp::Reverse;
use std::time::SystemTime;

use clap::ValueEnum;

use admin_api::Summary;

/// What comes first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum Sort {
    /// The longest queue, then the longest held.
    Waiters,
    /// The longest held.
    Held,
    /// In the order of the names' bytes.
    Name,
}

/// Collects locks: the first ones by an order, and totals of all.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Ranking {
    sort: Sort,
    rows_max: usize,
    /// Sorted.
    pub(super) first: Vec<Summary>,
    /// Held or waited for.
    pub(super) locks: u64,
    pub(super) held: u64,
    pub(super) waiters: u64,
}

impl Ranking {
    pub(super) fn new(sort: Sort, rows_max: usize) -> Self {
        Self { sort, rows_max, first: Vec::new(), locks: 0, held: 0, waiters: 0 }
    }

    /// Takes further locks. Memory holds no more than these and the first ones.
    pub(super) fn add(&mut self, locks: Vec<Summary>) {
        self.locks += locks.len() as u64;
        self.held += locks.iter().filter(|lock| lock.holder.is_some()).count() as u64;
        self.waiters += locks.iter().map(|lock| lock.waiters).sum::<u64>();
        self.first.extend(locks);
        match self.sort {
            Sort::Waiters => {
                self.first.sort_by(|a, b| (Reverse(a.waiters), age(a)).cmp(&(Reverse(b.waiters), age(b))));
            }
            Sort::Held => self.first.sort_by(|a, b| age(a).cmp(&age(b))),
            Sort::Name => self.first.sort_by(|a, b| a.name.cmp(&b.name)),
        }
        self.first.truncate(self.rows_max);
    }
}

/// The oldest first, what nobody holds last, and what is alike by name.
fn age(lock: &Summary) -> (bool, Option<SystemTime>, &str) {
    (lock.holder.is_none(), lock.holder.as_ref().map(|holder| holder.since.0), &lock.name)
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, UNIX_EPOCH};

    use super::*;
    use admin_api::{Holder, Time};

    /// A lock that is held since `since_s`; 0 is not held.
    fn lock(name: &str, since_s: u64, waiters: u64) -> Summary {
        let holder = (since_s > 0).then(|| Holder {
            identity: String::new(),
            remote_addr: "127.0.0.1:1".into(),
            since: Time(UNIX_EPOCH + Duration::from_secs(since_s)),
            lease_ms: 1,
            token: 1,
        });
        Summary { name: name.into(), holder, waiters }
    }

    fn first(sort: Sort, rows_max: usize) -> Vec<String> {
        let mut ranking = Ranking::new(sort, rows_max);
        ranking.add(vec![lock("a", 30, 0), lock("b", 20, 2), lock("c", 0, 2)]);
        ranking.add(vec![lock("d", 10, 2), lock("e", 5, 0), lock("f", 5, 7)]);
        ranking.add(vec![]);
        assert_eq!((ranking.locks, ranking.held, ranking.waiters), (6, 5, 13));
        ranking.first.into_iter().map(|lock| lock.name).collect()
    }

    #[test]
    fn each_order_is_what_it_says_and_ties_go_by_age_and_then_by_name() {
        assert_eq!(first(Sort::Waiters, 9), ["f", "d", "b", "c", "e", "a"]);
        assert_eq!(first(Sort::Held, 9), ["e", "f", "d", "b", "a", "c"]);
        assert_eq!(first(Sort::Name, 9), ["a", "b", "c", "d", "e", "f"]);
    }

    #[test]
    fn the_first_are_kept_whichever_page_they_came_on() {
        assert_eq!(first(Sort::Waiters, 2), ["f", "d"]);
        assert_eq!(first(Sort::Held, 3), ["e", "f", "d"]);
        assert_eq!(first(Sort::Name, 0), [""; 0]);
    }
}
