//! Connections as TCP shows them: bytes in order or not at all, a stall, a reset, or a kernel that gives up.
//!
//! What is sent into a partition is held and arrives after it, or the sender's kernel gives up first and
//! tells its process that the connection timed out; then the other side hears nothing, or a reset once it
//! sends again. A way whose other direction is blocked delivers, but without acknowledgements its sender's
//! kernel gives up too.

mod sending;

use std::collections::BTreeSet;

use crate::segment::{ConnId, Segment, Side};

/// The way to one side.
#[derive(Debug, Default)]
struct Way {
    /// When the last segment arrives: later ones do not overtake it.
    last_ns: u64,
    held: Vec<Segment>,
    /// Nothing arrives any more.
    is_dead: bool,
    watched: bool,
}

/// A connection.
#[derive(Debug)]
pub(crate) struct Conn {
    pub(crate) client: usize,
    /// The server process that it leads to.
    pub(crate) process: usize,
    pub(crate) lock: usize,
    /// The server's life in which it was taken.
    pub(crate) life: usize,
    /// An administrator took its lock: until its client hears that, two may believe.
    pub(crate) is_forced: bool,
    lease_ns: u64,
    /// How long a kernel sends again before it gives up.
    patience_ns: u64,
    ways: [Way; 2],
}

/// All connections, and the partitions of the clients' hosts.
#[derive(Debug)]
pub(crate) struct Network {
    conns: Vec<Conn>,
    /// For each client and direction: since when its way is blocked, and until when.
    blocked: Vec<[(u64, u64); 2]>,
    /// Connections whose server address is at another host, which resets them.
    pub(crate) moved: BTreeSet<ConnId>,
}

impl Network {
    pub(crate) fn new(clients: usize) -> Self {
        Self { conns: Vec::new(), blocked: vec![[(0, 0); 2]; clients], moved: BTreeSet::new() }
    }

    pub(crate) fn conn(&self, conn: ConnId) -> &Conn {
        &self.conns[conn]
    }

    pub(crate) fn conn_mut(&mut self, conn: ConnId) -> &mut Conn {
        &mut self.conns[conn]
    }

    /// The connections that lead to this process, ended ones included.
    pub(crate) fn conns_of(&self, process: usize) -> Vec<ConnId> {
        (0..self.conns.len()).filter(|&conn| self.conns[conn].process == process).collect()
    }

    /// Whether nothing of this client gets through in this direction now.
    pub(crate) fn is_blocked(&self, client: usize, to: Side, now_ns: u64) -> bool {
        self.blocked[client][to as usize].1 > now_ns
    }

    /// Whether nothing of this connection arrives at this side any more.
    pub(crate) fn is_dead(&self, conn: ConnId, to: Side) -> bool {
        self.conns[conn].ways[to as usize].is_dead
    }

    /// Nothing of this connection arrives at this side any more.
    pub(crate) fn kill_way(&mut self, conn: ConnId, to: Side) {
        self.conns[conn].ways[to as usize].is_dead = true;
    }

    fn is_cut(&self, conn: ConnId, to: Side, now_ns: u64) -> bool {
        let Conn { client, ways, .. } = &self.conns[conn];
        ways[to as usize].is_dead || self.is_blocked(*client, to, now_ns)
    }
}
