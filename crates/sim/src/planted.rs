//! The planted faults of a server that take more than a word: what its shell does instead of the right thing.

use locks::{SessionId, State, Turn};

use crate::core::Core;
use crate::sabotage::Sabotage;
use crate::segment::ConnId;
use crate::server::Process;

impl Process {
    /// Whose session it is: the connection's that brought it, unless sessions were swapped.
    pub(crate) fn owner(&self, session: SessionId, conn: ConnId) -> ConnId {
        self.swapped.get(&session).copied().unwrap_or(conn)
    }

    /// [`Sabotage::QueuesLastFirst`].
    pub(crate) fn swap_with_the_waiter_before(&mut self, core: &Core, shard: usize, conn: ConnId) {
        let table = &self.shards[shard].table;
        let waits = |session: Option<SessionId>| {
            session
                .and_then(|session| table.session(session))
                .is_some_and(|view| matches!(view.state, State::Waiting { .. }))
        };
        let lock = core.network.conn(conn).lock;
        let mut others = self.sockets.iter().rev().filter(|&(&other, socket)| {
            other != conn && core.network.conn(other).lock == lock && waits(socket.session)
        });
        let Some((&other, _)) = others.next().filter(|_| waits(self.sockets[&conn].session)) else { return };
        let session_of = |conn| self.sockets[&conn].session.expect("it waits");
        for (conn, session) in [(conn, session_of(other)), (other, session_of(conn))] {
            self.sockets.get_mut(&conn).expect("it waits").session = Some(session);
            self.swapped.insert(session, conn);
        }
    }

    /// [`Sabotage::PromotesOverdue`]: a heartbeat that never came.
    pub(crate) fn refresh_overdue_waiters(&mut self, core: &mut Core, shard: usize, turn: &Turn) {
        if core.sabotage != Sabotage::PromotesOverdue {
            return;
        }
        let mut effects = Vec::new();
        for socket in self.sockets.values() {
            let table = &mut self.shards[shard].table;
            let Some(session) = socket.session.filter(|&session| table.session(session).is_some()) else {
                continue;
            };
            if matches!(table.session(session).expect("just seen").state, State::Waiting { .. }) {
                table.heartbeat(turn, session, &mut effects);
            }
        }
        self.carry_out(core, shard, turn, effects);
    }

    /// [`Sabotage::ReleasesWithoutWord`].
    pub(crate) fn release_somebody_without_word(&mut self, core: &mut Core, shard: usize, turn: &Turn) {
        if !turn.gate.is_open() || core.rng.u32(..50) > 0 {
            return;
        }
        let lock = core.rng.usize(..core.plan.locks);
        let Some(conn) = core.checks.holder((self.life, lock)) else { return };
        let Some(session) = self.sockets.get(&conn).and_then(|socket| socket.session) else { return };
        if self.shard_of(core, conn) == shard {
            self.end(core, shard, turn, conn, session);
        }
    }
}
