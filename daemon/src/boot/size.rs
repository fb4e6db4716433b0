//! How many threads a server has, and how many connections fit beside what they open.

use std::num::NonZeroUsize;
use std::sync::Arc;

use crate::capacity::{Capacity, TooFewDescriptors};
use crate::shard;

/// Descriptors of a shard: its ring and its waker.
const DESCRIPTORS_A_SHARD: usize = 2;

/// Descriptors of an intake thread: its ring, its runtime's epoll, eventfd and signal pipe, and a duplicate
/// of each of usually one or two listeners.
const DESCRIPTORS_AN_INTAKE: usize = 6;

/// How many shards there are: one for each usable CPU, unless their number is set.
pub(crate) fn shard_count(setting: Option<NonZeroUsize>) -> usize {
    setting.map_or_else(|| shard::usable_cpus().len().max(1), NonZeroUsize::get)
}

pub(super) fn intake_count(shards: usize) -> usize {
    (shards / 2).max(1)
}

/// The connections that fit besides what is open and what these shards and their intake will open.
pub(crate) fn capacity(descriptors: usize, shards: usize) -> Result<Arc<Capacity>, TooFewDescriptors> {
    let to_open = shards * DESCRIPTORS_A_SHARD + intake_count(shards) * DESCRIPTORS_AN_INTAKE;
    Capacity::new(descriptors, open_descriptors() + to_open)
}

fn open_descriptors() -> usize {
    std::fs::read_dir("/proc/self/fd").map_or(0, Iterator::count)
}
