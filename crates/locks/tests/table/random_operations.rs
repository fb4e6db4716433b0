//! Random operations under a jumping clock: the table does what the naive model does.

use std::collections::BTreeMap;
use std::sync::Arc;

use locks::{Gate, LOOK_AGAIN_NS, Opening, Reason, SessionId, TokenSource, Turn};
use protocol::Token;

use crate::checked::{Checked, Effects};
use crate::model::{Look, Model, Seen};
use testkit::random::{Random, with_seeds};

const LOCKS: [&str; 3] = ["a", "b", "c"];
const LEASES_MS: [u32; 6] = [1, 2, 5, 100, 10_000, u32::MAX];
/// Where the clock stops jumping, so that no sum of times overflows.
const LAST_NS: u64 = u64::MAX / 4;
/// Within less than this the wheel is exact; see `Table::look_again`.
const CATCH_UP_NS: u64 = 16_000_000_000;
const RUNS: u64 = 400;
const STEPS: u64 = 500;

struct Pair {
    random: Random,
    turn: Turn,
    tokens: Arc<TokenSource>,
    checked: Checked,
    model: Model,
    /// All ids ever, stale ones too.
    ids: BTreeMap<u32, SessionId>,
    conns: BTreeMap<SessionId, u32>,
    /// Came up as overdue and have no answer yet.
    asked: Vec<u32>,
    /// When the table last had nothing more to look at.
    caught_up_ns: u64,
}

#[test]
fn the_table_does_what_the_naive_model_does() {
    with_seeds(RUNS, |random| {
        let mut pair = Pair::new(random);
        for _ in 0..STEPS {
            pair.step();
            pair.compare();
        }
        pair.close_all();
    });
}

impl Pair {
    fn new(mut random: Random) -> Self {
        let now_ns = random.below(1 << 50);
        // Half of the runs have a ceiling, which is mostly reached.
        let has_ceiling = random.below(2) == 0;
        let tokens =
            Arc::new(if has_ceiling { TokenSource::with_ceiling(Token(0)) } else { TokenSource::new() });
        Self {
            random,
            turn: Turn { now_ns, unix_ns: 1 << 60, gate: Gate::Open(Opening::FIRST) },
            checked: Checked::with_tokens(Arc::clone(&tokens)),
            model: Model::new(if has_ceiling { 0 } else { u64::MAX }),
            tokens,
            ids: BTreeMap::new(),
            conns: BTreeMap::new(),
            asked: Vec::new(),
            caught_up_ns: 0,
        }
    }

    fn step(&mut self) {
        match self.random.below(100) {
            0..25 => self.acquire(),
            25..45 => self.heartbeat(),
            45..50 => self.end(),
            50..54 => self.silence(),
            54..60 => self.suspect(),
            60..65 => self.alive(),
            65..67 => self.force_release(),
            67..69 => self.kick(),
            69..80 => self.take_overdue(),
            80..88 => self.answer_one(),
            88..95 => self.pass_time(),
            95..97 => self.raise_ceiling(),
            97..99 => {
                let gates = [Gate::Open(Opening::FIRST), Gate::Open(Opening(2)), Gate::Standby];
                self.turn.gate = self.random.pick(&gates);
            }
            _ => self.close_some(),
        }
    }

    fn acquire(&mut self) {
        let conn = u32::try_from(self.ids.len()).unwrap();
        let (lock, lease_ms) = (self.random.pick(&LOCKS), self.random.pick(&LEASES_MS));
        let (result, effects) = self.checked.acquire(&self.turn, conn, lock, lease_ms);
        match (result, self.model.acquire(&self.turn, conn, lock, lease_ms)) {
            (Ok(id), Ok(seen)) => {
                self.ids.insert(conn, id);
                assert_eq!(self.conns.insert(id, conn), None);
                self.same(&effects, &seen);
            }
            (Err(code), Err(expected)) => assert_eq!((code, effects), (expected, vec![])),
            (result, expected) => panic!("{result:?} is not {expected:?}"),
        }
    }

    fn heartbeat(&mut self) {
        let Some((conn, id)) = self.someone() else { return };
        let (answer, effects) = self.checked.heartbeat(&self.turn, id);
        let (expected, seen) = self.model.heartbeat(&self.turn, conn);
        assert_eq!(answer, expected);
        self.same(&effects, &seen);
    }

    fn end(&mut self) {
        let Some((conn, id)) = self.someone() else { return };
        let reason = self.random.pick(&[Reason::Graceful, Reason::IoTimeout, Reason::Unreachable]);
        let effects = self.checked.end(&self.turn, id, reason);
        let seen = self.model.end(&self.turn, conn, reason);
        self.same(&effects, &seen);
    }

    fn silence(&mut self) {
        let Some((conn, id)) = self.someone() else { return };
        let reason = self.random.pick(&[Reason::Expired, Reason::AddressLost]);
        let effects = self.checked.silence(&self.turn, id, reason);
        let seen = self.model.silence(&self.turn, conn, reason);
        // It has no socket to ask any more.
        if self.model.sessions.get(&conn).is_none_or(|session| session.reserved.is_some()) {
            self.asked.retain(|&asked| asked != conn);
        }
        self.same(&effects, &seen);
    }

    fn suspect(&mut self) {
        let Some((conn, id)) = self.someone() else { return };
        let effects = self.checked.suspect(&self.turn, id);
        let seen = self.model.set_suspect(&self.turn, conn, true);
        self.same(&effects, &seen);
    }

    fn alive(&mut self) {
        let Some((conn, id)) = self.someone() else { return };
        let effects = self.checked.alive(&self.turn, id);
        let seen = self.model.set_suspect(&self.turn, conn, false);
        self.same(&effects, &seen);
    }

    fn force_release(&mut self) {
        let lock = self.random.pick(&LOCKS);
        let (done, effects) = self.checked.force_release(&self.turn, lock);
        let (expected, seen) = self.model.force_release(&self.turn, lock);
        assert_eq!(done, expected);
        self.same(&effects, &seen);
    }

    fn kick(&mut self) {
        let Some((conn, id)) = self.someone() else { return };
        let (done, effects) = self.checked.kick(&self.turn, id);
        let (expected, seen) = self.model.kick(&self.turn, conn);
        assert_eq!(done, expected);
        self.same(&effects, &seen);
    }

    /// Takes all that come up as overdue; most are answered here, some later.
    fn take_overdue(&mut self) {
        let now_ns = self.turn.now_ns;
        while let Some(id) = self.checked.table.next_overdue(now_ns) {
            let conn = self.conns[&id];
            let session = self.model.sessions.get_mut(&conn).expect("only sessions come up");
            assert!(session.is_overdue(now_ns), "nobody comes up early");
            assert!(session.look != Look::Out, "nobody comes up twice");
            if let Look::Again { from_ns, .. } = session.look {
                assert!(now_ns >= from_ns, "nobody comes up before it is to be looked at again");
            }
            session.look = Look::Out;
            self.asked.push(conn);
            if self.random.below(4) > 0 {
                self.answer_one();
            }
        }
        self.caught_up_ns = now_ns;
        for (conn, session) in &self.model.sessions {
            let late = session.is_overdue(now_ns) && session.comes_up_ns().is_some_and(|ns| ns <= now_ns);
            assert!(!late, "{conn} has not come up");
        }
    }

    fn answer_one(&mut self) {
        if self.asked.is_empty() {
            return;
        }
        let n = self.random.below(self.asked.len() as u64) as usize;
        let conn = self.asked.swap_remove(n);
        let id = self.ids[&conn];
        if self.random.below(3) == 0 {
            self.checked.table.look_again(self.turn.now_ns, id, LOOK_AGAIN_NS);
            let exact = self.turn.now_ns - self.caught_up_ns < CATCH_UP_NS;
            self.model.look_again(self.turn.now_ns, conn, exact);
        } else {
            let effects = self.checked.expire(&self.turn, id);
            let seen = self.model.expire(&self.turn, conn);
            self.same(&effects, &seen);
        }
    }

    /// A few tokens more; locks that were free for want of one are granted in any order.
    fn raise_ceiling(&mut self) {
        if self.model.ceiling == u64::MAX {
            return;
        }
        self.model.ceiling += self.random.below(20);
        self.tokens.raise_ceiling(Token(self.model.ceiling));
        self.model.first_waiters_may_come_up();
        loop {
            let (more, effects) = self.checked.grant_starved(&self.turn, 1);
            let lock = effects.iter().find_map(|effect| match Seen::from(effect) {
                Seen::Granted(_, lock, ..) => Some(lock),
                _ => None,
            });
            let mut seen = Vec::new();
            if let Some(lock) = &lock {
                self.model.promote(&self.turn, lock, &mut seen);
            }
            self.same(&effects, &seen);
            if !more || effects.is_empty() {
                break;
            }
        }
    }

    fn pass_time(&mut self) {
        let deadlines: Vec<u64> = self.model.sessions.values().map(|session| session.deadline_ns()).collect();
        let now_ns = self.turn.now_ns;
        let to_deadline = match deadlines.is_empty() {
            true => 0,
            false => self.random.pick(&deadlines).saturating_sub(now_ns),
        };
        let anywhere = 1 << self.random.below(56);
        let step_ns = self.random.pick(&[1, 1_000_000, 999_999, to_deadline, to_deadline + 1, anywhere]);
        self.turn.now_ns = (now_ns + step_ns).min(LAST_NS);
        self.turn.unix_ns = match self.random.below(4) {
            0 => self.turn.unix_ns.saturating_sub(step_ns),
            _ => self.turn.unix_ns.saturating_add(step_ns),
        };
    }

    fn close_some(&mut self) {
        let before = std::mem::replace(&mut self.turn.gate, Gate::ShuttingDown);
        let max = self.random.below(4) as usize;
        let (more, effects) = self.checked.close_some(&self.turn, max, Reason::Demoted);
        let (mut seen, mut closed) = (Vec::new(), 0);
        while seen.len() < effects.len() {
            let (Seen::End(conn, _) | Seen::Released(conn, ..)) = Seen::from(&effects[seen.len()]) else {
                panic!("closing only ends sessions")
            };
            seen.extend(self.model.close(&self.turn, conn, Reason::Demoted));
            closed += 1;
        }
        self.same(&effects, &seen);
        let remain = self.model.sessions.len();
        assert_eq!(closed, max.min(remain + closed), "few slots are looked at, so none is left out");
        assert_eq!(more, remain > 0);
        self.turn.gate = before;
    }

    fn close_all(&mut self) {
        self.turn.gate = Gate::ShuttingDown;
        while self.checked.close_some(&self.turn, 3, Reason::Shutdown).0 {}
        assert_eq!(self.checked.table.counts(), Default::default());
        assert_eq!(self.checked.table.names_from(0, u32::MAX).0.count(), 0);
        assert_eq!(self.checked.table.next_deadline_ns(), None);
    }

    /// Mostly a session that is there; sometimes a stale id.
    fn someone(&mut self) -> Option<(u32, SessionId)> {
        let present: Vec<u32> = self.model.sessions.keys().copied().collect();
        let conn = match self.random.below(20) {
            0 if !self.ids.is_empty() => self.random.below(self.ids.len() as u64) as u32,
            _ if present.is_empty() => return None,
            _ => self.random.pick(&present),
        };
        Some((conn, self.ids[&conn]))
    }

    fn same(&self, effects: &Effects, expected: &[Seen]) {
        let seen: Vec<Seen> = effects.iter().map(Seen::from).collect();
        assert_eq!(seen, expected);
    }

    fn compare(&self) {
        let table = &self.checked.table;
        assert_eq!(table.counts(), self.model.counts());
        for lock in LOCKS {
            let holder = table.holder(lock).map(|id| self.conns[&id]);
            let waiters: Vec<u32> = table.waiters(lock).map(|id| self.conns[&id]).collect();
            let expected = self.model.waiters(lock);
            assert_eq!(holder, self.model.holder(lock));
            assert_eq!(waiters, expected);
            assert_eq!(table.contains(lock), holder.is_some() || !expected.is_empty());
            self.checked.check_holder(lock);
        }
        let comes_up = self.model.sessions.values().filter_map(|session| session.comes_up_ns()).min();
        if let Some(comes_up_ns) = comes_up {
            let latest = comes_up_ns.max(self.turn.now_ns);
            let next = table.next_deadline_ns();
            assert!(next.is_some_and(|next| next <= latest), "{next:?} is too late for {latest}");
        }
    }
}
