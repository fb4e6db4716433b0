//! A soak is many client processes at one server, some of which crash, are killed or are stopped, while the
//! server restarts and an administrator takes locks away. All of them leave logs. This crate judges those
//! logs; the program `monolock-soak`, in this package, makes them.
//!
//! # What it decides
//!
//! [`logs::read`] makes a [`History`](logs::History) of a folder: what each client saw of each of its claims,
//! what was done to clients and servers, which writes reached the registers that stand for what the locks
//! guard, and what the servers wrote to their audit log. [`check`] says which promises that history breaks:
//!
//! | promise | of |
//! | --- | --- |
//! | while a client believes that it holds a lock, its server grants it to no other | server, client |
//! | tokens grow, from server to server too, and none is used twice | server |
//! | whoever surely came first is granted first | server |
//! | a lock for which someone waits moves on | server, client |
//! | a claim ends by its client, by its client's silence, by an administrator, or with its server | server |
//! | nobody writes who does not hold the lock when it looks | client |
//! | an administrator's deed is answered, done, and seen by whom it hits | server |
//! | in the audit log one holder follows the other, and it agrees with what clients saw | server |
//!
//! Clients and registers of one machine share CLOCK_BOOTTIME, so the order of what they saw is known. What a
//! client saw late is not held against anyone: only what cannot have happened otherwise is a [`Violation`].
//! The promises about time are the exception: on a machine that leaves its processes waiting for most of a
//! lease, heartbeats are not answered in time, whoever is to blame.
//!
//! # What it never does
//!
//! It starts no process, opens no connection, reads no clock and prints nothing. It believes no log: what a
//! client says is held against the audit log, and the audit log against itself. It does not use the code that
//! writes the audit log to read it.
//!
//! # Which part uses which
//!
//! ```text
//! the program     run, restarts → crowd, client, admin, schedule     (src/bin/monolock-soak)
//!   report        figures, and a broken promise for people
//!     checks      a file for each promise; each gives violations
//!       logs      read → history → audit → names → entry
//! ```
//!
//! # Example
//!
//! The second client is granted the lock 30 ns before the first one lets it go:
//!
//! ```
//! use std::fs;
//!
//! let dir = tempfile::tempdir()?;
//! let log = |name: &str, text: &str| fs::write(dir.path().join(name), text);
//! log("acts.log", "0 server-start 0\n10 server-listening\n")?;
//! // When, which of its claims, what it saw. ACQUIRED has the token and when the ACQUIRE was sent.
//! let first = "\
//! 20 0 opening 0 1000
//! 30 0 acquire 127.0.0.1:4000
//! 40 0 acquired 100 30
//! 90 0 released 30
//! ";
//! let second = "\
//! 21 0 opening 0 1000
//! 31 0 acquire 127.0.0.1:4001
//! 60 0 acquired 200 31
//! 95 0 released 31
//! ";
//! log("client-0.0.log", first)?;
//! log("client-1.0.log", second)?;
//! let event = |event: &str, port: u16, more: &str| {
//!     let time = "1970-01-01T00:00:00Z";
//!     let lock = format!(r#""lock":"soak-0","remote_addr":"127.0.0.1:{port}""#);
//!     format!(r#"{{"time":"{time}","event":"{event}",{lock},{more}}}"#) + "\n"
//! };
//! let audit = [
//!     event("granted", 4000, r#""token":100,"wait_ms":0"#),
//!     event("released", 4000, r#""token":100,"held_ms":0,"reason":"graceful""#),
//!     event("granted", 4001, r#""token":200,"wait_ms":0"#),
//!     event("released", 4001, r#""token":200,"held_ms":0,"reason":"graceful""#),
//! ];
//! log("audit.log", &audit.concat())?;
//!
//! let broken = soak::check(&soak::logs::read(dir.path())?);
//! assert_eq!(broken.len(), 1);
//! assert!(broken[0].what.contains("was granted while 0.0#0 holds it"));
//! print!("{}", soak::report::shown(&broken[0], dir.path())?);
//!
//! log("client-1.0.log", &second.replace("60 0 acquired", "91 0 acquired"))?;
//! assert_eq!(soak::check(&soak::logs::read(dir.path())?), []);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
#![forbid(unsafe_code)]

mod checks;
pub mod logs;
pub mod report;
mod returns;

pub use checks::{HOLD_LEASES_MAX, Violation, check};
