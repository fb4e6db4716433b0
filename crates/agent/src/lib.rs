//! `monolock ha-agent`: a second process beside a server, and the server's connection to it.
//!
//! The server of a node of a pair can hang, and then neither take its health file away nor tell the other
//! node that it has closed. The agent outlives it and does both.
//!
//! ```text
//!   the other node ── mutual TLS ──▶ agent ──▶ health file ······ keepalived
//!                                    │  ▲
//!                          questions ▼  │ hello with its own pidfd, beats, answers
//!                                   server ── lock ──▶ state directory
//! ```
//!
//! # What it decides
//!
//! Whether the node is fit to have the address (`vigil`): the health file is there while a server is
//! connected, has beaten within 300 ms, and is ready. Beats come each 50 ms from the server's control thread,
//! and are as old as the time that stands in them (CLOCK_BOOTTIME).
//!
//! What the other node is told (`desk`). A server that is connected speaks for itself: its answers go back
//! as they are. For a request to close without such an answer:
//!
//! ```text
//!              connected                          not connected
//!                  │ asked                              │
//!        answers ◀─┤                                    │
//!                  │ silent for 200 ms                  │ for 200 ms
//!                  ▼                                    ▼
//!        asked weakly: no answer ◀──── a process that said hello lives ────┐
//!                                           │ asked in earnest             │
//!                                           ▼                              │
//!                                       killed ── has not exited ──▶ no answer
//!                                           │ exited, or nobody ever said hello
//!                                           ▼
//!     the state lock is free · nobody listens on the port · the state is read ──no──▶ no answer
//!                                           │ yes, under the lock          (tried for a second)
//!                                           ▼
//!                     a higher term is promised: refused
//!                     else: the promise is stored and synced: GONE FOR THE TERM
//! ```
//!
//! *Weak* is no matter of what `gone` means: a server that is gone is neither open nor promoting, so it gives
//! way to a weak request too. Nobody is killed for one.
//!
//! # What it never does
//!
//! - It never says `gone` for a process whose exit its pidfd does not show, and never because a connection
//!   ended, a port refused, or time passed.
//! - It signals no number, only a pidfd that a server handed over as its own; and it kills nobody
//!   unasked, nor for a request that would be refused afterwards, nor for whoever is not the peer.
//! - It answers nothing in the place of a server of another version or user. It opens no gate and makes
//!   no term.
//! - It trusts no beat from before a stop of its own, and leaves no health file behind that nobody looks
//!   after: at its start and at SIGTERM the file goes first, and a server whose agent ends, or has not
//!   echoed a second's beats, takes it away itself.
//! - It holds the state lock only while it computes one answer: a server that starts waits for it.
//!
//! The kernel lists a listener for up to 40 ms after the exit of a process with a ring (measured with 500
//! connections), so a port or a lock that is in use is looked at again until the second is over.
//!
//! # How to use it
//!
//! The agent is [`Agent`]. A server keeps a [`Link`] on its control thread:
//!
//! ```
//! use agent::{Hello, Link, Standing};
//!
//! # let folder = tempfile::tempdir()?;
//! # let runtime = threads::runtime::current_thread()?;
//! # runtime.block_on(async {
//! let hello = Hello {
//!     node: "node-a".parse()?,
//!     host: "0123456789abcdef0123456789abcdef".parse()?,
//!     incarnation: ha::identity::Incarnation {
//!         boot: std::fs::read_to_string("/proc/sys/kernel/random/boot_id")?.parse()?,
//!         started_ns: 1,
//!     },
//!     fencers: "peer".parse()?,
//!     ports: vec![7070],
//! };
//! let (link, mut questions) = Link::start(&folder.path().join("agent.sock"), hello);
//! link.set_ready(true);
//! // There is no agent here: /readyz fails when that is so for a second.
//! assert!(matches!(link.standing(), Standing::Away { .. }));
//! // And from time to time: `while let Some(question) = questions.recv().await { question.answer(…) }`
//! assert!(questions.try_recv().is_err());
//! # Ok::<_, Box<dyn std::error::Error>>(())
//! # })?;
//! # Ok::<_, Box<dyn std::error::Error>>(())
//! ```
#![forbid(unsafe_code)]

mod agent;
mod clock;
mod desk;
mod health;
mod link;
mod ports;
mod process;
mod servers;
mod state;
mod vigil;
mod wire;

pub use agent::{Agent, AgentError, Config, Ended};
pub use link::{Link, Question, Standing};
pub use state::{LOCK_FILE, STATE_FILE, STATE_KIND};
pub use wire::Hello;
