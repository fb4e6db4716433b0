//! What clients saw, and what it may not show.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use client::boottime_ns;

/// An answer that granted or confirmed a claim. The server gave it between the two times.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Answer {
    /// The claim: the connection of one client.
    pub claim: u64,
    /// The claim's lock.
    pub lock: u32,
    /// The token of its grant.
    pub token: u64,
    /// When it was asked for: CLOCK_BOOTTIME.
    pub sent_ns: u64,
    /// When it was read.
    pub read_ns: u64,
    /// The first of its claim.
    pub is_grant: bool,
    /// Who asked.
    pub by: By,
}

/// Which client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum By {
    /// The project's own.
    Ours,
    /// The one that knows the protocol's page alone.
    Bare,
}

/// A write that reached the register of a lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Write {
    /// The register.
    pub lock: u32,
    /// With this token.
    pub token: u64,
    /// Whether it was taken.
    pub taken: bool,
}

/// All of it.
#[derive(Debug, Default, Clone)]
pub struct Seen {
    /// In no order.
    pub answers: Vec<Answer>,
    /// In the order in which they reached the registers.
    pub writes: Vec<Write>,
    registers: BTreeMap<u32, u64>,
}

/// Where clients write down what they see, and the registers that the locks guard.
#[derive(Debug, Default)]
pub struct History(Mutex<Seen>);

impl History {
    /// An answer came.
    pub fn answered(&self, answer: Answer) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).answers.push(answer);
    }

    /// A holder writes: the register takes no token below one that it has seen.
    pub fn write(&self, lock: u32, token: u64) {
        let mut seen = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let newest = seen.registers.entry(lock).or_default();
        let taken = *newest <= token;
        *newest = token.max(*newest);
        seen.writes.push(Write { lock, token, taken });
    }

    /// A copy of all so far.
    pub fn seen(&self) -> Seen {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// When the last answer was read.
    pub fn last_read_ns(&self) -> u64 {
        let seen = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        seen.answers.iter().rev().take(64).map(|answer| answer.read_ns).max().unwrap_or_default()
    }

    /// Answers that were read in the last moment.
    pub fn answers_since(&self, ns: u64) -> Vec<Answer> {
        let seen = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        seen.answers.iter().filter(|answer| answer.read_ns >= ns).copied().collect()
    }
}

/// One life of a server's process: the node, and which of its processes.
pub type Life = (usize, usize);

/// Who granted which token.
pub type Issuers = BTreeMap<u64, Life>;

/// What was wrong, in words. Nothing is held against a server that may not have been its fault.
pub fn judge(seen: &Seen, issuers: &Issuers) -> Vec<String> {
    let mut found = Vec::new();
    found.extend(tokens(&seen.answers));
    found.extend(two_at_once(&seen.answers, issuers));
    found.extend(registers(seen));
    found
}

/// A grant that was read before another was asked for has the smaller token.
fn tokens(answers: &[Answer]) -> Vec<String> {
    let mut by_read: Vec<&Answer> = answers.iter().filter(|answer| answer.is_grant).collect();
    let mut by_sent = by_read.clone();
    by_read.sort_by_key(|grant| grant.read_ns);
    by_sent.sort_by_key(|grant| grant.sent_ns);
    let (mut earlier, mut largest, mut found) = (by_read.iter().peekable(), None::<&Answer>, Vec::new());
    for grant in by_sent {
        while let Some(before) = earlier.next_if(|before| before.read_ns < grant.sent_ns) {
            largest = largest.filter(|largest| largest.token > before.token).or(Some(before));
        }
        if let Some(largest) = largest.filter(|largest| largest.token >= grant.token) {
            found.push(format!("token {} was granted after token {}", grant.token, largest.token));
        }
    }
    found
}

/// From its grant to the last question that was answered, a claim's server was open, in one opening. No other
/// server answers in that time.
fn two_at_once(answers: &[Answer], issuers: &Issuers) -> Vec<String> {
    let mut spans: BTreeMap<u64, (u64, u64, u64)> = BTreeMap::new();
    for answer in answers {
        let span = spans.entry(answer.claim).or_insert((u64::MAX, 0, answer.token));
        if answer.is_grant {
            span.0 = answer.read_ns;
        } else {
            span.1 = span.1.max(answer.sent_ns);
        }
    }
    let mut found = Vec::new();
    let mut by_read: Vec<&Answer> = answers.iter().collect();
    by_read.sort_by_key(|answer| answer.read_ns);
    for (from_ns, to_ns, token) in spans.into_values().filter(|(from_ns, to_ns, _)| from_ns < to_ns) {
        let Some(issuer) = issuers.get(&token) else { continue };
        let first = by_read.partition_point(|answer| answer.read_ns < from_ns);
        let other = by_read[first..].iter().take_while(|answer| answer.read_ns <= to_ns).find(|answer| {
            answer.sent_ns >= from_ns && issuers.get(&answer.token).is_some_and(|by| by != issuer)
        });
        if let Some(other) = other {
            found.push(format!(
                "token {token} was confirmed by server {issuer:?} before and after server {:?} confirmed token {}",
                issuers[&other.token], other.token
            ));
        }
    }
    found
}

/// No stale write is taken, and the newest holder is not refused.
fn registers(seen: &Seen) -> Vec<String> {
    let mut newest: BTreeMap<u32, u64> = BTreeMap::new();
    let mut found = Vec::new();
    let grants: BTreeMap<u64, &Answer> =
        seen.answers.iter().filter(|answer| answer.is_grant).map(|grant| (grant.token, grant)).collect();
    for write in &seen.writes {
        let newest = newest.entry(write.lock).or_default();
        if write.taken && write.token < *newest {
            found.push(format!("register {} took token {} after {newest}", write.lock, write.token));
        }
        if let (false, Some(own), Some(other)) = (write.taken, grants.get(&write.token), grants.get(newest))
            && other.read_ns < own.sent_ns
        {
            found.push(format!("register {} refused its newest holder, token {}", write.lock, write.token));
        }
        *newest = write.token.max(*newest);
    }
    found
}

/// How long nobody was served around `from_ns`: from the last answer of the server that served then to the
/// first grant of another one.
pub fn gap_ns(seen: &Seen, issuers: &Issuers, from_ns: u64) -> Option<(u64, Life, Life)> {
    let life = |answer: &Answer| issuers.get(&answer.token).copied();
    let before = |answer: &&Answer| answer.read_ns <= from_ns && life(answer).is_some();
    let old = seen.answers.iter().filter(before).max_by_key(|answer| answer.read_ns).and_then(life)?;
    let later = |answer: &&Answer| {
        answer.is_grant && answer.read_ns > from_ns && life(answer).is_some_and(|life| life != old)
    };
    let first = seen.answers.iter().filter(later).min_by_key(|answer| answer.read_ns)?;
    let last_ns = seen
        .answers
        .iter()
        .filter(|answer| life(answer) == Some(old) && answer.read_ns <= first.read_ns)
        .map(|answer| answer.read_ns)
        .max()?;
    Some((first.read_ns - last_ns, old, life(first)?))
}

/// After how long the first and the last of our own clients that held something had a lock again.
pub fn ours_back_ns(seen: &Seen, issuers: &Issuers, from_ns: u64, new: Life) -> Vec<u64> {
    let mut back: BTreeMap<u32, u64> = BTreeMap::new();
    for answer in &seen.answers {
        let is_back = answer.by == By::Ours && answer.is_grant && answer.read_ns > from_ns;
        if is_back && issuers.get(&answer.token) == Some(&new) {
            let at = back.entry(answer.lock).or_insert(u64::MAX);
            *at = (*at).min(answer.read_ns - from_ns);
        }
    }
    let mut back: Vec<u64> = back.into_values().collect();
    back.sort_unstable();
    back
}

/// Now.
pub fn now_ns() -> u64 {
    boottime_ns()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(claim: u64, token: u64, sent_ns: u64, read_ns: u64, is_grant: bool) -> Answer {
        Answer { claim, lock: 0, token, sent_ns, read_ns, is_grant, by: By::Bare }
    }

    fn failover() -> (Seen, Issuers) {
        let answers = vec![
            answer(1, 10, 0, 5, true),
            answer(1, 10, 20, 25, false),
            answer(2, 20, 30, 40, true),
            answer(2, 20, 50, 55, false),
        ];
        (Seen { answers, ..Seen::default() }, Issuers::from([(10, (0, 0)), (20, (1, 0))]))
    }

    #[test]
    fn a_failover_breaks_nothing_and_its_gap_is_from_the_last_answer_to_the_first_grant() {
        let (seen, issuers) = failover();
        assert_eq!(judge(&seen, &issuers), [""; 0]);
        assert_eq!(gap_ns(&seen, &issuers, 27), Some((15, (0, 0), (1, 0))));
    }

    #[test]
    fn a_server_that_confirms_after_another_one_has_granted_is_found() {
        let (mut seen, issuers) = failover();
        seen.answers.push(answer(1, 10, 60, 65, false));
        assert_eq!(judge(&seen, &issuers).len(), 1);
    }

    #[test]
    fn a_token_that_does_not_rise_is_found() {
        let (mut seen, mut issuers) = failover();
        seen.answers.push(answer(3, 15, 100, 105, true));
        issuers.insert(15, (1, 0));
        assert_eq!(judge(&seen, &issuers), ["token 15 was granted after token 20"]);
    }

    #[test]
    fn a_register_that_refuses_its_newest_holder_is_found_and_a_stale_writer_is_not_held_against_it() {
        let history = History::default();
        let (seen, issuers) = failover();
        seen.answers.iter().for_each(|answer| history.answered(*answer));
        for token in [10, 20, 10] {
            history.write(0, token);
        }
        assert_eq!(judge(&history.seen(), &issuers), [""; 0]);
        let mut seen = history.seen();
        seen.answers.push(answer(3, 15, 100, 105, true));
        seen.writes.push(Write { lock: 0, token: 15, taken: false });
        assert!(judge(&seen, &issuers).iter().any(|fault| fault.contains("refused its newest holder")));
        seen.writes.push(Write { lock: 0, token: 10, taken: true });
        assert!(judge(&seen, &issuers).iter().any(|fault| fault.contains("took token 10 after 20")));
    }
}
