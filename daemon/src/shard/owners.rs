//! Which shard owns which name.

use std::hash::{BuildHasher, RandomState};

/// Which shard owns a name.
#[derive(Debug, Clone)]
pub(super) struct Owners {
    /// Keyed with a secret of this process: clients choose names, and must not choose shards.
    hasher: RandomState,
    shards: usize,
}

impl Owners {
    pub(super) fn new(shards: usize) -> Self {
        Self { hasher: RandomState::new(), shards }
    }

    /// The shard of a name.
    pub(super) fn of(&self, name: &str) -> usize {
        let hash = u128::from(self.hasher.hash_one(name));
        usize::try_from((hash * self.shards as u128) >> 64).expect("less than the number of shards")
    }
}
