//! A slab of records that grows by chunks, so that growth never copies a record.

use std::ops::{Index, IndexMut};

/// No record.
pub(crate) const NONE: u32 = u32::MAX;

/// Records a chunk: large enough that the table of chunks stays small (a thousand entries for a million
/// sessions), small enough that no insertion waits for much memory.
const CHUNK_RECORDS: usize = 1024;

/// Records by index. A removed record's slot is the next to be used; chunks are kept, so memory stays at the
/// peak.
#[derive(Debug)]
pub(crate) struct Slab<T> {
    chunks: Vec<Vec<Slot<T>>>,
    free: u32,
    slots: u32,
    /// Accesses so far: lets a test count the steps of an operation.
    #[cfg(test)]
    pub(crate) touched: std::cell::Cell<u64>,
}

#[derive(Debug)]
pub(crate) struct Slot<T> {
    generation: u32,
    content: Content<T>,
}

#[derive(Debug)]
enum Content<T> {
    Free { next: u32 },
    Taken(T),
}

impl<T> Slab<T> {
    pub(crate) fn new() -> Self {
        Self {
            chunks: Vec::new(),
            free: NONE,
            slots: 0,
            #[cfg(test)]
            touched: std::cell::Cell::new(0),
        }
    }

    /// Stores a record; returns its index.
    pub(crate) fn insert(&mut self, record: T) -> u32 {
        if self.free == NONE {
            return self.insert_fresh(record);
        }
        let at = self.free;
        let slot = self.slot_mut(at);
        let Content::Free { next } = slot.content else { unreachable!("the free list names free slots") };
        slot.content = Content::Taken(record);
        self.free = next;
        at
    }

    fn insert_fresh(&mut self, record: T) -> u32 {
        let at = self.slots;
        assert!(at < NONE, "2³² − 1 records are more than any machine has descriptors for");
        if (at as usize).is_multiple_of(CHUNK_RECORDS) {
            self.chunks.push(Vec::with_capacity(CHUNK_RECORDS));
        }
        let chunk = self.chunks.last_mut().expect("a chunk was just made or has room");
        chunk.push(Slot { generation: 0, content: Content::Taken(record) });
        self.slots += 1;
        at
    }

    /// Takes a record out. Its slot is used again, unless its generations are used up: an index with a
    /// generation names one record for good.
    pub(crate) fn remove(&mut self, at: u32) -> T {
        let free = self.free;
        let slot = self.slot_mut(at);
        let Content::Taken(record) = std::mem::replace(&mut slot.content, Content::Free { next: free })
        else {
            panic!("record {at} was removed before")
        };
        if slot.generation < u32::MAX {
            slot.generation += 1;
            self.free = at;
        }
        record
    }

    /// The generation of the record at `at`; `None` if there is no record.
    pub(crate) fn generation(&self, at: u32) -> Option<u32> {
        let slot = self.chunks.get(at as usize / CHUNK_RECORDS)?.get(at as usize % CHUNK_RECORDS)?;
        matches!(slot.content, Content::Taken(_)).then_some(slot.generation)
    }

    /// The record at `at` if it is still of this generation.
    #[inline]
    pub(crate) fn get_mut(&mut self, at: u32, generation: u32) -> Option<&mut T> {
        self.touch();
        let slot = self.chunks.get_mut(at as usize / CHUNK_RECORDS)?.get_mut(at as usize % CHUNK_RECORDS)?;
        match &mut slot.content {
            Content::Taken(record) if slot.generation == generation => Some(record),
            _ => None,
        }
    }

    /// The records in `slots_max` slots from `from` on, and the slot to go on at unless these were the last.
    pub(crate) fn records_from(
        &self,
        from: u32,
        slots_max: u32,
    ) -> (impl Iterator<Item = (u32, &T)>, Option<u32>) {
        let end = from.saturating_add(slots_max).min(self.slots);
        let record = |at: u32| {
            self.touch();
            match &self.chunks[at as usize / CHUNK_RECORDS][at as usize % CHUNK_RECORDS].content {
                Content::Taken(record) => Some((at, record)),
                Content::Free { .. } => None,
            }
        };
        ((from..end).filter_map(record), (end < self.slots).then_some(end))
    }

    /// Every index that was ever used is below this.
    pub(crate) fn slots(&self) -> u32 {
        self.slots
    }

    #[inline]
    fn slot_mut(&mut self, at: u32) -> &mut Slot<T> {
        self.touch();
        &mut self.chunks[at as usize / CHUNK_RECORDS][at as usize % CHUNK_RECORDS]
    }

    #[inline]
    fn touch(&self) {
        #[cfg(test)]
        self.touched.set(self.touched.get() + 1);
    }
}

impl<T> Index<u32> for Slab<T> {
    type Output = T;

    #[inline]
    fn index(&self, at: u32) -> &T {
        self.touch();
        match &self.chunks[at as usize / CHUNK_RECORDS][at as usize % CHUNK_RECORDS].content {
            Content::Taken(record) => record,
            Content::Free { .. } => panic!("no record at {at}"),
        }
    }
}

impl<T> IndexMut<u32> for Slab<T> {
    #[inline]
    fn index_mut(&mut self, at: u32) -> &mut T {
        match &mut self.slot_mut(at).content {
            Content::Taken(record) => record,
            Content::Free { .. } => panic!("no record at {at}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_freed_slot_is_used_again_under_another_generation() {
        let mut slab = Slab::new();
        let (a, b) = (slab.insert('a'), slab.insert('b'));
        let old = slab.generation(a).unwrap();
        assert_eq!(slab.remove(a), 'a');
        assert_eq!(slab.generation(a), None);
        assert_eq!(slab.insert('c'), a);
        assert_eq!(slab.get_mut(a, old), None);
        assert_eq!((slab[a], slab[b], slab.slots()), ('c', 'b', 2));
    }

    #[test]
    fn slices_together_are_all_records_and_end_with_the_last_slot() {
        let mut slab = Slab::new();
        for n in 0..10 {
            slab.insert(n);
        }
        for gone in [0, 4, 9] {
            slab.remove(gone);
        }
        for slots_max in [1, 3, 10, u32::MAX] {
            let (mut next, mut seen) = (Some(0), Vec::new());
            while let Some(from) = next {
                let (records, more) = slab.records_from(from, slots_max);
                seen.extend(records.map(|(at, &record)| (at, record)));
                next = more;
            }
            assert_eq!(seen, [1, 2, 3, 5, 6, 7, 8].map(|n| (n, n)), "{slots_max} slots a slice");
        }
        assert_eq!(slab.records_from(11, 5).0.count(), 0);
        assert_eq!(slab.records_from(u32::MAX, u32::MAX).1, None);
    }

    #[test]
    fn growth_moves_no_record() {
        let mut slab = Slab::new();
        let first = slab.insert([0u8; 64]);
        let address = std::ptr::from_ref(&slab[first]);
        for _ in 0..10 * CHUNK_RECORDS {
            slab.insert([1; 64]);
        }
        assert_eq!(std::ptr::from_ref(&slab[first]), address);
    }

    #[test]
    fn a_slot_without_generations_left_is_retired() {
        let mut slab = Slab::new();
        let at = slab.insert('a');
        slab.slot_mut(at).generation = u32::MAX;
        slab.remove(at);
        assert_ne!(slab.insert('b'), at);
        assert_eq!(slab.get_mut(at, u32::MAX), None);
    }
}
