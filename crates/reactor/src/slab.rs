//! A slab that never moves its values and whose keys never hit a slot's next user.

/// Names a value of a slab; stale once that value is removed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Key {
    index: u32,
    generation: u32,
}

/// Bits of a key's index: user data of the ring has four more for the operation. Far above any RLIMIT_NOFILE.
const INDEX_BITS: u32 = 28;

/// Slots of a chunk. A chunk is allocated at once and never moves, so an empty shard costs some 40 KB.
const CHUNK: u32 = 256;

impl Key {
    /// The slot: small, unique among live keys, reused later.
    pub fn index(self) -> u32 {
        self.index
    }

    /// The key and four more bits as user data of an operation.
    pub(crate) fn tagged(self, tag: u8) -> u64 {
        debug_assert!(tag < 16, "the tag has four bits");
        u64::from(tag) << 60 | u64::from(self.index) << 32 | u64::from(self.generation)
    }

    /// The inverse of [`Key::tagged`].
    pub(crate) fn from_tagged(user_data: u64) -> (Self, u8) {
        let index = (user_data >> 32) as u32 & ((1 << INDEX_BITS) - 1);
        (Self { index, generation: user_data as u32 }, (user_data >> 60) as u8)
    }
}

struct Slot<V> {
    generation: u32,
    value: Option<V>,
}

/// Values in chunks, with the free slots as a stack so that low indices are used again first.
pub(crate) struct Slab<V> {
    chunks: Vec<Box<[Slot<V>]>>,
    free: Vec<u32>,
}

impl<V> Default for Slab<V> {
    fn default() -> Self {
        Self::new()
    }
}

impl<V> Slab<V> {
    pub(crate) fn new() -> Self {
        Self { chunks: Vec::new(), free: Vec::new() }
    }

    /// The key of the next [`Slab::insert`]; `None` if all indices are in use.
    pub(crate) fn next_key(&mut self) -> Option<Key> {
        if self.free.is_empty() {
            let first = u32::try_from(self.chunks.len()).expect("indices are bounded") * CHUNK;
            if first >> INDEX_BITS != 0 {
                return None;
            }
            self.chunks.push((0..CHUNK).map(|_| Slot { generation: 0, value: None }).collect());
            self.free.extend((first..first + CHUNK).rev());
        }
        let index = *self.free.last().expect("filled above");
        Some(Key { index, generation: self.slot(index).generation })
    }

    /// Fills the slot that [`Slab::next_key`] named.
    pub(crate) fn insert(&mut self, key: Key, value: V) {
        assert_eq!(self.free.pop(), Some(key.index), "the key is the last one of next_key");
        self.slot_mut(key.index).value = Some(value);
    }

    pub(crate) fn get(&self, key: Key) -> Option<&V> {
        let slot = self.chunks.get((key.index / CHUNK) as usize)?.get((key.index % CHUNK) as usize)?;
        slot.value.as_ref().filter(|_| slot.generation == key.generation)
    }

    pub(crate) fn get_mut(&mut self, key: Key) -> Option<&mut V> {
        let slot =
            self.chunks.get_mut((key.index / CHUNK) as usize)?.get_mut((key.index % CHUNK) as usize)?;
        slot.value.as_mut().filter(|_| slot.generation == key.generation)
    }

    /// Empties a slot; its key is stale from now on.
    pub(crate) fn remove(&mut self, key: Key) -> Option<V> {
        self.get(key)?;
        let slot = self.slot_mut(key.index);
        let value = slot.value.take();
        // A slot that has had 2³² users gets no more: the next key would be its first one's.
        if let Some(next) = slot.generation.checked_add(1) {
            slot.generation = next;
            self.free.push(key.index);
        }
        value
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &V> {
        self.chunks.iter().flat_map(|chunk| chunk.iter()).filter_map(|slot| slot.value.as_ref())
    }

    fn slot(&self, index: u32) -> &Slot<V> {
        &self.chunks[(index / CHUNK) as usize][(index % CHUNK) as usize]
    }

    fn slot_mut(&mut self, index: u32) -> &mut Slot<V> {
        &mut self.chunks[(index / CHUNK) as usize][(index % CHUNK) as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn add(slab: &mut Slab<u64>, value: u64) -> Key {
        let key = slab.next_key().unwrap();
        slab.insert(key, value);
        key
    }

    #[test]
    fn a_stale_key_does_not_hit_the_next_user_of_its_slot() {
        let mut slab = Slab::new();
        let old = add(&mut slab, 1);
        assert_eq!(slab.remove(old), Some(1));
        let new = add(&mut slab, 2);
        assert_eq!(new.index(), old.index());
        assert_eq!(slab.get(old), None);
        assert_eq!(slab.get_mut(old), None);
        assert_eq!(slab.remove(old), None);
        assert_eq!(slab.get(new), Some(&2));
    }

    #[test]
    fn values_stay_in_place_while_the_slab_grows() {
        let mut slab = Slab::new();
        let first = add(&mut slab, 0);
        let address: *const u64 = slab.get(first).unwrap();
        for value in 1..u64::from(3 * CHUNK) {
            add(&mut slab, value);
        }
        assert!(std::ptr::eq(address, slab.get(first).unwrap()));
        assert_eq!(slab.iter().count(), 3 * CHUNK as usize);
    }

    #[test]
    fn user_data_carries_key_and_tag() {
        let key = Key { index: (1 << INDEX_BITS) - 1, generation: u32::MAX - 1 };
        assert_eq!(Key::from_tagged(key.tagged(15)), (key, 15));
        assert_eq!(Key::from_tagged(key.tagged(0)), (key, 0));
    }
}
