//! The way to the lock: attempts, pauses, and what is said meanwhile. Decided without clock, socket or
//! chance.
//!
//! Times are nanoseconds of CLOCK_BOOTTIME.

use std::collections::VecDeque;
use std::time::Duration;

use client::{Error, Event, Loss, Retry};
use protocol::{ErrorCode, Token};

use super::status;

/// A person at a terminal is told after this time that the command waits: a shorter pause is nothing to
/// wonder at.
const TELL_AFTER_NS: u64 = 2_000_000_000;

/// A server that put us in the line may be away for so long before that is told: it takes two seconds to end
/// and less to start, and a restart that somebody plans is nothing to write a mail about.
const RESTART_NS_MAX: u64 = 10_000_000_000;

/// How long the lock is waited for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Patience {
    /// For as long as it takes.
    Endless,
    /// Until this time.
    Until(u64),
    /// Not at all: the server's first answer counts.
    OneAnswer,
}

/// How much is said.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Talk {
    /// What is wrong, and that it is over.
    Faults,
    /// And what a person at a terminal would wonder at.
    Waits,
    /// And everything else.
    All,
}

/// What to do now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Step {
    /// Nothing.
    Wait,
    /// Connect; this is the number of the attempt.
    Dial(usize),
    /// Close the connection; its claim is lost.
    HangUp,
    /// The lock is held.
    Run(Token),
    /// Leave, with this exit status.
    Finish(u8),
}

/// What is to be said.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Word {
    /// An attempt failed, and there will be another one.
    Trouble { error: String },
    /// The place in the line is gone, and there will be another one at its end.
    LostPlace { loss: String },
    /// The lock is held by another client.
    Waiting { waited: Duration },
    /// The lock is held.
    Acquired { waited: Duration, token: Token },
    /// Another client still holds the lock, and the time to wait is over.
    Taken { waited: Duration },
    /// The time to wait is over, and the server is out of reach, or refuses for now.
    GaveUp { waited: Duration, error: Option<String> },
    /// No new attempt is of use.
    Failed { error: String },
}

/// One wait for one lock.
#[derive(Debug)]
pub(crate) struct Queue {
    begun_ns: u64,
    patience: Patience,
    /// The exit status that the caller chose for a lock that another client holds.
    taken: Option<u8>,
    talk: Talk,
    retry: Retry,
    state: State,
    /// How the last attempt failed, if the server has not put us in the line since.
    trouble: Option<Trouble>,
    /// The server has put us in the line at some time.
    was_queued: bool,
    /// Something was said, so its end is said too.
    owes_end: bool,
    words: VecDeque<Word>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// The next attempt begins then.
    Pausing { until_ns: u64 },
    /// The server has not answered yet.
    Asking,
    /// Another client holds the lock. `is_told`: this was said.
    Queued { is_told: bool },
    /// We hold it, or it is over.
    Done,
}

#[derive(Debug)]
struct Trouble {
    since_ns: u64,
    status: u8,
    error: String,
    is_told: bool,
}

impl Queue {
    /// Begins with an attempt that is due.
    pub(crate) fn new(now_ns: u64, patience: Patience, taken: Option<u8>, talk: Talk) -> Self {
        Self {
            begun_ns: now_ns,
            patience,
            taken,
            talk,
            retry: Retry::default(),
            state: State::Pausing { until_ns: now_ns },
            trouble: None,
            was_queued: false,
            owes_end: false,
            words: VecDeque::new(),
        }
    }

    pub(crate) fn patience(&self) -> Patience {
        self.patience
    }

    /// When to call [`Queue::alarm`].
    pub(crate) fn wake_ns(&self) -> Option<u64> {
        let state_ns = match self.state {
            State::Pausing { until_ns } => Some(until_ns),
            State::Queued { .. } => self.tell_ns(),
            State::Asking | State::Done => None,
        };
        state_ns.into_iter().chain(self.end_ns()).min()
    }

    /// What is to be said next.
    pub(crate) fn next_word(&mut self) -> Option<Word> {
        self.words.pop_front()
    }

    /// Looks at the time. Harmless when early.
    pub(crate) fn alarm(&mut self, now_ns: u64) -> Step {
        if self.end_ns().is_some_and(|end_ns| now_ns >= end_ns) {
            return self.time_is_over(now_ns);
        }
        match self.state {
            State::Pausing { until_ns } if now_ns >= until_ns => {
                self.state = State::Asking;
                return Step::Dial(self.retry.begin(now_ns));
            }
            State::Queued { .. } if self.tell_ns().is_some_and(|tell_ns| now_ns >= tell_ns) => {
                self.tell_waiting(now_ns);
            }
            _ => {}
        }
        Step::Wait
    }

    /// The lock was granted and given back: a new wait for it begins, at the end of the line.
    pub(crate) fn again(&mut self, now_ns: u64) -> Step {
        self.state = State::Pausing { until_ns: now_ns };
        self.alarm(now_ns)
    }

    /// Something happened to the claim. `draw`: a pause of at most this length.
    pub(crate) fn event(
        &mut self,
        now_ns: u64,
        event: Event,
        is_held: bool,
        draw: impl FnOnce(Duration) -> Duration,
    ) -> Step {
        match event {
            Event::Waiting => self.waiting(now_ns),
            // Granted, and lost already: that is the next event.
            Event::Acquired(_) if !is_held => Step::Wait,
            Event::Acquired(token) => {
                self.state = State::Done;
                self.say_if(
                    self.owes_end || self.talk == Talk::All,
                    |waited| Word::Acquired { waited, token },
                    now_ns,
                );
                Step::Run(token)
            }
            Event::Lost(loss) => self.failed(now_ns, &Error::Lost(loss), draw),
        }
    }

    /// There is no connection, or no claim any more. `draw`: a pause of at most this length.
    pub(crate) fn failed(
        &mut self,
        now_ns: u64,
        error: &Error,
        draw: impl FnOnce(Duration) -> Duration,
    ) -> Step {
        let pause_max = match self.patience {
            // An administrator who takes a waiter out of the line does not mean its end. And the command
            // needs threads and descriptors too.
            _ if is_kick(error) || matches!(error, Error::Local { .. }) => None,
            Patience::OneAnswer => None,
            Patience::Endless | Patience::Until(_) => self.retry.failed(now_ns, error),
        };
        let Some(pause_max) = pause_max else {
            self.words.push_back(Word::Failed { error: error.to_string() });
            return self.finish(status::of_error(error));
        };
        self.note_trouble(now_ns, error);
        let pause_ns = u64::try_from(draw(pause_max).as_nanos()).expect("a pause is short");
        self.state = State::Pausing { until_ns: now_ns + pause_ns };
        Step::HangUp
    }

    fn waiting(&mut self, now_ns: u64) -> Step {
        if self.patience == Patience::OneAnswer {
            return self.taken(now_ns);
        }
        self.state = State::Queued { is_told: false };
        self.was_queued = true;
        let trouble_was_told = self.trouble.take().is_some_and(|trouble| trouble.is_told);
        let is_due = self.tell_ns().is_some_and(|tell_ns| now_ns >= tell_ns);
        if trouble_was_told || is_due || self.talk == Talk::All {
            self.tell_waiting(now_ns);
        }
        Step::Wait
    }

    fn time_is_over(&mut self, now_ns: u64) -> Step {
        match (self.state, self.trouble.take()) {
            (State::Done, _) => Step::Wait,
            (State::Queued { .. }, _) => self.taken(now_ns),
            (State::Asking | State::Pausing { .. }, trouble) => {
                let code = trouble.as_ref().map_or(status::UNREACHABLE, |trouble| trouble.status);
                let error = trouble.map(|trouble| trouble.error);
                self.say_if(true, |waited| Word::GaveUp { waited, error }, now_ns);
                self.finish(code)
            }
        }
    }

    /// Who only tried, or has a status for it, reckons with this. A wait in vain is a fault: cron looks at no
    /// status, and the command did not run.
    fn taken(&mut self, now_ns: u64) -> Step {
        let in_vain = self.patience != Patience::OneAnswer && self.taken.is_none();
        let is_said = in_vain || self.owes_end || self.talk >= Talk::Waits;
        self.say_if(is_said, |waited| Word::Taken { waited }, now_ns);
        self.finish(self.taken.unwrap_or(status::NOT_ACQUIRED))
    }

    fn finish(&mut self, code: u8) -> Step {
        self.state = State::Done;
        Step::Finish(code)
    }

    /// Says it at once where no server has answered yet: that may be a mistake, and it may go on for ever. A
    /// server that is restarted is no news.
    fn note_trouble(&mut self, now_ns: u64, error: &Error) {
        let error_text = error.to_string();
        let before = self.trouble.take();
        let since_ns = before.as_ref().map_or(now_ns, |trouble| trouble.since_ns);
        let was_told = before.is_some_and(|trouble| trouble.is_told);
        let place_was_told = matches!(self.state, State::Queued { is_told: true });
        let lost_place = matches!(self.state, State::Queued { .. });
        let is_said = match self.talk {
            Talk::All => true,
            _ if lost_place => place_was_told,
            _ if was_told => false,
            _ => !self.was_queued || now_ns - since_ns >= RESTART_NS_MAX,
        };
        if is_said {
            self.owes_end = true;
            self.words.push_back(match error {
                Error::Lost(loss) if lost_place => Word::LostPlace { loss: loss.to_string() },
                _ => Word::Trouble { error: error_text.clone() },
            });
        }
        let (status, is_told) = (status::of_error(error), was_told || is_said);
        self.trouble = Some(Trouble { since_ns, status, error: error_text, is_told });
    }

    fn tell_waiting(&mut self, now_ns: u64) {
        self.state = State::Queued { is_told: true };
        self.owes_end = true;
        self.say_if(true, |waited| Word::Waiting { waited }, now_ns);
    }

    fn say_if(&mut self, is_said: bool, word: impl FnOnce(Duration) -> Word, now_ns: u64) {
        if is_said {
            self.words.push_back(word(Duration::from_nanos(now_ns - self.begun_ns)));
        }
    }

    /// When a person is told of the wait.
    fn tell_ns(&self) -> Option<u64> {
        let is_due = self.talk == Talk::Waits && self.state == State::Queued { is_told: false };
        is_due.then_some(self.begun_ns + TELL_AFTER_NS)
    }

    fn end_ns(&self) -> Option<u64> {
        match (self.patience, self.state) {
            (Patience::Until(end_ns), State::Pausing { .. } | State::Asking | State::Queued { .. }) => {
                Some(end_ns)
            }
            _ => None,
        }
    }
}

fn is_kick(error: &Error) -> bool {
    matches!(error, Error::Lost(Loss::Server { code: ErrorCode::CLOSED_BY_ADMINISTRATOR, .. }))
}

#[cfg(test)]
mod tests {
    use super::*;

    use std::io;

    use client::{Alert, Closed, Violation};

    const MS: u64 = 1_000_000;
    const S: u64 = 1000 * MS;
    const TAKEN: u8 = status::NOT_ACQUIRED;
    const TOKEN: Token = Token(5);

    fn queue(patience: Patience, talk: Talk) -> Queue {
        let mut queue = Queue::new(S, patience, None, talk);
        assert_eq!(queue.wake_ns(), Some(S));
        assert_eq!(queue.alarm(S), Step::Dial(0));
        queue
    }

    #[test]
    fn a_grant_that_was_given_back_is_asked_for_again_until_the_wait_is_over() {
        let mut queue = queued(Patience::Until(10 * S), Talk::Faults);
        assert_eq!(acquired(&mut queue, 2 * S), Step::Run(TOKEN));
        assert!(matches!(queue.again(3 * S), Step::Dial(_)));
        assert_eq!(waiting(&mut queue, 3 * S), Step::Wait);
        assert_eq!(acquired(&mut queue, 4 * S), Step::Run(TOKEN));
        assert!(matches!(queue.again(10 * S), Step::Finish(_)));
    }

    fn endless() -> Queue {
        queue(Patience::Endless, Talk::Faults)
    }

    fn queued(patience: Patience, talk: Talk) -> Queue {
        let mut queue = queue(patience, talk);
        assert_eq!(waiting(&mut queue, S), Step::Wait);
        queue
    }

    fn waiting(queue: &mut Queue, now_ns: u64) -> Step {
        queue.event(now_ns, Event::Waiting, false, longest)
    }

    fn acquired(queue: &mut Queue, now_ns: u64) -> Step {
        queue.event(now_ns, Event::Acquired(TOKEN), true, longest)
    }

    fn lost(queue: &mut Queue, now_ns: u64, loss: Loss) -> Step {
        queue.event(now_ns, Event::Lost(loss), false, longest)
    }

    fn refused() -> Error {
        Error::Dial { address: "a:1".into(), source: io::ErrorKind::ConnectionRefused.into() }
    }

    fn closed() -> Loss {
        Loss::ConnectionClosed(Closed::ByServer)
    }

    fn server(code: ErrorCode) -> Loss {
        Loss::Server { code, reason: String::new() }
    }

    /// The worst luck with each pause.
    fn longest(pause_max: Duration) -> Duration {
        pause_max
    }

    fn words(queue: &mut Queue) -> Vec<Word> {
        std::iter::from_fn(|| queue.next_word()).collect()
    }

    #[test]
    fn a_lock_that_is_granted_is_run_with_its_token_and_nothing_is_said() {
        let mut queue = endless();
        assert_eq!(acquired(&mut queue, S), Step::Run(TOKEN));
        assert_eq!((queue.wake_ns(), words(&mut queue)), (None, vec![]));
        let mut queue = queued(Patience::Until(10 * S), Talk::Faults);
        assert_eq!(acquired(&mut queue, 9 * S), Step::Run(TOKEN));
        // The command is not bound by the wait.
        assert_eq!((queue.wake_ns(), queue.alarm(10 * S), words(&mut queue)), (None, Step::Wait, vec![]));
    }

    #[test]
    fn a_grant_that_is_over_before_anybody_acts_on_it_runs_nothing_and_is_a_lost_place() {
        let mut queue = queued(Patience::Endless, Talk::Faults);
        assert_eq!(queue.event(9 * S, Event::Acquired(TOKEN), false, longest), Step::Wait);
        assert_eq!(lost(&mut queue, 9 * S, Loss::HeartbeatTimeout), Step::HangUp);
    }

    #[test]
    fn a_server_out_of_reach_is_dialled_again_after_pauses_that_double_to_5_s() {
        let mut queue = endless();
        let mut now_ns = S;
        for (attempt, pause_ms) in (1..).zip([100, 200, 400, 800, 1600, 3200, 5000, 5000]) {
            assert_eq!(queue.failed(now_ns, &refused(), longest), Step::HangUp);
            assert_eq!(queue.wake_ns(), Some(now_ns + pause_ms * MS));
            assert_eq!(queue.alarm(now_ns + pause_ms * MS - 1), Step::Wait);
            now_ns += pause_ms * MS;
            assert_eq!(queue.alarm(now_ns), Step::Dial(attempt));
            assert_eq!(queue.wake_ns(), None);
        }
        assert_eq!(acquired(&mut queue, now_ns), Step::Run(TOKEN));
    }

    #[test]
    fn a_waiter_of_a_server_that_restarts_is_back_within_100_ms_and_waits_on() {
        for loss in
            [server(ErrorCode::SHUTTING_DOWN), closed(), server(ErrorCode::STANDBY), server(ErrorCode(0x0f))]
        {
            let mut queue = queued(Patience::Endless, Talk::Faults);
            assert_eq!(lost(&mut queue, 60 * S, loss), Step::HangUp);
            let back_ns = queue.wake_ns().expect("another attempt");
            assert_eq!(back_ns, 60 * S + 100 * MS);
            assert_eq!(queue.alarm(back_ns), Step::Dial(1));
            assert_eq!(waiting(&mut queue, back_ns), Step::Wait);
            // It is no fault that a person should be told of.
            assert_eq!((queue.wake_ns(), words(&mut queue)), (None, vec![]));
            assert_eq!(acquired(&mut queue, 70 * S), Step::Run(TOKEN));
        }
    }

    #[test]
    fn what_no_new_attempt_mends_ends_the_wait_with_its_own_status() {
        let refused_tls = || Error::Dial { address: "a:1".into(), source: io::ErrorKind::InvalidData.into() };
        let limit = || Error::Local { address: "a:1".into(), source: io::ErrorKind::WouldBlock.into() };
        let errors: [(Error, u8); 7] = [
            (server(ErrorCode::NOT_AUTHORIZED).into(), status::REFUSED),
            (server(ErrorCode(0x10)).into(), status::REFUSED),
            (Loss::ProtocolViolation(Violation::Unasked).into(), status::PROTOCOL),
            (Loss::ConnectionClosed(Closed::Refused(Alert(116))).into(), status::REFUSED),
            (refused_tls(), status::REFUSED),
            (limit(), status::OS_ERROR),
            // An administrator means it, though the protocol allows to come back.
            (server(ErrorCode::CLOSED_BY_ADMINISTRATOR).into(), status::NOT_ACQUIRED),
        ];
        for (error, code) in errors {
            for mut queue in [endless(), queued(Patience::Until(9 * S), Talk::Faults)] {
                assert_eq!(queue.failed(2 * S, &error, longest), Step::Finish(code), "{error}");
                assert_eq!(words(&mut queue), [Word::Failed { error: error.to_string() }]);
                assert_eq!(queue.wake_ns(), None);
            }
        }
    }

    #[test]
    fn who_wants_one_answer_leaves_at_the_first_whatever_it_is() {
        let once = || queue(Patience::OneAnswer, Talk::Faults);
        assert_eq!(waiting(&mut once(), S), Step::Finish(TAKEN));
        assert_eq!(acquired(&mut once(), S), Step::Run(TOKEN));
        assert_eq!(once().failed(S, &refused(), longest), Step::Finish(status::UNREACHABLE));
        assert_eq!(lost(&mut once(), S, closed()), Step::Finish(status::UNREACHABLE));
        assert_eq!(lost(&mut once(), S, server(ErrorCode::STANDBY)), Step::Finish(status::NOT_ACQUIRED));
        assert_eq!(once().wake_ns(), None);
    }

    #[test]
    fn the_end_of_the_wait_has_the_status_of_what_there_was_last() {
        let until = || queue(Patience::Until(5 * S), Talk::Faults);
        let mut unanswered = until();
        assert_eq!((unanswered.wake_ns(), unanswered.alarm(5 * S - 1)), (Some(5 * S), Step::Wait));
        assert_eq!(unanswered.alarm(5 * S), Step::Finish(status::UNREACHABLE));
        assert_eq!(words(&mut unanswered), [Word::GaveUp { waited: Duration::from_secs(4), error: None }]);

        let mut in_line = until();
        assert_eq!(waiting(&mut in_line, S), Step::Wait);
        assert_eq!((in_line.wake_ns(), in_line.alarm(5 * S - 1)), (Some(5 * S), Step::Wait));
        assert_eq!(in_line.alarm(5 * S), Step::Finish(TAKEN));
        assert_eq!(words(&mut in_line), [Word::Taken { waited: Duration::from_secs(4) }]);

        // In line once, and out of reach at the end: while it pauses, and while it asks.
        for error in [refused(), closed().into(), server(ErrorCode::STANDBY).into()] {
            for asks in [false, true] {
                let mut queue = until();
                assert_eq!(waiting(&mut queue, S), Step::Wait);
                assert_eq!(queue.failed(4 * S, &error, |_| Duration::from_millis(50)), Step::HangUp);
                if asks {
                    assert_eq!(queue.alarm(4 * S + 50 * MS), Step::Dial(1));
                }
                assert_eq!(queue.alarm(5 * S), Step::Finish(status::of_error(&error)), "{error}");
                let error = Some(error.to_string());
                assert_eq!(words(&mut queue), [Word::GaveUp { waited: Duration::from_secs(4), error }]);
            }
        }
    }

    #[test]
    fn the_callers_own_status_is_for_a_taken_lock_and_nothing_else() {
        let own = |patience| {
            let mut queue = Queue::new(S, patience, Some(0), Talk::Faults);
            assert_eq!(queue.alarm(S), Step::Dial(0));
            queue
        };
        assert_eq!(waiting(&mut own(Patience::OneAnswer), S), Step::Finish(0));
        let mut queue = own(Patience::Until(2 * S));
        assert_eq!(waiting(&mut queue, S), Step::Wait);
        assert_eq!((queue.alarm(2 * S), words(&mut queue)), (Step::Finish(0), vec![]));
        assert_eq!(own(Patience::Until(2 * S)).alarm(2 * S), Step::Finish(status::UNREACHABLE));
        let kicked = server(ErrorCode::CLOSED_BY_ADMINISTRATOR);
        assert_eq!(lost(&mut own(Patience::Endless), S, kicked), Step::Finish(status::NOT_ACQUIRED));
        let standby = server(ErrorCode::STANDBY);
        assert_eq!(lost(&mut own(Patience::OneAnswer), S, standby), Step::Finish(status::NOT_ACQUIRED));
    }

    #[test]
    fn a_server_that_never_answered_is_told_of_at_once_and_once_and_so_is_the_end_of_the_trouble() {
        let mut queue = endless();
        let trouble = Word::Trouble { error: refused().to_string() };
        assert_eq!(queue.failed(S, &refused(), longest), Step::HangUp);
        assert_eq!(words(&mut queue), [trouble]);
        for second in 2..100 {
            let now_ns = second * 10 * S;
            assert!(matches!(queue.alarm(now_ns), Step::Dial(_)));
            assert_eq!(queue.failed(now_ns, &refused(), longest), Step::HangUp);
        }
        assert_eq!(words(&mut queue), []);
        assert!(matches!(queue.alarm(1000 * S), Step::Dial(_)));
        assert_eq!(waiting(&mut queue, 1001 * S), Step::Wait);
        assert_eq!(words(&mut queue), [Word::Waiting { waited: Duration::from_secs(1000) }]);
        assert_eq!(acquired(&mut queue, 1002 * S), Step::Run(TOKEN));
        assert_eq!(words(&mut queue), [Word::Acquired { waited: Duration::from_secs(1001), token: TOKEN }]);
    }

    #[test]
    fn a_server_that_stays_away_after_it_was_there_is_told_of_after_ten_seconds() {
        let mut queue = queued(Patience::Endless, Talk::Faults);
        assert_eq!(lost(&mut queue, 60 * S, server(ErrorCode::SHUTTING_DOWN)), Step::HangUp);
        for now_ns in [60 * S + 100 * MS, 61 * S, 70 * S - 1] {
            assert!(matches!(queue.alarm(now_ns), Step::Dial(_)));
            assert_eq!(queue.failed(now_ns, &refused(), |_| Duration::ZERO), Step::HangUp);
        }
        assert_eq!(words(&mut queue), []);
        assert!(matches!(queue.alarm(70 * S), Step::Dial(_)));
        assert_eq!(queue.failed(70 * S, &refused(), longest), Step::HangUp);
        assert_eq!(words(&mut queue), [Word::Trouble { error: refused().to_string() }]);
    }

    #[test]
    fn a_person_at_a_terminal_is_told_of_a_wait_of_two_seconds_and_of_its_end() {
        let mut queue = queued(Patience::Endless, Talk::Waits);
        assert_eq!((queue.wake_ns(), words(&mut queue)), (Some(3 * S), vec![]));
        assert_eq!(queue.alarm(3 * S), Step::Wait);
        assert_eq!(
            (queue.wake_ns(), words(&mut queue)),
            (None, vec![Word::Waiting { waited: Duration::from_secs(2) }])
        );
        // Whoever knows that it waits is told that it lost its place, and of the new one.
        assert_eq!(lost(&mut queue, 9 * S, closed()), Step::HangUp);
        assert_eq!(words(&mut queue), [Word::LostPlace { loss: closed().to_string() }]);
        assert_eq!(queue.alarm(10 * S), Step::Dial(1));
        assert_eq!(waiting(&mut queue, 10 * S), Step::Wait);
        assert_eq!(words(&mut queue), [Word::Waiting { waited: Duration::from_secs(9) }]);
        assert_eq!(acquired(&mut queue, 13 * S), Step::Run(TOKEN));
        assert_eq!(words(&mut queue), [Word::Acquired { waited: Duration::from_secs(12), token: TOKEN }]);

        let mut queue = queued(Patience::Endless, Talk::Waits);
        assert_eq!((acquired(&mut queue, 2 * S), words(&mut queue)), (Step::Run(TOKEN), vec![]));
        let mut once = self::queue(Patience::OneAnswer, Talk::Waits);
        assert_eq!(waiting(&mut once, S), Step::Finish(TAKEN));
        assert_eq!(words(&mut once), [Word::Taken { waited: Duration::ZERO }]);
    }

    #[test]
    fn who_wants_to_hear_everything_does_at_once() {
        let mut queue = queue(Patience::Endless, Talk::All);
        for _ in 0..2 {
            assert_eq!(queue.failed(S, &refused(), |_| Duration::ZERO), Step::HangUp);
            assert_eq!(words(&mut queue), [Word::Trouble { error: refused().to_string() }]);
            assert!(matches!(queue.alarm(S), Step::Dial(_)));
        }
        assert_eq!(waiting(&mut queue, S), Step::Wait);
        assert_eq!(words(&mut queue), [Word::Waiting { waited: Duration::ZERO }]);
        assert_eq!(lost(&mut queue, S, closed()), Step::HangUp);
        assert_eq!(words(&mut queue), [Word::LostPlace { loss: closed().to_string() }]);
        assert!(matches!(queue.alarm(2 * S), Step::Dial(_)));
        assert_eq!(acquired(&mut queue, 2 * S), Step::Run(TOKEN));
        assert_eq!(words(&mut queue), [Word::Acquired { waited: Duration::from_secs(1), token: TOKEN }]);
    }
}
