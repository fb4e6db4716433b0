//! What a shard decides: who holds a lock, who waits for it, whose lease is over.
//!
//! Sans-IO: no socket, clock, thread or log. The shard looks at its clocks and its gate once a [`Turn`],
//! hands in one event at a time, and gets [`Effect`]s back as data. It carries out the effects of one call
//! before the next call: a [`Effect::Granted`] always names a session that is still there.
//!
//! # The life of a claim
//!
//! [`Table::acquire`] makes a session that holds its lock or waits for it. [`Table::heartbeat`] keeps it. It
//! ends by
//!
//! - [`Table::end`]: the connection is *gone* (EOF, RST, a bad frame, an I/O timeout); its lock moves at
//!   once.
//! - [`Table::silence`]: the I/O was given up, but the client may still believe in its claim. A holder's lock
//!   stays *reserved* until its lease is over. The id is spent for the I/O: heartbeats, suspicion and `end`
//!   ignore it.
//! - [`Table::expire`]: `now − last_seen > lease`. [`Table::next_overdue`] names the candidates, so that the
//!   shard can ask each socket first.
//! - [`Table::force_release`], [`Table::kick`] and [`Table::close_some`].
//!
//! Whoever reports an end by `end` or `silence` gets no [`Effect::End`] for it; every other end of a session
//! that has I/O has exactly one. A reserved session has no I/O: its last effect is [`Effect::Released`], and
//! until then the caller keeps what it wants to say about that connection in the audit log.
//!
//! # What is always so
//!
//! - A lock has at most one holder. `Released` comes before the next `Granted`.
//! - Waiters are granted in the order of their ACQUIREs. Two things stop a waiter that is first: a *suspect*
//!   (its host is thought unreachable) is passed over and keeps its place; one whose own lease is over is
//!   neither granted nor skipped, the lock stays free until that waiter is heard or expired.
//! - Behind a closed gate nothing is granted and nothing confirmed. A heartbeat that is not confirmed extends
//!   no lease.
//! - While the gate is open, a lock is free only if every unsuspected waiter stands behind one that is
//!   overdue. A gate that opens again finds free locks with waiters; the next heartbeat of any of them is the
//!   occasion to grant.
//! - No path of a session scans or copies a queue; see [`Table`].
#![forbid(unsafe_code)]

pub mod checker;
mod index;
mod lock;
mod queue;
mod record;
mod slab;
#[cfg(test)]
mod steps;
mod table;
mod token;
mod view;
mod wheel;

use std::sync::Arc;

use protocol::{ErrorCode, Token};

pub use table::{LOOK_AGAIN_NS, Table};
pub use token::TokenSource;
pub use view::{LockView, SessionView, State};

/// One look at the clocks and at the gate, made by the shard once a turn, after its wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Turn {
    /// CLOCK_MONOTONIC: leases are counted on it. Never smaller than in an earlier turn.
    pub now_ns: u64,
    /// The wall clock, for tokens; it may step back.
    pub unix_ns: u64,
    /// Whether this server may grant and confirm.
    pub gate: Gate,
}

/// Counts the times that the gate of this process was opened. Sessions of one opening are never confirmed in
/// another: in between, another server may have granted their locks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Opening(pub u64);

impl Opening {
    /// The only one of a server that is never a standby.
    pub const FIRST: Self = Self(1);
}

/// Whether this server may grant and confirm.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Gate {
    /// It may, what belongs to this opening.
    Open(Opening),
    /// It is not the active server: an ACQUIRE is refused with [`ErrorCode::STANDBY`].
    Standby,
    /// It goes: an ACQUIRE is refused with [`ErrorCode::SHUTTING_DOWN`].
    ShuttingDown,
}

impl Gate {
    /// Whether this server may grant and confirm, in whatever opening.
    pub fn is_open(self) -> bool {
        matches!(self, Self::Open(_))
    }
}

/// Names one session for good: a stale id is never mistaken for the next session in the same slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SessionId {
    index: u32,
    generation: u32,
}

/// What answers a heartbeat.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Answer {
    /// WAITING. The grant may follow in the same call, as an effect.
    Waiting,
    /// ACQUIRED, with the token of the grant.
    Acquired(Token),
}

/// Why an ownership ended: the reasons of the audit log and of `monolock_releases_total`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Reason {
    /// Closed, reset, or a bad frame.
    Graceful,
    /// The lease was over.
    Expired,
    /// The client did not read its replies.
    IoTimeout,
    /// An administrator released the lock.
    Force,
    /// A suspect's lock was moved early, by the opt-in rule.
    Unreachable,
    /// The local address of the connection went away.
    AddressLost,
    /// This server is no longer the active one.
    Demoted,
    /// This server shut down.
    Shutdown,
}

impl Reason {
    /// Every reason, in the order of the audit log's documentation.
    pub const ALL: [Self; 8] = [
        Self::Graceful,
        Self::Expired,
        Self::IoTimeout,
        Self::Force,
        Self::Unreachable,
        Self::AddressLost,
        Self::Demoted,
        Self::Shutdown,
    ];

    /// As in the audit log and in metric labels.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Graceful => "graceful",
            Self::Expired => "expired",
            Self::IoTimeout => "io_timeout",
            Self::Force => "force",
            Self::Unreachable => "unreachable",
            Self::AddressLost => "address_lost",
            Self::Demoted => "demoted",
            Self::Shutdown => "shutdown",
        }
    }
}

/// What the shard has to do, in this order. `conn` is the caller's key of the connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Effect<C> {
    /// Answer the ACQUIRE with WAITING.
    Queued {
        /// The claim's connection.
        conn: C,
        /// The claim.
        session: SessionId,
    },
    /// Send ACQUIRED: the answer to the ACQUIRE of a claim that was not queued, else the push.
    Granted {
        /// The new holder's connection.
        conn: C,
        /// The new holder.
        session: SessionId,
        /// What it holds.
        lock: Arc<str>,
        /// The grant's token.
        token: Token,
        /// From the ACQUIRE to the grant.
        wait_ns: u64,
    },
    /// An ownership ended: for the audit log and the counters.
    Released {
        /// The old holder's connection.
        conn: C,
        /// The old holder; the id is stale from here on.
        session: SessionId,
        /// What it held.
        lock: Arc<str>,
        /// The token of its grant.
        token: Token,
        /// From the grant to the end.
        held_ns: u64,
        /// Why it ended.
        reason: Reason,
    },
    /// End the I/O of a connection.
    End {
        /// The connection.
        conn: C,
        /// Its claim; the id is stale from here on.
        session: SessionId,
        /// The ERROR to send first; expiry sends none.
        error: Option<ErrorCode>,
    },
}

/// How many there are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counts {
    /// All sessions: holders, reserved ones, and waiters.
    pub sessions: usize,
    /// Locks with a holder or a queue.
    pub locks: usize,
    /// Locks with a holder, reserved ones included.
    pub locks_held: usize,
    /// Waiting claims of all queues, suspects included.
    pub waiters: usize,
    /// Sessions under suspicion; a reserved one is under none.
    pub suspects: usize,
    /// Holders whose I/O was given up. `sessions − reserved` are connections.
    pub reserved: usize,
}
