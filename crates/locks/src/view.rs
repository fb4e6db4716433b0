//! What can be seen of a session and of a lock from outside.

use std::sync::Arc;

use protocol::{Lease, Token};

use crate::SessionId;
use crate::record::{Role, Session, Standing};

/// A lock, as the admin API sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LockView<'a> {
    /// Its name.
    pub name: &'a Arc<str>,
    /// Who holds it or has it reserved.
    pub holder: Option<SessionId>,
    /// How many wait for it, suspects included.
    pub waiters: u32,
}

/// A session, as the shard and the admin API see it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SessionView<'a, C> {
    /// The caller's key of its connection.
    pub conn: C,
    /// The lock that it claims.
    pub lock: &'a Arc<str>,
    /// Its lease.
    pub lease: Lease,
    /// When its ACQUIRE or its last confirmed heartbeat was applied, or its grant.
    pub last_seen_ns: u64,
    /// Under suspicion.
    pub suspect: bool,
    /// What it is.
    pub state: State,
}

/// What a session is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    /// It waits.
    Waiting {
        /// Waiters of one lock are in the order of this number.
        sequence: u64,
        /// When its ACQUIRE was applied.
        queued_ns: u64,
    },
    /// It holds its lock.
    Holding {
        /// The grant's token.
        token: Token,
        /// When it was granted.
        granted_ns: u64,
    },
    /// It holds its lock until its lease is over, and has no I/O any more.
    Reserved {
        /// The grant's token.
        token: Token,
        /// When it was granted.
        granted_ns: u64,
    },
}

impl<'a, C: Copy> SessionView<'a, C> {
    pub(crate) fn new(session: &Session<C>, lock: &'a Arc<str>) -> Self {
        let state = match &session.role {
            Role::Waiter(waiter) => State::Waiting { sequence: waiter.sequence, queued_ns: waiter.queued_ns },
            Role::Holder(holder) => {
                let (token, granted_ns) = (holder.token, holder.granted_ns);
                match holder.standing {
                    Standing::Reserved(_) => State::Reserved { token, granted_ns },
                    Standing::Live | Standing::Suspect => State::Holding { token, granted_ns },
                }
            }
        };
        Self {
            conn: session.conn,
            lock,
            lease: session.lease,
            last_seen_ns: session.last_seen_ns,
            suspect: session.is_suspect(),
            state,
        }
    }
}
