//! Questions of the admin API to the shards: few may wait, none for long, and each costs its shard a bounded
//! time.
//!
//! A shard answers one question a turn, after it has answered its clients. So heartbeats never wait for more
//! than one slice; and what a client has been told is what the API shows: the reply came from the same
//! thread, before the question was taken.

use std::collections::HashSet;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, SyncSender, TrySendError};
use std::time::Duration;

use locks::{Counts, SessionId};
use protocol::Token;
use reactor::Waker;

use super::owners::Owners;
use super::seen::{Described, NotReleased, SeenHolder, SeenWaiter, Slice};

/// Questions that may wait for one shard. Each call of the API asks one at a time, so more come only when the
/// shard hangs and its askers have given up.
const WAITING_MAX: usize = 64;

/// How long a question waits to be taken: five times as long as a shard may go without a turn before it
/// counts as hung.
const TAKEN_WITHIN: Duration = Duration::from_secs(5);

/// What a shard can be asked, and what it can be told to do. It does all of it in one place:
/// `Worker::answer`.
pub(super) enum Question {
    /// How many sessions and locks there are.
    Counts(Reply<Counts>),
    /// The names of a part of the locks.
    Names { from: u32, reply: Reply<Slice<Arc<str>>> },
    /// What there is to see of these locks.
    Describe { names: Vec<Arc<str>>, reply: Reply<Vec<Described>> },
    /// Who waits for any of these locks, from a part of the sessions.
    Waiters { of: Arc<HashSet<Arc<str>>>, from: u32, reply: Reply<Slice<(Arc<str>, SeenWaiter)>> },
    /// The administrator takes a lock from its holder; if there is a token, only from the holder that has it.
    ForceRelease { name: String, of: Option<Token>, reply: Reply<Result<SeenHolder, NotReleased>> },
    /// The administrator removes a waiter.
    Kick { session: SessionId, reply: Reply<Option<SeenWaiter>> },
}

/// Where an answer goes.
pub(super) struct Reply<T>(SyncSender<T>);

impl<T> Reply<T> {
    /// An asker that gave up meanwhile needs no answer.
    pub(super) fn send(self, answer: T) {
        let _ = self.0.send(answer);
    }
}

/// A question on its way.
pub(super) struct Asked {
    turn: Once,
    question: Question,
}

impl Asked {
    /// The question, if it is to be answered: not when its asker has given up.
    pub(super) fn take(self) -> Option<Question> {
        self.turn.is_first().then_some(self.question)
    }
}

/// Passed once: by the shard that takes a question or by the asker that gives up, so that an action that
/// failed is not done after all.
#[derive(Debug, Clone, Default)]
struct Once(Arc<AtomicBool>);

impl Once {
    /// Whether this is the first.
    fn is_first(&self) -> bool {
        !self.0.swap(true, Ordering::Relaxed)
    }
}

/// The way to ask the shards. Calls block: they are for threads that may wait.
#[derive(Clone)]
pub(crate) struct Questions {
    owners: Owners,
    inboxes: Vec<(SyncSender<Asked>, Waker)>,
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
pub(super) fn inbox() -> (SyncSender<Asked>, Receiver<Asked>) {
    mpsc::sync_channel(WAITING_MAX)
}

impl Questions {
    pub(super) fn new(owners: Owners) -> Self {
        Self { owners, inboxes: Vec::new() }
    }

    /// Adds the next shard.
    pub(super) fn add(&mut self, inbox: SyncSender<Asked>, waker: Waker) {
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
        self.ask(shard, Question::Counts)
    }

    /// The names of a part of a shard's locks.
    pub(crate) fn names(&self, shard: usize, from: u32) -> Result<Slice<Arc<str>>, NoAnswer> {
        self.ask(shard, |reply| Question::Names { from, reply })
    }

    /// What there is to see of locks of one shard, in their order. Stops early, but not before the first,
    /// when there is much to see: then the answer is shorter than `names`.
    pub(crate) fn describe(&self, shard: usize, names: Vec<Arc<str>>) -> Result<Vec<Described>, NoAnswer> {
        self.ask(shard, |reply| Question::Describe { names, reply })
    }

    /// Who waits for any of the locks `of`, with its name, from a part of a shard's sessions; in no order.
    pub(crate) fn waiters(
        &self,
        shard: usize,
        of: &Arc<HashSet<Arc<str>>>,
        from: u32,
    ) -> Result<Slice<(Arc<str>, SeenWaiter)>, NoAnswer> {
        self.ask(shard, |reply| Question::Waiters { of: Arc::clone(of), from, reply })
    }

    /// Takes a lock from its holder; if there is a token, only from the holder that has it. Who that was.
    pub(crate) fn force_release(
        &self,
        name: &str,
        of: Option<Token>,
    ) -> Result<Result<SeenHolder, NotReleased>, NoAnswer> {
        let shard = self.shard_of(name);
        self.ask(shard, |reply| Question::ForceRelease { name: name.to_owned(), of, reply })
    }

    /// Removes a session that waits for this lock. Who that was; `None` if it does not wait any more.
    pub(crate) fn kick(&self, name: &str, session: SessionId) -> Result<Option<SeenWaiter>, NoAnswer> {
        self.ask(self.shard_of(name), |reply| Question::Kick { session, reply })
    }

    fn ask<T>(&self, shard: usize, question: impl FnOnce(Reply<T>) -> Question) -> Result<T, NoAnswer> {
        let (reply, answer) = mpsc::sync_channel(1);
        let turn = Once::default();
        let (inbox, waker) = &self.inboxes[shard];
        let question = Asked { turn: turn.clone(), question: question(Reply(reply)) };
        inbox.try_send(question).map_err(|error| match error {
            TrySendError::Full(_) => NoAnswer::Full(shard),
            TrySendError::Disconnected(_) => NoAnswer::Gone,
        })?;
        waker.wake();
        match wait(&answer, &turn, TAKEN_WITHIN) {
            Ok(answer) => Ok(answer),
            Err(RecvTimeoutError::Timeout) => Err(NoAnswer::Late(shard)),
            Err(RecvTimeoutError::Disconnected) => Err(NoAnswer::Gone),
        }
    }
}

/// Waits for the answer to a question that must be taken within a time; one that is taken is answered.
fn wait<T>(answer: &Receiver<T>, turn: &Once, taken_within: Duration) -> Result<T, RecvTimeoutError> {
    match answer.recv_timeout(taken_within) {
        Err(RecvTimeoutError::Timeout) if !turn.is_first() => Ok(answer.recv()?),
        answered => answered,
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;

    fn question(turn: Once) -> Asked {
        let (reply, _) = mpsc::sync_channel(1);
        Asked { turn, question: Question::Counts(Reply(reply)) }
    }

    #[test]
    fn a_question_to_a_full_inbox_or_to_a_shard_that_is_gone_fails_at_once() {
        let reactor = reactor::Reactor::<()>::new(reactor::Config::default()).unwrap();
        let mut questions = Questions::new(Owners::new(1));
        let (ask, asked) = inbox();
        questions.add(ask.clone(), reactor.waker());
        for _ in 0..WAITING_MAX {
            assert!(ask.try_send(question(Once::default())).is_ok());
        }
        assert_eq!(questions.counts(0).unwrap_err(), NoAnswer::Full(0));
        drop(asked);
        assert_eq!(questions.counts(0).unwrap_err(), NoAnswer::Gone);
    }

    #[test]
    fn an_asker_that_gives_up_is_not_served_after_all_and_one_that_is_being_served_does_not_give_up() {
        const SHORT: Duration = Duration::from_millis(1);
        let turn = Once::default();
        let (_reply, answer) = mpsc::sync_channel::<()>(1);
        assert_eq!(wait(&answer, &turn, SHORT), Err(RecvTimeoutError::Timeout));
        assert!(question(turn).take().is_none());

        let turn = Once::default();
        let question = question(turn.clone());
        let (reply, answer) = mpsc::sync_channel(1);
        assert!(question.take().is_some());
        let slow = thread::spawn(move || {
            thread::sleep(20 * SHORT);
            reply.send("done").unwrap();
        });
        assert_eq!(wait(&answer, &turn, SHORT), Ok("done"));
        slow.join().unwrap();
    }
}
