//! The client: a claim on one lock, held for exactly as long as it is confirmed.
//!
//! [`Client`] is for programs: it runs work under a lock, or hands out guards. [`blocking`] is the same
//! without async code. Underneath, [`Claim`] decides (frames and times in; frames, deadlines and events out),
//! without socket or clock, and [`Connection`] drives one claim over one TCP connection, on tokio and
//! CLOCK_BOOTTIME; [`Retry`] says when to try again.
//!
//! # What a client may rely on
//!
//! - Work that runs under a claim is told so only while now < confirmed + 0.8 × lease, where the claim is
//!   confirmed as of the time at which the last answered heartbeat was sent. The clock goes on during a
//!   suspend and is looked at before the work goes on.
//! - A lost claim is never silently taken anew. The work is asked to stop, and where it can be, it is
//!   dropped.
//! - No client can stop work that does not look, a thread that sleeps in the kernel, or a write that is on
//!   its way. What the lock guards must therefore compare *fencing tokens*: each holder's is larger than
//!   those of all earlier holders.
//!
//! TLS is there with the feature `tls`, which is on unless it is turned off: `Config::with_tls`.
//!
//! # Errors
//!
//! They are nested by what there was. [`Error`]: no lock ([`Error::Dial`], [`Error::InvalidName`],
//! [`Error::InvalidLease`], or [`Error::Lost`] with a [`Loss`]). [`Loss`]: there was a connection, and the
//! claim on it has ended ([`Loss::ConnectionClosed`], [`Loss::HeartbeatTimeout`],
//! [`Loss::ProtocolViolation`], [`Loss::Server`]). [`RunError`]: how work under a lock did not come to a good
//! end. [`Error::is_temporary`] and [`Loss::is_temporary`] tell whether a new attempt may help. That a lock
//! is taken, or a wait was given up, is no error: it is a `None`.
//!
//! # A database row guarded by its token
//!
//! The statement is `UPDATE accounts SET balance = ?, token = ? WHERE id = ? AND token < ?`. No row changed:
//! a later holder was here. (`<` takes one write of each grant, `<=` takes several.)
//!
//! ```
//! # let server = standin::Server::start();
//! # let address = server.address();
//! use std::sync::Mutex;
//! use std::time::Duration;
//! use monolock_client::{Client, Config, Token};
//!
//! struct Account {
//!     balance: i64,
//!     token: Token,
//! }
//!
//! /// What the statement does; the number of rows that it changed.
//! fn update(account: &Mutex<Account>, balance: i64, token: Token) -> usize {
//!     let mut account = account.lock().unwrap();
//!     if account.token < token {
//!         *account = Account { balance, token };
//!         return 1;
//!     }
//!     0
//! }
//!
//! # tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
//! let account = Mutex::new(Account { balance: 100, token: Token(0) });
//! let client = Client::new(Config::new(address));
//! let lease = Duration::from_secs(10);
//!
//! let deposit = async |sum, grant: monolock_client::Grant| {
//!     let balance = account.lock().unwrap().balance + sum;
//!     update(&account, balance, grant.token())
//! };
//! let slow = client.run("account/7", lease, async |grant| grant.token()).await?;
//! assert_eq!(client.run("account/7", lease, async |grant| deposit(20, grant).await).await?, 1);
//!
//! // A holder from before, who was cut off and does not know it yet:
//! assert_eq!(update(&account, 0, slow), 0);
//! assert_eq!(account.lock().unwrap().balance, 120);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! # })?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # A file guarded by its token
//!
//! The token stands in the file. Comparing and writing are one step, under the file's own lock; that one is
//! held for moments, on one machine, and needs no lease.
//!
//! ```
//! # let server = standin::Server::start();
//! # let address = server.address();
//! use std::fs::File;
//! use std::io::{self, Read, Seek, Write};
//! use std::time::Duration;
//! use monolock_client::{Config, Token, blocking::Client};
//!
//! /// Replaces the file's content, unless a later holder has written.
//! fn write(file: &mut File, token: Token, content: &str) -> io::Result<bool> {
//!     file.lock()?;
//!     let mut old = String::new();
//!     file.rewind()?;
//!     file.read_to_string(&mut old)?;
//!     let written: u64 = old.lines().next().map_or(Ok(0), str::parse).map_err(io::Error::other)?;
//!     let is_ours = written <= token.0;
//!     if is_ours {
//!         file.rewind()?;
//!         file.set_len(0)?;
//!         write!(file, "{token}\n{content}")?;
//!         file.sync_data()?;
//!     }
//!     file.unlock()?;
//!     Ok(is_ours)
//! }
//!
//! # let path = std::env::temp_dir().join(format!("monolock-client-doc-{}", std::process::id()));
//! let mut file = File::options().read(true).write(true).create(true).truncate(false).open(&path)?;
//! # std::fs::remove_file(&path)?;
//! let client = Client::new(Config::new(address))?;
//! let lease = Duration::from_secs(10);
//!
//! let before = client.acquire("report", lease)?.token();
//! let guard = client.acquire("report", lease)?;
//! assert!(guard.is_held());
//! assert!(write(&mut file, guard.token(), "one\n")?);
//! assert!(write(&mut file, guard.token(), "two\n")?);
//! assert!(!write(&mut file, before, "late\n")?);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # A leader, elected again and again
//!
//! ```
//! # let server = standin::Server::start();
//! # let address = server.address();
//! use std::time::Duration;
//! use monolock_client::{CancellationToken, Client, Config, Error, RunError, Token};
//!
//! /// Leads whenever it can, until it is shut down.
//! async fn serve(
//!     client: &Client,
//!     shutdown: &CancellationToken,
//!     mut lead: impl AsyncFnMut(Token),
//! ) -> Result<(), Error> {
//!     while !shutdown.is_cancelled() {
//!         let term = client.run_retry_until(shutdown, "leader", Duration::from_secs(10), async |grant| {
//!             while !grant.stop().is_cancelled() {
//!                 lead(grant.token()).await;
//!             }
//!         });
//!         match term.await {
//!             Ok(()) | Err(RunError::Cancelled) => {}
//!             Err(RunError::Lost { loss, .. }) => eprintln!("no longer the leader: {loss}"),
//!             Err(RunError::NotAcquired(error)) => return Err(error),
//!         }
//!     }
//!     Ok(())
//! }
//!
//! # tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
//! let client = Client::new(Config::new(address));
//! let shutdown = CancellationToken::new();
//! let mut terms = Vec::new();
//! serve(&client, &shutdown, async |token| {
//!     if terms.last() != Some(&token) {
//!         terms.push(token);
//!     }
//!     match terms.len() {
//! #       1 if server.force_release("leader") => tokio::time::sleep(Duration::from_millis(10)).await,
//!         3.. => shutdown.cancel(),
//!         _ => tokio::time::sleep(Duration::from_millis(10)).await,
//!     }
//! #   if terms.len() == 2 { server.force_release("leader"); }
//! })
//! .await?;
//! assert!(terms.is_sorted() && terms.len() == 3);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! # })?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
#![forbid(unsafe_code)]

pub mod blocking;
mod claim;
mod client;
mod clock;
mod config;
mod dial;
mod driver;
mod error;
mod guard;
mod inbox;
mod retry;
mod rhythm;
mod standing;
#[cfg(feature = "tls")]
mod tls;
mod transport;
mod work;

pub use claim::{Claim, Event, Transmit};
pub use client::Client;
pub use clock::{Alarm, boottime_ns};
pub use config::{Config, DIAL_TIMEOUT};
pub use driver::{Connection, request};
pub use error::{Alert, Closed, Error, Loss, RunError, Violation};
pub use guard::{Grant, Guard};
#[cfg(feature = "tls")]
pub use pki::Problem;
pub use protocol::{Class, ErrorCode, Token};
pub use retry::{Retry, draw_pause};
pub use rhythm::GIVE_UP_TENTHS;
#[cfg(feature = "tls")]
pub use tls::{Identity, Tls, TlsError};
pub use tokio_util::sync::CancellationToken;
