//! What operations cost on a lock with a million waiters, beside the same with a thousand:
//! `cargo bench -p locks`.
//!
//! The figures are for reading. A cost that grows with the crowd ends the run with an error. The steps
//! themselves are counted by a test of the crate, which sees the records.
#![forbid(unsafe_code)]

use std::sync::Arc;
use std::time::{Duration, Instant};

use locks::{Effect, Gate, Opening, Reason, SessionId, Table, TokenSource, Turn};
use protocol::{Acquire, Lease, LockName};

const THOUSAND: u32 = 1_000;
const MILLION: u32 = 1_000_000;
const LEASE_MS: u32 = 10_000;

/// Times that each operation is measured.
const REPEATS: usize = 1_000;

/// Slots of one slice: as many as a thousand waiters fill nearly.
const SLICE_SLOTS: u32 = 512;

/// How much slower an operation may be among a thousand times as many: memory that is in no cache takes its
/// time, and a scan would take a thousand times as long.
const RATIO_MAX: u32 = 100;

fn main() {
    let thousand = Figures::of(THOUSAND);
    let million = Figures::of(MILLION);
    println!("{:46} {:>24} {:>24}", "median and slowest, ns", "a thousand waiters", "a million");
    for (few, many) in thousand.0.iter().zip(&million.0) {
        println!("{:46} {:>24} {:>24}", few.operation, few.shown(), many.shown());
        let bound = few.median().max(Duration::from_nanos(100)) * RATIO_MAX;
        assert!(many.median() < bound, "{}: the cost grows with the crowd", few.operation);
    }
}

/// The durations of one operation, sorted.
struct Times {
    operation: &'static str,
    sorted: Vec<Duration>,
}

impl Times {
    /// Measures an operation on a crowd, each time after a preparation that is not measured.
    fn of<T>(
        operation: &'static str,
        crowd: &mut Crowd,
        mut prepare: impl FnMut(&mut Crowd) -> T,
        mut run: impl FnMut(&mut Crowd, T),
    ) -> Self {
        let mut sorted: Vec<Duration> = (0..REPEATS)
            .map(|_| {
                let prepared = prepare(crowd);
                crowd.effects.clear();
                let start = Instant::now();
                run(crowd, prepared);
                start.elapsed()
            })
            .collect();
        sorted.sort_unstable();
        Self { operation, sorted }
    }

    fn median(&self) -> Duration {
        self.sorted[self.sorted.len() / 2]
    }

    fn shown(&self) -> String {
        format!("{} {:>9}", self.median().as_nanos(), self.sorted[self.sorted.len() - 1].as_nanos())
    }
}

/// The times of every operation, in one order.
struct Figures(Vec<Times>);

impl Figures {
    fn of(waiters: u32) -> Self {
        let mut crowd = Crowd::new(waiters);
        let middle = waiters as usize / 2;
        let mut figures = vec![
            Times::of(
                "a waiter arrives",
                &mut crowd,
                |crowd| crowd.leave(middle),
                |crowd, ()| crowd.arrive(),
            ),
            Times::of("a waiter leaves the middle", &mut crowd, Crowd::arrive, |crowd, ()| {
                crowd.leave(middle)
            }),
            Times::of(
                "the holder ends and the first is granted",
                &mut crowd,
                |crowd| {
                    crowd.arrive();
                    crowd.table.holder("jobs").expect("somebody holds it")
                },
                |crowd, holder| crowd.table.end(&crowd.turn, holder, Reason::Graceful, &mut crowd.effects),
            ),
            Times::of(
                "a waiter's heartbeat",
                &mut crowd,
                |_| (),
                |crowd, ()| {
                    let last = *crowd.ids.last().expect("there are some");
                    crowd.table.heartbeat(&crowd.turn, last, &mut crowd.effects).expect("it waits");
                },
            ),
            Times::of(
                "a slice of sessions",
                &mut crowd,
                |_| (),
                |crowd, ()| {
                    let (sessions, _) = crowd.table.sessions_from(0, SLICE_SLOTS);
                    assert!(sessions.count() > 0);
                },
            ),
        ];
        crowd.turn.now_ns += u64::from(LEASE_MS) * 1_000_000 + 1_000_000;
        figures.push(Times::of("a claim expires", &mut crowd, |_| (), |crowd, ()| crowd.expire_next()));
        Self(figures)
    }
}

/// A lock with a holder and its waiters.
struct Crowd {
    table: Table<u32>,
    turn: Turn,
    effects: Vec<Effect<u32>>,
    ids: Vec<SessionId>,
}

impl Crowd {
    fn new(waiters: u32) -> Self {
        let turn = Turn { now_ns: 7_000_000_000, unix_ns: 0, gate: Gate::Open(Opening::FIRST) };
        let table = Table::new(Arc::new(TokenSource::new()));
        let mut crowd = Self { table, turn, effects: Vec::new(), ids: Vec::new() };
        (0..=waiters).for_each(|_| {
            crowd.effects.clear();
            crowd.arrive();
        });
        crowd
    }

    fn arrive(&mut self) {
        let name = LockName::new("jobs").expect("a legal name");
        let request = Acquire { name, lease: Lease::from_ms(LEASE_MS).expect("a legal lease") };
        let id = self.table.acquire(&self.turn, 0, request, &mut self.effects).expect("the gate is open");
        self.ids.push(id);
    }

    fn leave(&mut self, place: usize) {
        let id = self.ids.swap_remove(place);
        self.table.end(&self.turn, id, Reason::Graceful, &mut self.effects);
    }

    fn expire_next(&mut self) {
        let id = self.table.next_overdue(self.turn.now_ns).expect("somebody is overdue");
        self.table.expire(&self.turn, id, &mut self.effects);
    }
}
