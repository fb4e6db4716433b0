//! A crowd of waiters on one lock costs no more steps than ten do, and a slice of a crowd is a slice: counted
//! in accesses to session and lock records, which only the crate sees. `benches/million.rs` measures the
//! time.

use std::sync::Arc;

use protocol::{Acquire, Lease, LockName};

use crate::{Answer, Effect, Gate, Opening, Reason, SessionId, Table, TokenSource, Turn};

/// Ten thousand times ten: what depends on the number of waiters shows, and a debug build takes seconds.
const CROWD: u32 = 100_000;
const LEASE_MS: u32 = 10_000;

struct Crowd {
    table: Table<u32>,
    turn: Turn,
    effects: Vec<Effect<u32>>,
    /// The holder, then the waiters.
    ids: Vec<SessionId>,
}

impl Crowd {
    fn new(waiters: u32) -> Self {
        let turn = Turn { now_ns: 7_000_000_000, unix_ns: 0, gate: Gate::Open(Opening::FIRST) };
        let table = Table::new(Arc::new(TokenSource::new()));
        let mut crowd = Self { table, turn, effects: Vec::new(), ids: Vec::new() };
        (0..=waiters).for_each(|conn| crowd.acquire(conn));
        crowd
    }

    fn acquire(&mut self, conn: u32) {
        let request =
            Acquire { name: LockName::new("jobs").unwrap(), lease: Lease::from_ms(LEASE_MS).unwrap() };
        self.effects.clear();
        self.ids.push(self.table.acquire(&self.turn, conn, request, &mut self.effects).unwrap());
    }

    /// The accesses of one operation.
    fn steps(&mut self, operation: impl FnOnce(&mut Self)) -> u64 {
        let touched = |crowd: &Self| crowd.table.sessions.touched.get() + crowd.table.locks.touched.get();
        let before = touched(self);
        self.effects.clear();
        operation(self);
        touched(self) - before
    }

    fn end(&mut self, n: usize) {
        self.table.end(&self.turn, self.ids[n], Reason::Graceful, &mut self.effects);
    }

    fn expire_next(&mut self) {
        let id = self.table.next_overdue(self.turn.now_ns).expect("somebody is overdue");
        self.table.expire(&self.turn, id, &mut self.effects);
    }
}

/// The steps of each operation on a lock with this many waiters.
fn steps_of_all_operations(waiters: u32) -> Vec<(&'static str, u64)> {
    let mut crowd = Crowd::new(waiters);
    let middle = waiters as usize / 2;
    let mut steps = vec![
        ("a waiter arrives", crowd.steps(|crowd| crowd.acquire(waiters + 1))),
        ("a waiter leaves the middle", crowd.steps(|crowd| crowd.end(middle))),
        ("the holder ends and the first is granted", crowd.steps(|crowd| crowd.end(0))),
        (
            "a waiter's heartbeat",
            crowd.steps(|crowd| {
                let answer = crowd.table.heartbeat(&crowd.turn, crowd.ids[middle + 1], &mut crowd.effects);
                assert_eq!(answer, Some(Answer::Waiting));
            }),
        ),
    ];
    crowd.turn.now_ns += u64::from(LEASE_MS) * 1_000_000 + 1_000_000;
    let silent = crowd.steps(Crowd::expire_next).max(crowd.steps(Crowd::expire_next));
    assert!(silent > 0 && crowd.effects.len() <= 3);
    steps.push(("a claim expires", silent));
    steps
}

#[test]
fn a_crowd_of_waiters_on_one_lock_costs_no_more_steps_than_ten() {
    let ten = steps_of_all_operations(10);
    let crowd = steps_of_all_operations(CROWD);
    for (&(operation, with_ten), &(_, with_a_crowd)) in ten.iter().zip(&crowd) {
        println!("{operation}: {with_ten} steps with ten waiters, {with_a_crowd} with a crowd");
        assert!(with_a_crowd <= with_ten + 1, "{operation}");
    }
}

#[test]
fn a_crowd_of_waiters_that_are_overdue_at_once_is_looked_at_one_by_one() {
    let mut crowd = Crowd::new(CROWD);
    crowd.turn.now_ns += u64::from(LEASE_MS) * 1_000_000 + 1_000_000;
    let mut most = 0;
    for _ in 0..=CROWD {
        most = most.max(crowd.steps(Crowd::expire_next));
    }
    println!("at most {most} steps an expiry");
    assert!(most < 64);
    assert_eq!(crowd.table.next_overdue(crowd.turn.now_ns), None);
    assert_eq!(crowd.table.counts().sessions, 0);
    assert!(!crowd.table.contains("jobs"));
}

#[test]
fn a_crowd_of_sessions_that_come_up_early_is_looked_at_over_many_turns() {
    let mut table = Table::new(Arc::new(TokenSource::new()));
    let mut turn = Turn { now_ns: 0, unix_ns: 0, gate: Gate::Open(Opening::FIRST) };
    let mut effects = Vec::new();
    let lease = Lease::from_ms(60_000).unwrap();
    let name = LockName::new("jobs").unwrap();
    for conn in 0..CROWD {
        let request = Acquire { name: name.clone(), lease };
        table.acquire(&turn, conn, request, &mut effects).unwrap();
    }
    turn.now_ns = lease.as_ns() - 1_000_000_000;
    let mut turns = 0;
    while table.next_deadline_ns().unwrap() <= turn.now_ns {
        let before = table.sessions.touched.get();
        assert_eq!(table.next_overdue(turn.now_ns), None);
        assert!(table.sessions.touched.get() - before < 16 * 1024, "a turn's looks are bounded");
        turns += 1;
    }
    assert!(turns >= CROWD / 1024);
}

const SLICE_SLOTS: u32 = 1024;

/// Walks a table by slices; the most steps that one of them took, and how many records all of them saw.
fn walk<T>(table: &Table<u32>, slice: impl Fn(&Table<u32>, u32) -> (Vec<T>, Option<u32>)) -> (u64, usize) {
    let touched = || table.sessions.touched.get() + table.locks.touched.get();
    let (mut most, mut seen, mut next) = (0, 0, Some(0));
    while let Some(slot) = next {
        let before = touched();
        let (records, more) = slice(table, slot);
        most = most.max(touched() - before);
        seen += records.len();
        next = more;
    }
    (most, seen)
}

#[test]
fn a_slice_of_a_crowd_of_locks_or_of_waiters_costs_a_bounded_number_of_steps() {
    let names = |table: &Table<u32>, slot| {
        let (names, more) = table.names_from(slot, SLICE_SLOTS);
        (names.cloned().collect(), more)
    };
    let sessions = |table: &Table<u32>, slot| {
        let (sessions, more) = table.sessions_from(slot, SLICE_SLOTS);
        (sessions.map(|(id, _)| id).collect(), more)
    };
    let mut apart = Crowd::new(0);
    for conn in 1..CROWD {
        let lease = Lease::from_ms(LEASE_MS).unwrap();
        let request = Acquire { name: LockName::new(&format!("lock/{conn}")).unwrap(), lease };
        apart.table.acquire(&apart.turn, conn, request, &mut apart.effects).unwrap();
    }
    let together = Crowd::new(CROWD);
    // A session's slice looks at its slot and at its lock.
    for (crowd, locks, claims) in [(&apart, CROWD, CROWD), (&together, 1, CROWD + 1)] {
        assert_eq!(walk(&crowd.table, names), (u64::from(SLICE_SLOTS.min(locks)), locks as usize));
        let (most, seen) = walk(&crowd.table, sessions);
        println!("{locks} locks, {claims} claims: at most {most} steps a slice of sessions");
        assert_eq!(seen, claims as usize);
        assert!(most <= 3 * u64::from(SLICE_SLOTS));
    }
    let before = together.table.sessions.touched.get();
    assert_eq!(together.table.lock("jobs").unwrap().waiters, CROWD);
    assert_eq!(
        together.table.sessions.touched.get(),
        before,
        "a queue's length is known without its waiters"
    );
}
