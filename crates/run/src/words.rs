//! What `monolock run` says of its wait, in sentences: each names the lock and the server.

use std::fmt::Write;
use std::time::{Duration, SystemTime};

use super::queue::{Patience, Word};

/// Whose wait it is.
#[derive(Debug)]
pub(crate) struct Subject<'a> {
    pub name: &'a str,
    pub address: &'a str,
    pub patience: Patience,
}

impl Subject<'_> {
    /// The lock came, to a job that its user has stopped.
    pub(crate) fn passed_on(&self) -> String {
        let Self { name, address, .. } = self;
        format!(
            "{name:?} at {address} came free, but this job is stopped: the next in the line has it; trying again once \
             the job goes on, at the line's end"
        )
    }

    /// One line. `now`: when the word came.
    pub(crate) fn tell(&self, word: &Word, now: SystemTime) -> String {
        let Self { name, address, .. } = self;
        match word {
            Word::Trouble { error } => {
                let mut line =
                    format!("no place in the line for {name:?} at {address} yet: {error}; trying again, ");
                line += match self.patience {
                    Patience::Until(_) => "until --wait is over",
                    Patience::Endless | Patience::OneAnswer => "for ever, as there is no --wait",
                };
                line
            }
            Word::LostPlace { loss } => {
                format!(
                    "lost the place in the line for {name:?} at {address}: {loss}; trying again, at the line's end"
                )
            }
            Word::Waiting { waited } => {
                let since = humantime::format_rfc3339_seconds(now.checked_sub(*waited).unwrap_or(now));
                let mut line = format!(
                    "waiting for {name:?} at {address} since {since}; to see who holds it, on the server's host: "
                );
                let dashes = if name.starts_with('-') { "-- " } else { "" };
                write!(line, "monolock inspect {dashes}{name:?}").expect("a string takes everything");
                line
            }
            Word::Acquired { waited, token } => {
                format!("acquired {name:?} at {address} after {}, token {token}", rounded(*waited))
            }
            Word::Taken { waited } => {
                let mut line = format!("did not get {name:?} at {address}");
                if self.patience != Patience::OneAnswer {
                    write!(line, " in {}", rounded(*waited)).expect("a string takes everything");
                }
                line + ": another client holds it"
            }
            Word::GaveUp { waited, error } => {
                let error = error.as_deref().unwrap_or("no answer in time");
                format!("did not get {name:?} at {address} in {}: {error}", rounded(*waited))
            }
            Word::Failed { error } => format!("did not get {name:?} at {address}: {error}"),
        }
    }
}

/// Whole seconds, or milliseconds where it is less than one.
fn rounded(span: Duration) -> humantime::FormattedDuration {
    let ms = u64::try_from(span.as_millis()).unwrap_or(u64::MAX);
    humantime::format_duration(Duration::from_millis(if ms < 1000 { ms } else { ms - ms % 1000 }))
}

#[cfg(test)]
mod tests {
    use super::*;

    use std::time::UNIX_EPOCH;

    use protocol::Token;

    fn told(name: &str, patience: Patience, word: &Word) -> String {
        let subject = Subject { name, address: "db1:7070", patience };
        subject.tell(word, UNIX_EPOCH + Duration::from_secs(1_800_000_000))
    }

    fn all() -> Vec<Word> {
        let waited = Duration::from_millis(12_345);
        let (error, loss) = ("refused".to_owned(), "closed".to_owned());
        vec![
            Word::Trouble { error: error.clone() },
            Word::LostPlace { loss },
            Word::Waiting { waited },
            Word::Acquired { waited, token: Token(7) },
            Word::Taken { waited },
            Word::GaveUp { waited, error: None },
            Word::GaveUp { waited, error: Some(error.clone()) },
            Word::Failed { error },
        ]
    }

    #[test]
    fn each_line_names_the_lock_and_the_server() {
        for word in all() {
            let line = told("a b", Patience::Endless, &word);
            assert!(line.contains("\"a b\" at db1:7070"), "{line}");
        }
    }

    #[test]
    fn a_wait_is_told_with_its_begin_and_with_how_to_find_the_holder() {
        let word = Word::Waiting { waited: Duration::from_secs(30) };
        let line = told("deploy", Patience::Endless, &word);
        assert!(line.contains("since 2027-01-15T07:59:30Z"), "{line}");
        let how = "to see who holds it, on the server's host: monolock inspect \"deploy\"";
        assert!(line.ends_with(how), "{line}");
        assert!(told("-x", Patience::Endless, &word).ends_with("monolock inspect -- \"-x\""));
    }

    #[test]
    fn a_taken_lock_is_told_with_the_length_of_the_wait_and_without_one_where_nobody_waited() {
        let word = Word::Taken { waited: Duration::from_millis(2005) };
        let line = told("x", Patience::Until(0), &word);
        assert_eq!(line, "did not get \"x\" at db1:7070 in 2s: another client holds it");
        let line = told("x", Patience::OneAnswer, &word);
        assert_eq!(line, "did not get \"x\" at db1:7070: another client holds it");
    }

    #[test]
    fn trouble_is_told_with_how_long_it_may_go_on() {
        let word = Word::Trouble { error: String::new() };
        assert!(told("x", Patience::Until(0), &word).ends_with("until --wait is over"));
        assert!(told("x", Patience::Endless, &word).contains("for ever"));
    }

    #[test]
    fn a_span_is_told_in_whole_seconds_unless_it_is_shorter() {
        let spans = [(0, "0s"), (999, "999ms"), (1000, "1s"), (12_345, "12s"), (3_661_500, "1h 1m 1s")];
        for (ms, text) in spans {
            assert_eq!(rounded(Duration::from_millis(ms)).to_string(), text);
        }
    }
}
