//! The reactor of one shard thread: one io_uring that serves many TCP connections of small frames.
//!
//! It knows nothing about what the bytes mean. A turn of its owner looks like this:
//!
//! ```no_run
//! # fn turn(reactor: &mut reactor::Reactor<u64>) -> std::io::Result<()> {
//! use reactor::Event;
//!
//! reactor.wait(None)?; // submits what the last turn left, then sleeps
//! while let Some(event) = reactor.next_event() {
//!     match event {
//!         Event::Woken => { /* look at the queues that other threads fill */ }
//!         Event::Received { key, data, bytes } => {
//!             *data += bytes.len() as u64; // decode, let go of the borrow, then answer
//!             reactor.send(key, b"answer");
//!         }
//!         Event::Ended { key, .. } => drop(reactor.close(key)),
//!     }
//! }
//! # Ok(())
//! # }
//! ```
//!
//! What an owner can rely on:
//!
//! - **One enter a turn.** [`Reactor::send`], [`Reactor::close`] and re-armed receives go out with the next
//!   [`Reactor::wait`]; only `insert`, `close` and the end of a connection make system calls of their own.
//! - **A key never hits its slot's next user**, and no event comes for a key after its [`Event::Ended`],
//!   after `close` or after `close_after`.
//! - **Output is in order and bounded.** Above [`OUTPUT_PAUSE_BYTES`] a connection's receive is cancelled
//!   until its output is gone. What the kernel had received by then is still delivered: at most what fits the
//!   buffer ring ([`Config::buffers`] × [`BUFFER_BYTES`]) before the cancellation takes effect, in practice a
//!   few KB.
//! - **An end has a cause.** EOF and RST are the peer's; [`Ended::Silent`] is an error that the local kernel
//!   made up. A failed send never hides received bytes: the receive runs to its end first.
//! - **Unread input is never overlooked**: [`Reactor::has_unread`] asks the connection's own socket, between
//!   the drain and the next enter, when nothing else can hold its input.
//!
//! Sends normally have no completion (`MSG_DONTWAIT` finishes them at submission, `SKIP_SUCCESS` drops the
//! completion of a whole one). `MSG_WAITALL` makes a short send count as failure, so its completion comes. A
//! connection whose socket was full sends one tracked piece at a time until its output is empty.
#![deny(unsafe_op_in_unsafe_fn)]

mod buffers;
mod connection;
mod output;
mod pacing;
mod probe;
mod reactor;
mod ring;
mod slab;
mod timers;
mod unavailable;
mod waker;

pub use buffers::BUFFER_BYTES;
pub use connection::{DRAIN_BYTES_MAX, OUTPUT_PAUSE_BYTES};
pub use output::INLINE_BYTES;
pub use probe::probe;
pub use reactor::{Config, DRAIN_MAX, Ended, Event, Reactor};
pub use ring::Capabilities;
pub use rustix::io::Errno;
pub use slab::Key;
pub use unavailable::{Step, Unavailable};
pub use waker::Waker;
