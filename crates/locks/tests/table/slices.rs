//! Slices of the table, as the admin API walks it while claims come and go.

use std::collections::HashMap;

use locks::{Gate, Opening, Reason, SessionId, State, Turn};

use crate::checked::Checked;
use testkit::random::{Random, with_seeds};

const TURN: Turn = Turn { now_ns: 0, unix_ns: 0, gate: Gate::Open(Opening::FIRST) };

/// Claims that stay, and as many that come and go, on locks of their own and on one lock.
struct Crowd {
    checked: Checked,
    passing: Vec<SessionId>,
    next_conn: u32,
}

impl Crowd {
    fn new(stay: u32, lock: impl Fn(u32) -> String, random: &mut Random) -> (Self, Vec<SessionId>) {
        let mut crowd = Self { checked: Checked::new(), passing: Vec::new(), next_conn: 0 };
        let mut staying = Vec::new();
        for n in 0..stay {
            staying.push(crowd.acquire(&lock(n)));
            crowd.churn(random, &lock);
        }
        (crowd, staying)
    }

    fn acquire(&mut self, lock: &str) -> SessionId {
        self.next_conn += 1;
        self.checked.acquire(&TURN, self.next_conn, lock, 1000).0.unwrap()
    }

    /// Some claims come and some go.
    fn churn(&mut self, random: &mut Random, lock: impl Fn(u32) -> String) {
        for _ in 0..random.below(8) {
            if random.below(2) == 0 {
                let id = self.acquire(&lock(1_000_000 + self.next_conn));
                self.passing.push(id);
            } else if !self.passing.is_empty() {
                let index = random.below(self.passing.len() as u64) as usize;
                let id = self.passing.swap_remove(index);
                self.checked.end(&TURN, id, Reason::Graceful);
            }
        }
    }
}

#[test]
fn a_lock_that_stays_is_seen_exactly_once_while_others_come_and_go() {
    with_seeds(50, |mut random| {
        let own = |n: u32| format!("lock/{n}");
        let (mut crowd, _) = Crowd::new(200, own, &mut random);
        let mut seen: HashMap<String, u32> = HashMap::new();
        let mut next = Some(0);
        while let Some(slot) = next {
            let (names, more) = crowd.checked.table.names_from(slot, 1 + random.below(20) as u32);
            names.for_each(|name| *seen.entry(name.to_string()).or_default() += 1);
            next = more;
            crowd.churn(&mut random, own);
        }
        (0..200).for_each(|n| assert_eq!(seen.get(&own(n)), Some(&1), "lock/{n}"));
    });
}

#[test]
fn a_waiter_that_stays_is_seen_exactly_once_and_by_its_sequence_in_its_order() {
    with_seeds(50, |mut random| {
        let jobs = |_| "jobs".to_owned();
        let (mut crowd, staying) = Crowd::new(200, jobs, &mut random);
        let mut seen = Vec::new();
        let mut next = Some(0);
        while let Some(slot) = next {
            let (sessions, more) = crowd.checked.table.sessions_from(slot, 1 + random.below(20) as u32);
            for (id, session) in sessions {
                assert_eq!(&**session.lock, "jobs");
                if let State::Waiting { sequence, .. } = session.state {
                    seen.push((sequence, id));
                }
            }
            next = more;
            crowd.churn(&mut random, jobs);
        }
        seen.sort_unstable();
        let seen: Vec<SessionId> =
            seen.into_iter().map(|(_, id)| id).filter(|id| staying.contains(id)).collect();
        // The first came before all others and holds the lock.
        assert_eq!(seen, staying[1..]);
        assert_eq!(crowd.checked.table.lock("jobs").unwrap().holder, Some(staying[0]));
    });
}

#[test]
fn a_lock_is_seen_with_its_holder_and_the_length_of_its_queue() {
    let mut checked = Checked::new();
    assert_eq!(checked.table.lock("jobs"), None);
    let holder = checked.acquire(&TURN, 0, "jobs", 1000).0.unwrap();
    let waiters: Vec<SessionId> =
        (1..=3).map(|n| checked.acquire(&TURN, n, "jobs", 1000).0.unwrap()).collect();
    checked.suspect(&TURN, waiters[1]);
    let lock = checked.table.lock("jobs").unwrap();
    assert_eq!((&**lock.name, lock.holder, lock.waiters), ("jobs", Some(holder), 3));
    for id in waiters.into_iter().chain([holder]) {
        checked.end(&TURN, id, Reason::Graceful);
    }
    assert_eq!(checked.table.lock("jobs"), None);
}
