//! The reactor's own deadlines: sends that make no progress, and connections that drain.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use crate::slab::Key;

/// Deadlines of connections whose output waits for the peer, at most one each. An entry is a promise to look:
/// whether there was progress since is the connection's knowledge, so progress costs nothing here.
#[derive(Default)]
pub(crate) struct Stalls(BinaryHeap<Reverse<(u64, Key)>>);

impl Stalls {
    pub(crate) fn push(&mut self, deadline_ns: u64, key: Key) {
        self.0.push(Reverse((deadline_ns, key)));
    }

    pub(crate) fn next_ns(&self) -> Option<u64> {
        self.0.peek().map(|Reverse((deadline_ns, _))| *deadline_ns)
    }

    pub(crate) fn pop_due(&mut self, now_ns: u64) -> Option<Key> {
        self.next_ns().filter(|&deadline_ns| deadline_ns <= now_ns)?;
        self.0.pop().map(|Reverse((_, key))| key)
    }
}

/// Draining connections, oldest first; all wait equally long. Entries of connections that are done stay until
/// their deadline.
#[derive(Default)]
pub(crate) struct Drains(VecDeque<(u64, Key)>);

impl Drains {
    pub(crate) fn push(&mut self, deadline_ns: u64, key: Key) {
        self.0.push_back((deadline_ns, key));
    }

    pub(crate) fn next_ns(&self) -> Option<u64> {
        self.0.front().map(|(deadline_ns, _)| *deadline_ns)
    }

    pub(crate) fn pop_due(&mut self, now_ns: u64) -> Option<Key> {
        self.next_ns().filter(|&deadline_ns| deadline_ns <= now_ns)?;
        self.pop()
    }

    /// The oldest, due or not.
    pub(crate) fn pop(&mut self) -> Option<Key> {
        self.0.pop_front().map(|(_, key)| key)
    }
}
