//! What shards tell of locks, as the API shows it.

use admin_api::{Holder, Lock, Time, Waiter};

use crate::shard::seen;

impl From<&seen::SeenLock> for Lock {
    fn from(lock: &seen::SeenLock) -> Self {
        Self {
            name: (*lock.name).to_owned(),
            holder: lock.holder.as_ref().map(Holder::from),
            waiters: lock.waiters.iter().map(Waiter::from).collect(),
        }
    }
}

impl From<&seen::SeenHolder> for Holder {
    fn from(holder: &seen::SeenHolder) -> Self {
        Self {
            identity: identity(&holder.who),
            remote_addr: holder.who.peer.to_string(),
            since: Time::from_unix_ns(holder.since_ns),
            lease_ms: holder.lease.as_ms(),
            token: holder.token.0,
        }
    }
}

impl From<&seen::SeenWaiter> for Waiter {
    fn from(waiter: &seen::SeenWaiter) -> Self {
        Self {
            identity: identity(&waiter.who),
            remote_addr: waiter.who.peer.to_string(),
            queued_at: Time::from_unix_ns(waiter.queued_at_ns),
        }
    }
}

fn identity(who: &seen::Who) -> String {
    who.identity.as_deref().unwrap_or_default().to_owned()
}
