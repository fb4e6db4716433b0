//! Saying what came out, to streams that may be closed, full, or not read.

use std::io::{self, Write};
use std::os::fd::AsFd;
use std::time::Instant;

use logging::escape::escaped;
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::judge::Verdict;

/// So much a pipe takes at once when it is said to take anything: PIPE_BUF.
const BYTES_MAX: usize = 4096;

/// Why is said as far as somebody takes it until then; the exit status says the rest.
pub(super) fn say(verdict: &Verdict, ends: Instant) {
    match verdict {
        Verdict::Serve { warnings } => {
            let lines = std::iter::once("ok").chain(warnings.iter().map(String::as_str));
            write(&mut io::stdout(), &text("", lines), ends);
        }
        Verdict::DoNot { reasons } => {
            write(&mut io::stderr(), &text("monolock: ", reasons.iter().map(String::as_str)), ends);
        }
        Verdict::CouldNotTell(why) => {
            write(&mut io::stderr(), &text("monolock: could not tell: ", [why.as_str()].into_iter()), ends);
        }
    }
}

/// Whole lines, as many as fit.
fn text<'l>(before: &str, lines: impl Iterator<Item = &'l str>) -> String {
    let mut text = String::new();
    for line in lines {
        let line = format!("{before}{}\n", escaped(line));
        if text.len() + line.len() > BYTES_MAX {
            break;
        }
        text += &line;
    }
    text
}

fn write(to: &mut (impl Write + AsFd), text: &str, ends: Instant) {
    let left = Timespec::try_from(ends.saturating_duration_since(Instant::now())).ok();
    let taken = poll(&mut [PollFd::new(&to.as_fd(), PollFlags::OUT)], left.as_ref());
    if taken.is_ok_and(|ready| ready > 0) {
        let _ = to.write_all(text.as_bytes());
        let _ = to.flush();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_the_other_side_are_escaped_and_too_many_are_left_out() {
        assert_eq!(text("x: ", ["a\u{1b}[2J"].into_iter()), format!("x: {}\n", escaped("a\u{1b}[2J")));
        let long = "y".repeat(1000);
        let text = text("", std::iter::repeat_n(long.as_str(), 10));
        assert_eq!(text.lines().count(), 4);
        assert!(text.len() <= BYTES_MAX);
    }
}
