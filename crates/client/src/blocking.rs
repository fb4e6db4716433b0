//! The same for programs without async code.
//!
//! A thread of the client's own keeps all of its claims alive, so that work may block for as long as it
//! likes. It must look at [`Grant::is_held`] or [`Guard::is_held`] before each step that needs the lock: a
//! thread cannot be stopped from outside.
//!
//! All of this panics when it is called from async code; use [`crate::Client`] there.
//!
//! ```
//! # let server = standin::Server::start();
//! # let address = server.address();
//! use std::time::Duration;
//! use monolock_client::{Config, blocking::Client};
//!
//! let client = Client::new(Config::new(address))?;
//! let report = client.run("nightly-report", Duration::from_secs(10), |grant| {
//!     let mut lines = Vec::new();
//!     for part in ["sales", "stock"] {
//!         if grant.stop().is_cancelled() || !grant.is_held() {
//!             break;
//!         }
//!         lines.push(format!("{part}, written under token {}", grant.token()));
//!     }
//!     lines
//! })?;
//! assert_eq!(report.len(), 2);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

use std::io;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use protocol::Token;
use tokio::runtime::{Builder, Handle};
use tokio_util::sync::CancellationToken;

use crate::config::Config;
use crate::error::{Error, Loss, RunError};
use crate::guard::Grant;
use crate::work::judge;

/// Claims locks at one server. Clones share one thread.
#[derive(Debug, Clone)]
pub struct Client {
    client: crate::Client,
    driver: Arc<Driver>,
}

/// The thread that drives all claims of one client. It ends with the last client and guard.
#[derive(Debug)]
struct Driver {
    handle: Handle,
    ends: CancellationToken,
}

impl Driver {
    fn start() -> io::Result<Self> {
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let (handle, ends) = (runtime.handle().clone(), CancellationToken::new());
        let ended = ends.clone();
        thread::Builder::new().name("monolock-client".into()).spawn(move || {
            runtime.block_on(ended.cancelled());
        })?;
        Ok(Self { handle, ends })
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        self.ends.cancel();
    }
}

impl Client {
    /// A client of this server, and its thread. Nothing is connected before it is needed.
    ///
    /// # Errors
    ///
    /// The system has no thread or no descriptors left.
    pub fn new(config: Config) -> io::Result<Self> {
        Ok(Self { client: crate::Client::new(config), driver: Arc::new(Driver::start()?) })
    }

    /// Waits until the lock is held, and runs the work. One attempt. The lock is released when the work has
    /// returned or panicked.
    ///
    /// When the claim is lost, [`Grant::is_held`] turns false and [`Grant::stop`] is cancelled; the work
    /// should return then.
    ///
    /// # Errors
    ///
    /// [`RunError::NotAcquired`] if the work never began; [`RunError::Lost`], with its result, if the claim
    /// was lost before it returned.
    pub fn run<T>(
        &self,
        name: &str,
        lease: Duration,
        work: impl FnOnce(Grant) -> T,
    ) -> Result<T, RunError<T>> {
        self.run_until(&CancellationToken::new(), name, lease, work)
    }

    /// As [`Client::run`], until another thread cancels `cancel`: a wait then leaves the queue at once; work
    /// is asked to stop ([`Grant::stop`]) and keeps its lock until it has.
    ///
    /// # Errors
    ///
    /// As [`Client::run`], and [`RunError::Cancelled`] if the work never began.
    pub fn run_until<T>(
        &self,
        cancel: &CancellationToken,
        name: &str,
        lease: Duration,
        work: impl FnOnce(Grant) -> T,
    ) -> Result<T, RunError<T>> {
        let guard = self.acquire_until(cancel, name, lease)?.ok_or(RunError::Cancelled)?;
        guard.attend(work)
    }

    /// As [`Client::run`], with new attempts until the lock is held once, by the rules of
    /// [`crate::Client::run_retry`].
    ///
    /// # Errors
    ///
    /// As [`Client::run`].
    pub fn run_retry<T>(
        &self,
        name: &str,
        lease: Duration,
        work: impl FnOnce(Grant) -> T,
    ) -> Result<T, RunError<T>> {
        self.run_retry_until(&CancellationToken::new(), name, lease, work)
    }

    /// [`Client::run_retry`] and [`Client::run_until`] in one: also a pause ends when `cancel` is cancelled.
    ///
    /// # Errors
    ///
    /// As [`Client::run_until`].
    pub fn run_retry_until<T>(
        &self,
        cancel: &CancellationToken,
        name: &str,
        lease: Duration,
        work: impl FnOnce(Grant) -> T,
    ) -> Result<T, RunError<T>> {
        let guard = self.wait(self.client.acquire_retrying(cancel, name, lease))?;
        self.client.remember(self.guard(guard.ok_or(RunError::Cancelled)?).attend(work))
    }

    /// Waits until the lock is held. One attempt.
    ///
    /// # Errors
    ///
    /// The lock is not held, and no longer waited for.
    pub fn acquire(&self, name: &str, lease: Duration) -> Result<Guard, Error> {
        self.wait(self.client.acquire(name, lease)).map(|guard| self.guard(guard))
    }

    /// As [`Client::acquire`], until another thread cancels `cancel`: then the wait leaves the queue and the
    /// result is `None`.
    ///
    /// # Errors
    ///
    /// As [`Client::acquire`].
    pub fn acquire_until(
        &self,
        cancel: &CancellationToken,
        name: &str,
        lease: Duration,
    ) -> Result<Option<Guard>, Error> {
        let guard = self.wait(self.client.acquire_until(cancel, name, lease))?;
        Ok(guard.map(|guard| self.guard(guard)))
    }

    /// Takes the lock if it is free; `None` if it is not.
    ///
    /// # Errors
    ///
    /// As [`Client::acquire`].
    pub fn try_acquire(&self, name: &str, lease: Duration) -> Result<Option<Guard>, Error> {
        let guard = self.wait(self.client.try_acquire(name, lease))?;
        Ok(guard.map(|guard| self.guard(guard)))
    }

    /// As [`Client::acquire`], for no longer than `timeout`, the dial included; `None` when it is over.
    ///
    /// # Errors
    ///
    /// As [`Client::acquire`].
    pub fn acquire_timeout(
        &self,
        name: &str,
        lease: Duration,
        timeout: Duration,
    ) -> Result<Option<Guard>, Error> {
        let guard = self.wait(self.client.acquire_timeout(name, lease, timeout))?;
        Ok(guard.map(|guard| self.guard(guard)))
    }

    fn wait<T>(&self, future: impl Future<Output = T>) -> T {
        self.driver.handle.block_on(future)
    }

    fn guard(&self, guard: crate::Guard) -> Guard {
        Guard { guard, driver: Arc::clone(&self.driver) }
    }
}

/// A held lock. Dropping it releases the lock at once. See [`crate::Guard`].
#[derive(Debug)]
#[must_use = "a guard that is dropped releases its lock"]
pub struct Guard {
    /// Before the driver, so that it goes first.
    guard: crate::Guard,
    driver: Arc<Driver>,
}

impl Guard {
    /// The fencing token: larger than that of every earlier holder. Hand it to whatever the lock guards.
    pub fn token(&self) -> Token {
        self.guard.token()
    }

    /// As [`crate::Guard::is_held`].
    pub fn is_held(&self) -> bool {
        self.guard.is_held()
    }

    /// Waits until the claim is lost, and says why.
    pub fn lost(&self) -> Loss {
        self.driver.handle.block_on(self.guard.lost())
    }

    fn attend<T>(self, work: impl FnOnce(Grant) -> T) -> Result<T, RunError<T>> {
        if !self.is_held() {
            return Err(RunError::NotAcquired(Error::Lost(self.guard.cause())));
        }
        let result = work(self.guard.grant().clone());
        judge(&self.guard, result)
    }
}
