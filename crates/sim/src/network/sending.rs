//! Connections are opened and blocked, and segments are sent, held, or lost.

use super::{Conn, Way};
use crate::agenda::Happening;
use crate::core::Core;
use crate::plan::Climate;
use crate::segment::{ConnId, Segment, Side};

impl Core {
    /// A client opened a connection.
    pub(crate) fn connect(&mut self, client: usize, process: usize, lock: usize, lease_ns: u64) -> ConnId {
        let patience_ns = match self.plan.climate {
            Climate::Rough => self.rng.u64(lease_ns / 10..3 * lease_ns),
            Climate::Gentle => self.rng.u64(lease_ns / 2..3 * lease_ns),
        };
        let ways = [Way::default(), Way::default()];
        self.network.conns.push(Conn {
            client,
            process,
            lock,
            life: 0,
            is_forced: false,
            lease_ns,
            patience_ns,
            ways,
        });
        self.network.conns.len() - 1
    }

    /// Sends something to one side of a connection.
    pub(crate) fn send(&mut self, conn: ConnId, to: Side, segment: Segment) {
        let now_ns = self.now_ns;
        let (is_cut, no_way_back) =
            (self.network.is_cut(conn, to, now_ns), self.network.is_cut(conn, to.other(), now_ns));
        let Conn { lease_ns, patience_ns, ways, .. } = &mut self.network.conns[conn];
        let way = &mut ways[to as usize];
        if (is_cut || no_way_back) && !std::mem::replace(&mut way.watched, true) {
            let happening = Happening::GivesUp { conn, to, sent_ns: now_ns };
            self.agenda.plan(now_ns + *patience_ns, happening);
        }
        if way.is_dead {
            return;
        }
        if is_cut || !way.held.is_empty() {
            return way.held.push(segment);
        }
        let delay_ns = self.plan.delay_ns(&mut self.rng, now_ns, *lease_ns);
        way.last_ns = way.last_ns.max(now_ns + delay_ns);
        let at_ns = way.last_ns;
        for segment in split(&mut self.rng, segment) {
            self.agenda.plan(at_ns, Happening::Arrives { conn, at: to, segment });
        }
    }

    /// Blocks a client's way in one direction.
    pub(crate) fn block(&mut self, client: usize, to: Side, for_ns: u64) {
        let (since_ns, until_ns) = &mut self.network.blocked[client][to as usize];
        if *until_ns <= self.now_ns {
            *since_ns = self.now_ns;
        }
        *until_ns = (*until_ns).max(self.now_ns + for_ns);
        self.agenda.plan(*until_ns, Happening::Heals { client, to });
    }

    /// The end of a partition: what was held is sent again, unless the network is one in which only
    /// connections that never stalled survive.
    pub(crate) fn heal(&mut self, client: usize, to: Side) {
        if self.network.is_blocked(client, to, self.now_ns) {
            return;
        }
        for conn in 0..self.network.conns.len() {
            let Conn { client: whose, ways, lease_ns, .. } = &mut self.network.conns[conn];
            let way = &mut ways[to as usize];
            if *whose != client || way.held.is_empty() {
                continue;
            }
            let held = std::mem::take(&mut way.held);
            if self.plan.climate == Climate::Gentle || way.is_dead {
                way.is_dead = true;
                continue;
            }
            // Sent again at the next retransmission, whose pause has grown with the partition.
            way.last_ns = way.last_ns.max(self.now_ns + self.rng.u64(..*lease_ns / 4));
            let at_ns = way.last_ns;
            for segment in held {
                self.agenda.plan(at_ns, Happening::Arrives { conn, at: to, segment });
            }
        }
    }

    /// Whether the kernel that sent at `sent_ns` gives up: no way, or no way back, since then.
    pub(crate) fn kernel_gives_up(&mut self, conn: ConnId, to: Side, sent_ns: u64) -> bool {
        let now_ns = self.now_ns;
        let Conn { client, ways, .. } = &mut self.network.conns[conn];
        ways[to as usize].watched = false;
        let blocked = self.network.blocked[*client];
        let since_sent = |&(since, until): &(u64, u64)| until > now_ns && since <= sent_ns;
        if !ways.iter().any(|way| way.is_dead) && !blocked.iter().any(since_sent) {
            return false;
        }
        ways[to as usize].held.clear();
        ways[to as usize].is_dead = true;
        self.figures.kernels_gave_up += 1;
        true
    }
}

/// A stream has no borders: a segment arrives in one piece or in two.
fn split(rng: &mut fastrand::Rng, segment: Segment) -> Vec<Segment> {
    match segment {
        Segment::Bytes(bytes) if bytes.len() > 1 && rng.u32(..4) == 0 => {
            let (first, second) = bytes.split_at(rng.usize(1..bytes.len()));
            vec![Segment::Bytes(first.to_vec()), Segment::Bytes(second.to_vec())]
        }
        whole => vec![whole],
    }
}
