//! A lock: its holder and its queue.

use std::sync::Arc;

use crate::queue::Queue;
use crate::slab::NONE;

#[derive(Debug)]
pub(crate) struct Lock {
    pub(crate) name: Arc<str>,
    /// The holder's record, or `NONE`.
    pub(crate) holder: u32,
    pub(crate) queue: Queue,
}

impl Lock {
    pub(crate) fn new(name: &str) -> Self {
        Self { name: name.into(), holder: NONE, queue: Queue::new() }
    }

    pub(crate) fn is_free(&self) -> bool {
        self.holder == NONE
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::index::Entry;
    use crate::record::Session;
    use crate::slab::Slot;

    #[test]
    fn a_claim_with_a_lock_of_its_own_costs_at_most_200_bytes_besides_the_name() {
        let session = size_of::<Slot<Session<u64>>>();
        let lock = size_of::<Slot<Lock>>();
        let counters_of_the_shared_name = 2 * size_of::<usize>();
        // A hash table is at least 7/16 full, and has a tag byte for each bucket.
        let index = ((size_of::<Entry>() + 1) * 16).div_ceil(7);
        assert_eq!((session, lock, counters_of_the_shared_name, index), (88, 56, 16, 21));
        assert!(session + lock + counters_of_the_shared_name + index <= 200);
    }
}
