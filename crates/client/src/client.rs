//! The async API: claims by name, on tokio.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use protocol::Acquire;
use tokio_util::sync::CancellationToken;

use crate::claim::Event;
use crate::clock::boottime_ns;
use crate::config::Config;
use crate::driver::{Connection, request};
use crate::error::{Error, RunError};
use crate::guard::{Grant, Guard};
use crate::retry::{PAUSE_MIN, Retry, draw_pause};
use crate::work::attend;

/// Claims locks at one server. Each claim has a connection of its own; the client itself has none, and clones
/// are cheap.
///
/// Dropping a future of this client cancels what it does, at once: a wait leaves the queue; work is dropped,
/// and then its lock is released. A method ending in `_until` is stopped gently by its token instead.
#[derive(Debug, Clone)]
pub struct Client {
    config: Arc<Config>,
    /// Whether a claim was lost while its work ran, and nobody has come back since: the next dial is a
    /// reconnection.
    has_lost: Arc<AtomicBool>,
}

impl Client {
    /// A client of this server. Nothing is connected before it is needed.
    pub fn new(config: Config) -> Self {
        Self { config: Arc::new(config), has_lost: Arc::new(AtomicBool::new(false)) }
    }

    /// Waits until the lock is held, and runs the work for exactly as long as the claim is confirmed. One
    /// attempt.
    ///
    /// When the claim is lost, the work is asked to stop ([`Grant::stop`]); if it has not come to an end a
    /// tenth of the lease later, or 0.9 × lease after the last confirmation, it is dropped. The lock is
    /// released when the work has returned, was dropped, or panicked.
    ///
    /// Work that blocks its thread cannot be dropped: give such work to `spawn_blocking`, and look at
    /// [`Grant::is_held`] in it.
    ///
    /// # Errors
    ///
    /// [`RunError::NotAcquired`] if the work never began; [`RunError::Lost`] if the claim was lost before it
    /// ended.
    pub async fn run<T, F>(
        &self,
        name: &str,
        lease: Duration,
        work: impl FnOnce(Grant) -> F,
    ) -> Result<T, RunError<T>>
    where
        F: Future<Output = T>,
    {
        self.run_until(&CancellationToken::new(), name, lease, work).await
    }

    /// As [`Client::run`], until `cancel` is cancelled: a wait then leaves the queue at once; work is asked
    /// to stop ([`Grant::stop`]) and keeps its lock until it has stopped, however long that takes. That is no
    /// error: its result is returned.
    ///
    /// # Errors
    ///
    /// As [`Client::run`], and [`RunError::Cancelled`] if the work never began.
    pub async fn run_until<T, F>(
        &self,
        cancel: &CancellationToken,
        name: &str,
        lease: Duration,
        work: impl FnOnce(Grant) -> F,
    ) -> Result<T, RunError<T>>
    where
        F: Future<Output = T>,
    {
        let guard = self.acquire_until(cancel, name, lease).await?.ok_or(RunError::Cancelled)?;
        attend(guard, work).await
    }

    /// As [`Client::run`], with new attempts until the lock is held once.
    ///
    /// A new attempt follows a failed dial, a lost connection, and an error that is a condition of the
    /// server; not a client error and not invalid input ([`Error::is_temporary`]). Before each is a random
    /// pause: up to 100 ms, doubling to up to 5 s; always up to 100 ms after a server that shuts down. Each
    /// attempt begins with the next of the server's addresses. The work never runs twice: once it has begun,
    /// its end is the end. A caller who then begins anew, in a loop, waits for up to 100 ms before the first
    /// attempt too: the others who lost their claims come back at the same time.
    ///
    /// # Errors
    ///
    /// As [`Client::run`].
    pub async fn run_retry<T, F>(
        &self,
        name: &str,
        lease: Duration,
        work: impl FnOnce(Grant) -> F,
    ) -> Result<T, RunError<T>>
    where
        F: Future<Output = T>,
    {
        self.run_retry_until(&CancellationToken::new(), name, lease, work).await
    }

    /// [`Client::run_retry`] and [`Client::run_until`] in one: also a pause ends when `cancel` is cancelled.
    ///
    /// # Errors
    ///
    /// As [`Client::run_until`].
    pub async fn run_retry_until<T, F>(
        &self,
        cancel: &CancellationToken,
        name: &str,
        lease: Duration,
        work: impl FnOnce(Grant) -> F,
    ) -> Result<T, RunError<T>>
    where
        F: Future<Output = T>,
    {
        let guard = self.acquire_retrying(cancel, name, lease).await?.ok_or(RunError::Cancelled)?;
        self.remember(attend(guard, work).await)
    }

    /// Waits until the lock is held. One attempt. For code that cannot be a closure; otherwise prefer
    /// [`Client::run`], which stops the work in time.
    ///
    /// # Errors
    ///
    /// The lock is not held, and no longer waited for.
    pub async fn acquire(&self, name: &str, lease: Duration) -> Result<Guard, Error> {
        let held = self.attempt(&CancellationToken::new(), request(name, lease)?, Patience::Waits, 0).await?;
        Ok(held.expect("nobody cancels this"))
    }

    /// As [`Client::acquire`], until `cancel` is cancelled: then the wait leaves the queue and the result is
    /// `None`.
    ///
    /// # Errors
    ///
    /// As [`Client::acquire`].
    pub async fn acquire_until(
        &self,
        cancel: &CancellationToken,
        name: &str,
        lease: Duration,
    ) -> Result<Option<Guard>, Error> {
        self.attempt(cancel, request(name, lease)?, Patience::Waits, 0).await
    }

    /// Takes the lock if it is free; `None` if it is not.
    ///
    /// # Errors
    ///
    /// As [`Client::acquire`].
    pub async fn try_acquire(&self, name: &str, lease: Duration) -> Result<Option<Guard>, Error> {
        self.attempt(&CancellationToken::new(), request(name, lease)?, Patience::None, 0).await
    }

    /// As [`Client::acquire`], for no longer than `timeout`, the dial included; `None` when it is over.
    ///
    /// # Errors
    ///
    /// As [`Client::acquire`].
    pub async fn acquire_timeout(
        &self,
        name: &str,
        lease: Duration,
        timeout: Duration,
    ) -> Result<Option<Guard>, Error> {
        match tokio::time::timeout(timeout, self.acquire(name, lease)).await {
            Ok(acquired) => acquired.map(Some),
            Err(_) => Ok(None),
        }
    }

    /// Attempts, with pauses, until the lock is held or a new attempt is of no use.
    pub(crate) async fn acquire_retrying(
        &self,
        cancel: &CancellationToken,
        name: &str,
        lease: Duration,
    ) -> Result<Option<Guard>, Error> {
        let acquire = request(name, lease)?;
        let mut retry = Retry::default();
        if self.has_lost.swap(false, Ordering::Relaxed) && pause(cancel, PAUSE_MIN).await.is_break() {
            return Ok(None);
        }
        loop {
            let number = retry.begin(boottime_ns());
            let error = match self.attempt(cancel, acquire.clone(), Patience::Waits, number).await {
                Err(error) => error,
                decided => return decided,
            };
            let Some(longest) = retry.failed(boottime_ns(), &error) else { return Err(error) };
            if pause(cancel, longest).await.is_break() {
                return Ok(None);
            }
        }
    }

    /// Looks at how work ended.
    pub(crate) fn remember<T>(&self, outcome: Result<T, RunError<T>>) -> Result<T, RunError<T>> {
        if matches!(outcome, Err(RunError::Lost { .. })) {
            self.has_lost.store(true, Ordering::Relaxed);
        }
        outcome
    }

    /// One attempt. `None`: it was given up, and its connection is closed.
    async fn attempt(
        &self,
        cancel: &CancellationToken,
        acquire: Acquire,
        patience: Patience,
        attempt: usize,
    ) -> Result<Option<Guard>, Error> {
        let granted = async {
            let mut connection = Connection::open_with(&self.config, acquire, attempt).await?;
            loop {
                match connection.next_event().await {
                    Event::Waiting if patience == Patience::None => return Ok(None),
                    Event::Waiting => {}
                    Event::Acquired(token) => {
                        let guard = Guard::new(connection, token, cancel.child_token());
                        // The new task is bound to this thread until it has run once, and what comes next may
                        // block it.
                        tokio::task::yield_now().await;
                        return Ok(Some(guard));
                    }
                    Event::Lost(loss) => return Err(Error::Lost(loss)),
                }
            }
        };
        tokio::select! {
            biased;
            () = cancel.cancelled() => Ok(None),
            granted = granted => granted,
        }
    }
}

/// A random pause. It breaks off when it is cancelled.
async fn pause(cancel: &CancellationToken, longest: Duration) -> ControlFlow<()> {
    tokio::select! {
        biased;
        () = cancel.cancelled() => ControlFlow::Break(()),
        () = tokio::time::sleep(draw_pause(longest)) => ControlFlow::Continue(()),
    }
}

/// What to do when the lock is taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Patience {
    Waits,
    None,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_pause_ends_when_it_is_cancelled_however_long_it_is() {
        let cancel = CancellationToken::new();
        let cancelled = async { cancel.cancel() };
        let both = async { tokio::join!(pause(&cancel, Duration::from_secs(3600)), cancelled) };
        let (paused, ()) = tokio::time::timeout(Duration::from_secs(10), both).await.expect("it ends soon");
        assert!(paused.is_break());
    }
}
