//! The lease wheel: which session to look at next.
//!
//! It is lazy. A heartbeat does not touch it; when a session's slot comes up, the table looks at the session
//! and files it again by what was heard since. So a slot may come up early for a session, never late.
//!
//! Time is in ticks of 1 ms. The *near* level has one slot a tick for the next 16 s, as a ring: with usual
//! leases a session moves from one exact slot to the next and no slot ever holds more than the sessions of
//! one millisecond. The *far* levels have 64 slots each; a session is in the level of the highest digit in
//! which its tick differs from the wheel's time. A far slot comes up at its start, so its sessions come up
//! early and are filed again closer to the truth. Together they cover every tick of a `u64` of nanoseconds,
//! so no lease and no jump of the clock is special.

use crate::slab::{NONE, Slab};

pub(crate) const NS_PER_TICK: u64 = 1_000_000;

/// 2¹⁴ ms: a little more than the usual lease of 10 s; 64 KiB a shard.
const NEAR_BITS: u32 = 14;
const NEAR_SLOTS: usize = 1 << NEAR_BITS;
const NEAR_WORDS: usize = NEAR_SLOTS / 64;
/// One `u64` of occupied slots a level.
const FAR_BITS: u32 = 6;
const FAR_SLOTS: usize = 1 << FAR_BITS;
/// `NEAR_BITS` + 6 × `FAR_BITS` = 50 bits; the largest tick, 2⁶⁴ / 10⁶, has 45.
const FAR_LEVELS: usize = 6;

/// The list of those to look at now, whatever the time.
const DUE: usize = NEAR_SLOTS + FAR_LEVELS * FAR_SLOTS;
const LISTS: usize = DUE + 1;
/// Filed nowhere.
const OUT: u16 = u16::MAX;

/// A record's place in the wheel.
#[derive(Debug)]
pub(crate) struct Timer {
    prev: u32,
    next: u32,
    list: u16,
}

impl Timer {
    pub(crate) const fn new() -> Self {
        Self { prev: NONE, next: NONE, list: OUT }
    }

    pub(crate) fn is_filed(&self) -> bool {
        self.list != OUT
    }
}

/// A record that can be filed.
pub(crate) trait Timed {
    fn timer(&mut self) -> &mut Timer;
}

#[derive(Debug)]
pub(crate) struct Wheel {
    /// The first record of each list: near slots, far slots level by level, the due ones.
    heads: Box<[u32]>,
    near: Box<[u64]>,
    far: [u64; FAR_LEVELS],
    /// The wheel's time: every tick before this has come up.
    elapsed: u64,
}

impl Wheel {
    pub(crate) fn new() -> Self {
        Self {
            heads: vec![NONE; LISTS].into(),
            near: vec![0; NEAR_WORDS].into(),
            far: [0; FAR_LEVELS],
            elapsed: 0,
        }
    }

    /// Files a record that is filed nowhere: it comes up at `tick` or earlier.
    pub(crate) fn file<T: Timed>(&mut self, records: &mut Slab<T>, at: u32, tick: u64) {
        let list = self.list_of(tick);
        self.link(records, at, list);
    }

    /// Moves a filed record to those that come up at once.
    pub(crate) fn make_due<T: Timed>(&mut self, records: &mut Slab<T>, at: u32) {
        self.remove(records, at);
        self.link(records, at, DUE);
    }

    /// Takes a record out; one that is filed nowhere stays so.
    pub(crate) fn remove<T: Timed>(&mut self, records: &mut Slab<T>, at: u32) {
        let timer = std::mem::replace(records[at].timer(), Timer::new());
        if !timer.is_filed() {
            return;
        }
        let list = usize::from(timer.list);
        if timer.next != NONE {
            records[timer.next].timer().prev = timer.prev;
        }
        if timer.prev != NONE {
            records[timer.prev].timer().next = timer.next;
        } else {
            self.heads[list] = timer.next;
            if timer.next == NONE {
                self.mark_empty(list);
            }
        }
    }

    /// Takes out one record whose slot has come up by `now_tick`. One that is filed again for a later tick
    /// than `now_tick` comes up at most once more a level before that tick.
    pub(crate) fn pop<T: Timed>(&mut self, records: &mut Slab<T>, now_tick: u64) -> Option<u32> {
        let Some((tick, list)) = self.next().filter(|&(tick, list)| tick <= now_tick || list == DUE) else {
            self.elapsed = self.elapsed.max(now_tick);
            return None;
        };
        self.elapsed = tick;
        let at = self.heads[list];
        self.remove(records, at);
        Some(at)
    }

    /// When the next slot comes up; in the past if one has.
    pub(crate) fn next_tick(&self) -> Option<u64> {
        self.next().map(|(tick, _)| tick)
    }

    /// The next slot that comes up. Of two at the same tick either may be first: time goes on when both are
    /// empty.
    fn next(&self) -> Option<(u64, usize)> {
        if self.heads[DUE] != NONE {
            return Some((self.elapsed, DUE));
        }
        let far =
            (0..FAR_LEVELS).rev().filter_map(|level| self.next_far(level)).min_by_key(|&(tick, _)| tick);
        match far {
            Some((tick, _)) if tick <= self.elapsed => far,
            Some(far) => Some(self.next_near().filter(|near| near.0 < far.0).unwrap_or(far)),
            None => self.next_near(),
        }
    }

    /// A level's slots all lie ahead within one turn of the level, so the first occupied one is the next.
    fn next_far(&self, level: usize) -> Option<(u64, usize)> {
        let occupied = self.far[level];
        if occupied == 0 {
            return None;
        }
        let digit = occupied.trailing_zeros();
        let shift = far_shift(level);
        let above = self.elapsed >> (shift + FAR_BITS) << (shift + FAR_BITS);
        Some((above | u64::from(digit) << shift, far_list(level, digit as usize)))
    }

    fn next_near(&self) -> Option<(u64, usize)> {
        let start = near_slot(self.elapsed);
        let (word, bit) = (start / 64, start % 64);
        // The first word twice: what lies before `bit` in it comes last, after a whole turn.
        let ahead = self.near[word] & (u64::MAX << bit);
        let words = (1..=NEAR_WORDS).map(|n| (word + n) % NEAR_WORDS).map(|word| (word, self.near[word]));
        let (word, bits) = std::iter::once((word, ahead)).chain(words).find(|&(_, bits)| bits != 0)?;
        let slot = word * 64 + bits.trailing_zeros() as usize;
        let distance = (slot + NEAR_SLOTS - start) % NEAR_SLOTS;
        Some((self.elapsed + distance as u64, slot))
    }

    fn list_of(&self, tick: u64) -> usize {
        if tick <= self.elapsed {
            return DUE;
        }
        if tick - self.elapsed < NEAR_SLOTS as u64 {
            return near_slot(tick);
        }
        let highest_bit = (tick ^ self.elapsed).ilog2();
        let level = ((highest_bit - NEAR_BITS) / FAR_BITS) as usize;
        far_list(level, (tick >> far_shift(level)) as usize % FAR_SLOTS)
    }

    fn link<T: Timed>(&mut self, records: &mut Slab<T>, at: u32, list: usize) {
        let next = std::mem::replace(&mut self.heads[list], at);
        let timer = records[at].timer();
        debug_assert!(!timer.is_filed(), "a record is in one list at a time");
        *timer = Timer { prev: NONE, next, list: u16::try_from(list).expect("there are fewer lists") };
        if next == NONE {
            self.mark_occupied(list);
        } else {
            records[next].timer().prev = at;
        }
    }

    fn mark_occupied(&mut self, list: usize) {
        if list < NEAR_SLOTS {
            self.near[list / 64] |= 1 << (list % 64);
        } else if list < DUE {
            self.far[(list - NEAR_SLOTS) / FAR_SLOTS] |= 1 << ((list - NEAR_SLOTS) % FAR_SLOTS);
        }
    }

    fn mark_empty(&mut self, list: usize) {
        if list < NEAR_SLOTS {
            self.near[list / 64] &= !(1 << (list % 64));
        } else if list < DUE {
            self.far[(list - NEAR_SLOTS) / FAR_SLOTS] &= !(1 << ((list - NEAR_SLOTS) % FAR_SLOTS));
        }
    }
}

fn near_slot(tick: u64) -> usize {
    tick as usize % NEAR_SLOTS
}

fn far_shift(level: usize) -> u32 {
    NEAR_BITS + FAR_BITS * level as u32
}

fn far_list(level: usize, digit: usize) -> usize {
    NEAR_SLOTS + level * FAR_SLOTS + digit
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use testkit::random::{Random, with_seeds};

    impl Timed for Timer {
        fn timer(&mut self) -> &mut Timer {
            self
        }
    }

    /// The wheel beside a map of the ticks for which each record was filed.
    struct Pair {
        wheel: Wheel,
        records: Slab<Timer>,
        filed: BTreeMap<u32, u64>,
        now_tick: u64,
    }

    impl Pair {
        fn new() -> Self {
            Self { wheel: Wheel::new(), records: Slab::new(), filed: BTreeMap::new(), now_tick: 0 }
        }

        fn file_new(&mut self, tick: u64) {
            let at = self.records.insert(Timer::new());
            self.wheel.file(&mut self.records, at, tick);
            self.filed.insert(at, tick);
        }

        fn remove(&mut self, at: u32) {
            self.wheel.remove(&mut self.records, at);
            self.records.remove(at);
            self.filed.remove(&at);
        }

        /// Takes out what is due as the table does: what comes up early is filed again. Returns the pops.
        fn drain(&mut self) -> usize {
            let mut pops = 0;
            while let Some(at) = self.wheel.pop(&mut self.records, self.now_tick) {
                pops += 1;
                let tick = self.filed[&at];
                if tick <= self.now_tick {
                    self.filed.remove(&at);
                    self.records.remove(at);
                } else {
                    self.wheel.file(&mut self.records, at, tick);
                }
            }
            pops
        }

        fn check(&self) {
            let first = self.filed.values().min();
            assert_eq!(self.wheel.next_tick().is_some(), first.is_some());
            if let Some(&first) = first {
                assert!(self.wheel.next_tick().unwrap() <= first, "the next look is never late");
                assert!(first > self.now_tick, "everything due has come up");
            }
        }
    }

    fn random_distance(random: &mut Random) -> u64 {
        let bits = random.pick(&[1, 4, 13, 14, 15, 20, 26, 32, 33, 38]);
        random.below(1 << bits)
    }

    #[test]
    fn everything_comes_up_by_its_tick_and_nothing_is_lost_whatever_the_clock_does() {
        with_seeds(300, |mut random| {
            let mut pair = Pair::new();
            pair.now_tick = random_distance(&mut random);
            for _ in 0..300 {
                match random.below(4) {
                    0 | 1 => pair.file_new(pair.now_tick + 1 + random_distance(&mut random)),
                    2 => {
                        let filed: Vec<u32> = pair.filed.keys().copied().collect();
                        if !filed.is_empty() {
                            pair.remove(random.pick(&filed));
                        }
                    }
                    _ => {
                        let to_next = pair.filed.values().min().map_or(0, |first| first - pair.now_tick);
                        let far = random_distance(&mut random);
                        pair.now_tick += random.pick(&[to_next, to_next.saturating_sub(1), 1, far]);
                        let most = pair.filed.len() * (FAR_LEVELS + 1);
                        assert!(pair.drain() <= most, "each record comes up at most once a level");
                        pair.check();
                    }
                }
            }
        });
    }

    #[test]
    fn a_clock_jump_over_all_of_time_costs_one_step_a_record_and_level() {
        let mut pair = Pair::new();
        let last = u64::MAX / NS_PER_TICK;
        for tick in [1, NEAR_SLOTS as u64, u64::from(u32::MAX), u64::from(u32::MAX) + 1, last] {
            pair.file_new(tick);
        }
        pair.now_tick = last;
        assert!(pair.drain() <= 5 * (FAR_LEVELS + 1));
        assert!(pair.filed.is_empty());
        assert_eq!(pair.wheel.next_tick(), None);
    }

    #[test]
    fn within_the_near_level_a_record_comes_up_once_and_exactly_at_its_tick() {
        let mut pair = Pair::new();
        pair.now_tick = 123_456;
        pair.drain();
        pair.file_new(pair.now_tick + 10_000);
        assert_eq!(pair.wheel.next_tick(), Some(133_456));
        pair.now_tick = 133_455;
        assert_eq!(pair.drain(), 0);
        pair.now_tick = 133_456;
        assert_eq!(pair.drain(), 1);
    }

    #[test]
    fn a_record_made_due_comes_up_at_once() {
        let mut pair = Pair::new();
        pair.file_new(1_000_000);
        pair.wheel.make_due(&mut pair.records, 0);
        assert_eq!(pair.wheel.next_tick(), Some(0));
        assert_eq!(pair.wheel.pop(&mut pair.records, 0), Some(0));
        assert!(!pair.records[0].is_filed());
    }
}
