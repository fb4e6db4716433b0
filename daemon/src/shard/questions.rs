//! Questions of the admin API to the shards: few may wait, none for long, and each costs its shard a bounded time.
//!
//! A shard answers one question a turn, after it has answered its clients. So heartbeats never wait for more than one slice; and
//! what a client has been told is what the API shows: the reply came from the same thread, before the question was taken.

use std::collections::HashSet;
use std::ops::Range;
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, SyncSender, TrySendError};
use std::time::Duration;

use locks::{Counts, SessionId};
use ring::Waker;

use super::Owners;
use super::seen::{Described, Holder, Slice, Waiter};
use super::worker::Worker;
use crate::clock;

/// Questions that may wait for one shard. Each call of the API asks one at a time, so more come only when the shard hangs and
/// its askers have given up.
const WAITING_MAX: usize = 64;

/// A question that its shard has not taken by then is dropped: nobody waits for it.
const TAKEN_WITHIN_NS: u64 = 4_000_000_000;

/// How long an answer is waited for: longer than until a question is dropped, so that an action that failed was not done after all.
const ANSWERED_WITHIN: Duration = Duration::from_secs(5);

/// A question on its way.
pub(super) struct Question {
    /// When it is dropped, CLOCK_MONOTONIC.
    pub(super) until_ns: u64,
    /// Answers it, on the shard's thread.
    pub(super) answer: Box<dyn FnOnce(&mut Worker) + Send>,
}

/// The way to ask the shards. Calls block: they are for threads that may wait.
#[derive(Clone)]
pub(crate) struct Questions {
    owners: Owners,
    inboxes: Vec<(SyncSender<Question>, Waker)>,
}

/// Why a shard did not answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum NoAnswer {
    #[error("shard {0} does not answer")]
    Late(usize),
    #[error("too many requests wait for shard {0}")]
    Full(usize),
    #[error("the server has shut down")]
    Gone,
}

/// A shard's inbox for questions.
pub(super) fn inbox() -> (SyncSender<Question>, Receiver<Question>) {
    mpsc::sync_channel(WAITING_MAX)
}

impl Questions {
    pub(super) fn new(owners: Owners) -> Self {
        Self { owners, inboxes: Vec::new() }
    }

    /// Adds the next shard.
    pub(super) fn add(&mut self, inbox: SyncSender<Question>, waker: Waker) {
        self.inboxes.push((inbox, waker));
    }

    pub(crate) fn shards(&self) -> Range<usize> {
        0..self.inboxes.len()
    }

    /// The shard that owns a name.
    pub(crate) fn shard_of(&self, name: &str) -> usize {
        self.owners.of(name)
    }

    /// How many sessions and locks there are.
    pub(crate) fn counts(&self, shard: usize) -> Result<Counts, NoAnswer> {
        self.ask(shard, |worker| worker.counts())
    }

    /// The names of a part of a shard's locks.
    pub(crate) fn names(&self, shard: usize, from: u32) -> Result<Slice<Arc<str>>, NoAnswer> {
        self.ask(shard, move |worker| worker.names(from))
    }

    /// What there is to see of locks of one shard, in their order. Stops early, but not before the first, when there is much
    /// to see: then the answer is shorter than `names`.
    pub(crate) fn describe(&self, shard: usize, names: Vec<Arc<str>>) -> Result<Vec<Described>, NoAnswer> {
        self.ask(shard, move |worker| worker.describe(&names))
    }

    /// Who waits for any of the locks `of`, with its name, from a part of a shard's sessions; in no order.
    pub(crate) fn waiters(
        &self,
        shard: usize,
        of: &Arc<HashSet<Arc<str>>>,
        from: u32,
    ) -> Result<Slice<(Arc<str>, Waiter)>, NoAnswer> {
        let of = Arc::clone(of);
        self.ask(shard, move |worker| worker.waiters(&of, from))
    }

    /// Takes a lock from its holder. Who that was.
    pub(crate) fn force_release(&self, name: &str) -> Result<Option<Holder>, NoAnswer> {
        let owned = name.to_owned();
        self.ask(self.shard_of(name), move |worker| worker.force_release(&owned))
    }

    /// Removes a session that waits for this lock. Who that was; `None` if it does not wait any more.
    pub(crate) fn kick(&self, name: &str, session: SessionId) -> Result<Option<Waiter>, NoAnswer> {
        self.ask(self.shard_of(name), move |worker| worker.kick(session))
    }

    fn ask<T: Send + 'static>(
        &self,
        shard: usize,
        question: impl FnOnce(&mut Worker) -> T + Send + 'static,
    ) -> Result<T, NoAnswer> {
        let (reply, answer) = mpsc::sync_channel(1);
        // An asker that gave up meanwhile needs no answer.
        let answer_it = move |worker: &mut Worker| drop(reply.send(question(worker)));
        let until_ns = clock::monotonic_ns() + TAKEN_WITHIN_NS;
        let (inbox, waker) = &self.inboxes[shard];
        inbox.try_send(Question { until_ns, answer: Box::new(answer_it) }).map_err(|error| match error {
            TrySendError::Full(_) => NoAnswer::Full(shard),
            TrySendError::Disconnected(_) => NoAnswer::Gone,
        })?;
        waker.wake();
        answer.recv_timeout(ANSWERED_WITHIN).map_err(|_| NoAnswer::Late(shard))
    }
}

#[cfg(test)]
mod tests {
    use std::hash::RandomState;

    use super::*;

    #[test]
    fn a_question_to_a_full_inbox_or_to_a_shard_that_is_gone_fails_at_once() {
        let reactor = ring::Reactor::<()>::new(ring::Config::default()).unwrap();
        let mut questions = Questions::new(Owners { hasher: RandomState::new(), shards: 1 });
        let (ask, asked) = inbox();
        questions.add(ask.clone(), reactor.waker());
        for _ in 0..WAITING_MAX {
            let waiting = Question { until_ns: u64::MAX, answer: Box::new(|_| ()) };
            assert!(ask.try_send(waiting).is_ok());
        }
        assert_eq!(questions.counts(0).unwrap_err(), NoAnswer::Full(0));
        drop(asked);
        assert_eq!(questions.counts(0).unwrap_err(), NoAnswer::Gone);
    }
}
