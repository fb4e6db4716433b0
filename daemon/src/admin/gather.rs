//! Gathers locks from the shards, slice by slice: no shard is held up, and what stays there all the time is
//! found.
//!
//! A listing is no snapshot: each lock is as it was at one moment of the gathering, after the request came.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Instant;

use super::call::Filter;
use super::refusal::Refusal;
use crate::shard::Questions;
use crate::shard::seen::{Described, SeenHolder, SeenLock, SeenWaiter};

/// Names that one question asks to describe: as many sessions as a shard describes in one answer.
const NAMES_A_QUESTION: usize = 256;

/// The locks of one answer, in the order of their names.
#[derive(Debug)]
pub(super) struct Page {
    pub(super) locks: Vec<SeenLock>,
    /// The last name of this page, if there are more.
    pub(super) next: Option<Arc<str>>,
}

/// Asks the shards until a deadline. Blocks.
pub(super) struct Gatherer<'a> {
    pub(super) questions: &'a Questions,
    pub(super) deadline: Instant,
}

impl Gatherer<'_> {
    /// One lock; `None` where it is idle.
    pub(super) fn lock(&self, name: &str) -> Result<Option<SeenLock>, Refusal> {
        Ok(self.describe(vec![name.into()])?.pop())
    }

    /// All locks that the filter takes.
    pub(super) fn locks(&self, filter: &Filter) -> Result<Page, Refusal> {
        // With one more than wanted it is known whether there are more.
        let mut names = Smallest::new(filter.limit.map_or(usize::MAX, |limit| limit + 1));
        for shard in self.questions.shards() {
            self.add_names(shard, filter, &mut names)?;
        }
        let mut names = names.into_sorted();
        let has_more = filter.limit.is_some_and(|limit| names.len() > limit);
        names.truncate(filter.limit.unwrap_or(usize::MAX));
        let next = names.last().filter(|_| has_more).cloned();
        Ok(Page { locks: self.describe(names)?, next })
    }

    fn add_names(&self, shard: usize, filter: &Filter, names: &mut Smallest) -> Result<(), Refusal> {
        let mut next = Some(0);
        while let Some(from) = next {
            self.check_time()?;
            let slice = self.questions.names(shard, from)?;
            slice.items.into_iter().filter(|name| filter.takes(name)).for_each(|name| names.add(name));
            next = slice.next;
        }
        Ok(())
    }

    /// The locks of these names that are not idle, in the order of their names.
    fn describe(&self, names: Vec<Arc<str>>) -> Result<Vec<SeenLock>, Refusal> {
        let mut by_shard: Vec<Vec<Arc<str>>> = self.questions.shards().map(|_| Vec::new()).collect();
        for name in names {
            by_shard[self.questions.shard_of(&name)].push(name);
        }
        let mut locks = Vec::new();
        for (shard, names) in by_shard.iter().enumerate() {
            let mut long = HashSet::new();
            self.describe_each(shard, names, |name, described| match described {
                Described::Idle => {}
                Described::Whole(lock) => locks.push(lock),
                Described::LongQueue(_) => drop(long.insert(name)),
            })?;
            if !long.is_empty() {
                self.describe_long(shard, long, &mut locks)?;
            }
        }
        locks.sort_unstable_by(|a, b| a.name.cmp(&b.name));
        Ok(locks)
    }

    /// Locks of one shard whose queues are long.
    ///
    /// The queues come first and the holders after them: a waiter that is granted meanwhile is found as a
    /// waiter, as the holder, or as both, and then counts as the holder.
    fn describe_long(
        &self,
        shard: usize,
        names: HashSet<Arc<str>>,
        locks: &mut Vec<SeenLock>,
    ) -> Result<(), Refusal> {
        let names = Arc::new(names);
        let mut queues: HashMap<Arc<str>, Vec<SeenWaiter>> = HashMap::new();
        let mut next = Some(0);
        while let Some(from) = next {
            self.check_time()?;
            let slice = self.questions.waiters(shard, &names, from)?;
            for (name, waiter) in slice.items {
                queues.entry(name).or_default().push(waiter);
            }
            next = slice.next;
        }
        let names: Vec<Arc<str>> = names.iter().cloned().collect();
        self.describe_each(shard, &names, |name, described| match described {
            Described::Idle => {}
            // It has become short.
            Described::Whole(lock) => locks.push(lock),
            Described::LongQueue(holder) => {
                let waiters = in_order(queues.remove(&name).unwrap_or_default(), holder.as_ref());
                locks.push(SeenLock { name, holder, waiters });
            }
        })
    }

    fn describe_each(
        &self,
        shard: usize,
        names: &[Arc<str>],
        mut each: impl FnMut(Arc<str>, Described),
    ) -> Result<(), Refusal> {
        let mut rest = names;
        while !rest.is_empty() {
            self.check_time()?;
            let asked = &rest[..rest.len().min(NAMES_A_QUESTION)];
            let described = self.questions.describe(shard, asked.to_vec())?;
            rest = &rest[described.len()..];
            asked.iter().cloned().zip(described).for_each(|(name, described)| each(name, described));
        }
        Ok(())
    }

    fn check_time(&self) -> Result<(), Refusal> {
        if Instant::now() < self.deadline {
            Ok(())
        } else {
            Err(Refusal::unavailable(
                "this takes too long: ask for a page (limit, after) or fewer names (match)",
            ))
        }
    }
}

/// Waiters that were collected in no order, in that of the queue; one that holds the lock by now waits no
/// more.
fn in_order(mut waiters: Vec<SeenWaiter>, holder: Option<&SeenHolder>) -> Vec<SeenWaiter> {
    waiters.retain(|waiter| holder.is_none_or(|holder| holder.session != waiter.session));
    waiters.sort_unstable_by_key(|waiter| waiter.sequence);
    waiters
}

/// The smallest of the names that were added, each once.
struct Smallest {
    max: usize,
    names: Vec<Arc<str>>,
}

impl Smallest {
    fn new(max: usize) -> Self {
        Self { max, names: Vec::new() }
    }

    fn add(&mut self, name: Arc<str>) {
        self.names.push(name);
        // Rarely enough that a name costs O(log max).
        if self.names.len() >= self.max.saturating_mul(2) {
            self.trim();
        }
    }

    /// A lock that went and came back while its shard was walked may have been added twice.
    fn trim(&mut self) {
        self.names.sort_unstable();
        self.names.dedup();
        self.names.truncate(self.max);
    }

    fn into_sorted(mut self) -> Vec<Arc<str>> {
        self.trim();
        self.names
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_smallest_names_are_kept_each_once_whatever_the_order_they_came_in() {
        let names: Vec<Arc<str>> = (0..1000).map(|n| format!("{:03}", n * 7 % 1000).into()).collect();
        for max in [1, 2, 10, 999, 1000, 2000, usize::MAX] {
            let mut smallest = Smallest::new(max);
            names.iter().chain(&names).cloned().for_each(|name| smallest.add(name));
            let expected: Vec<Arc<str>> = (0..max.min(1000)).map(|n| format!("{n:03}").into()).collect();
            assert_eq!(smallest.into_sorted(), expected, "{max}");
        }
    }
}
