//! One line of a log: what a client, the soak or a guarded register saw, and when on CLOCK_BOOTTIME.
//!
//! A line is one write: a process that is killed leaves whole lines, and at worst a torn last one.

use std::fmt;
use std::fs::File;
use std::io::Write;
use std::net::SocketAddr;
use std::str::{FromStr, SplitWhitespace};

use anyhow::{Context, Result, bail};
use protocol::Token;

/// A client process: the place that it has, and how many had it before.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct ClientId {
    pub(crate) place: u32,
    pub(crate) generation: u32,
}

impl fmt::Display for ClientId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.place, self.generation)
    }
}

impl fmt::Debug for ClientId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for ClientId {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> Result<Self> {
        let (place, generation) = text.split_once('.').context("a client is written as 3.0")?;
        Ok(Self { place: place.parse()?, generation: generation.parse()? })
    }
}

/// One of a client's claims, by its number.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct ClaimId {
    pub(crate) client: ClientId,
    pub(crate) number: u32,
}

impl fmt::Display for ClaimId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}#{}", self.client, self.number)
    }
}

/// As the checker of locks shows it.
impl fmt::Debug for ClaimId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// How a claim was lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Cause {
    /// The server closed the connection without an ERROR.
    Closed,
    /// The connection broke.
    Broken,
    /// Nothing confirmed the claim in time.
    Timeout,
    /// The server did what the protocol does not know.
    Violation,
    /// An ERROR with this code.
    Error(u8),
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Closed => f.write_str("closed"),
            Self::Broken => f.write_str("broken"),
            Self::Timeout => f.write_str("timeout"),
            Self::Violation => f.write_str("violation"),
            Self::Error(code) => write!(f, "error-{code}"),
        }
    }
}

impl FromStr for Cause {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> Result<Self> {
        Ok(match text {
            "closed" => Self::Closed,
            "broken" => Self::Broken,
            "timeout" => Self::Timeout,
            "violation" => Self::Violation,
            _ => Self::Error(text.strip_prefix("error-").context("an unknown cause")?.parse()?),
        })
    }
}

/// What a client saw of one of its claims. `confirmed_ns` is the send time of the last frame that was answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Seen {
    /// It is about to connect.
    Opening { lock: u32, lease_ms: u32 },
    /// No server took the connection.
    Unreachable,
    /// It is connected, from this address, and about to send its ACQUIRE.
    Acquire { from: SocketAddr },
    /// WAITING answered the ACQUIRE.
    Waiting { confirmed_ns: u64 },
    /// It was granted.
    Acquired { token: Token, confirmed_ns: u64 },
    /// A heartbeat was answered.
    Confirmed { confirmed_ns: u64 },
    /// It is held, and about to write to what the lock guards.
    Write { token: Token },
    /// It was lost.
    Lost { cause: Cause, confirmed_ns: u64 },
    /// It is about to close the connection.
    Released { confirmed_ns: u64 },
    /// It is about to kill itself.
    Crashed,
}

/// A line of a client's log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ClientLine {
    pub(crate) at_ns: u64,
    pub(crate) number: u32,
    pub(crate) seen: Seen,
}

impl fmt::Display for ClientLine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} ", self.at_ns, self.number)?;
        match self.seen {
            Seen::Opening { lock, lease_ms } => write!(f, "opening {lock} {lease_ms}"),
            Seen::Unreachable => f.write_str("unreachable"),
            Seen::Acquire { from } => write!(f, "acquire {from}"),
            Seen::Waiting { confirmed_ns } => write!(f, "waiting {confirmed_ns}"),
            Seen::Acquired { token, confirmed_ns } => write!(f, "acquired {token} {confirmed_ns}"),
            Seen::Confirmed { confirmed_ns } => write!(f, "confirmed {confirmed_ns}"),
            Seen::Write { token } => write!(f, "write {token}"),
            Seen::Lost { cause, confirmed_ns } => write!(f, "lost {cause} {confirmed_ns}"),
            Seen::Released { confirmed_ns } => write!(f, "released {confirmed_ns}"),
            Seen::Crashed => f.write_str("crashed"),
        }
    }
}

impl FromStr for ClientLine {
    type Err = anyhow::Error;

    fn from_str(line: &str) -> Result<Self> {
        let mut words = Words(line.split_whitespace());
        let (at_ns, number) = (words.next()?, words.next()?);
        let seen = match words.next::<String>()?.as_str() {
            "opening" => Seen::Opening { lock: words.next()?, lease_ms: words.next()? },
            "unreachable" => Seen::Unreachable,
            "acquire" => Seen::Acquire { from: words.next()? },
            "waiting" => Seen::Waiting { confirmed_ns: words.next()? },
            "acquired" => Seen::Acquired { token: Token(words.next()?), confirmed_ns: words.next()? },
            "confirmed" => Seen::Confirmed { confirmed_ns: words.next()? },
            "write" => Seen::Write { token: Token(words.next()?) },
            "lost" => Seen::Lost { cause: words.next()?, confirmed_ns: words.next()? },
            "released" => Seen::Released { confirmed_ns: words.next()? },
            "crashed" => Seen::Crashed,
            other => bail!("unknown event {other:?}"),
        };
        words.end()?;
        Ok(Self { at_ns, number, seen })
    }
}

/// What came of an administrator's deed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Answer {
    /// The holder with this token was made to let go.
    Released(Token),
    /// The waiter with this address was removed.
    Kicked(SocketAddr),
    /// There was nobody to do it to.
    Nobody,
    /// It was refused, or not answered as it should be: why.
    Failed(String),
}

impl fmt::Display for Answer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Released(token) => write!(f, "released {token}"),
            Self::Kicked(waiter) => write!(f, "kicked {waiter}"),
            Self::Nobody => f.write_str("nobody"),
            Self::Failed(why) => write!(f, "failed {}", one_line(why)),
        }
    }
}

impl Answer {
    fn read(words: &mut Words<'_>) -> Result<Self> {
        Ok(match words.next::<String>()?.as_str() {
            "released" => Self::Released(Token(words.next()?)),
            "kicked" => Self::Kicked(words.next()?),
            "nobody" => Self::Nobody,
            "failed" => Self::Failed(words.rest()),
            other => bail!("unknown answer {other:?}"),
        })
    }
}

/// What the soak did, said before it did it; `Listening`, `Ended` and `Answered` after they were seen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Act {
    Spawn(ClientId),
    Kill(ClientId),
    Stop(ClientId),
    Continue(ClientId),
    /// The audit log had so many bytes.
    ServerStart {
        audit_bytes: usize,
    },
    ServerListening,
    ServerTerm,
    ServerKill,
    ServerEnded,
    /// An administrator takes a lock from its holder.
    ForceRelease {
        lock: u32,
    },
    /// An administrator looks at a lock's queue and removes a waiter.
    Kick {
        lock: u32,
    },
    /// What came of the administrator's last deed.
    Answered(Answer),
}

/// A line of the soak's own log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ActLine {
    pub(crate) at_ns: u64,
    pub(crate) act: Act,
}

impl fmt::Display for ActLine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ", self.at_ns)?;
        match &self.act {
            Act::Spawn(client) => write!(f, "spawn {client}"),
            Act::Kill(client) => write!(f, "kill {client}"),
            Act::Stop(client) => write!(f, "stop {client}"),
            Act::Continue(client) => write!(f, "continue {client}"),
            Act::ServerStart { audit_bytes } => write!(f, "server-start {audit_bytes}"),
            Act::ServerListening => f.write_str("server-listening"),
            Act::ServerTerm => f.write_str("server-term"),
            Act::ServerKill => f.write_str("server-kill"),
            Act::ServerEnded => f.write_str("server-ended"),
            Act::ForceRelease { lock } => write!(f, "force-release {lock}"),
            Act::Kick { lock } => write!(f, "kick-waiter {lock}"),
            Act::Answered(answer) => write!(f, "answered {answer}"),
        }
    }
}

impl FromStr for ActLine {
    type Err = anyhow::Error;

    fn from_str(line: &str) -> Result<Self> {
        let mut words = Words(line.split_whitespace());
        let at_ns = words.next()?;
        let act = match words.next::<String>()?.as_str() {
            "spawn" => Act::Spawn(words.next()?),
            "kill" => Act::Kill(words.next()?),
            "stop" => Act::Stop(words.next()?),
            "continue" => Act::Continue(words.next()?),
            "server-start" => Act::ServerStart { audit_bytes: words.next()? },
            "server-listening" => Act::ServerListening,
            "server-term" => Act::ServerTerm,
            "server-kill" => Act::ServerKill,
            "server-ended" => Act::ServerEnded,
            "force-release" => Act::ForceRelease { lock: words.next()? },
            "kick-waiter" => Act::Kick { lock: words.next()? },
            "answered" => Act::Answered(Answer::read(&mut words)?),
            other => bail!("unknown act {other:?}"),
        };
        words.end()?;
        Ok(Self { at_ns, act })
    }
}

/// A line of a register, which stands for what a lock guards: a write that reached it, in the order of their coming.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct WriteLine {
    /// Before its writer looked whether the lock is held.
    pub(crate) looked_ns: u64,
    pub(crate) claim: ClaimId,
    pub(crate) token: Token,
}

impl fmt::Display for WriteLine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { looked_ns, claim: ClaimId { client, number }, token } = self;
        write!(f, "{looked_ns} {client} {number} {token}")
    }
}

impl FromStr for WriteLine {
    type Err = anyhow::Error;

    fn from_str(line: &str) -> Result<Self> {
        let mut words = Words(line.split_whitespace());
        let looked_ns = words.next()?;
        let claim = ClaimId { client: words.next()?, number: words.next()? };
        let token = Token(words.next()?);
        words.end()?;
        Ok(Self { looked_ns, claim, token })
    }
}

/// Text with nothing but single spaces between its words.
fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Writes a line, whole.
pub(crate) fn append(mut file: &File, line: &impl fmt::Display) -> Result<usize> {
    let line = format!("{line}\n");
    file.write_all(line.as_bytes()).context("writing to a log")?;
    Ok(line.len())
}

struct Words<'a>(SplitWhitespace<'a>);

impl Words<'_> {
    fn next<T: FromStr<Err: fmt::Display>>(&mut self) -> Result<T> {
        let word = self.0.next().context("the line ends early")?;
        word.parse().map_err(|error| anyhow::anyhow!("{word:?}: {error}"))
    }

    /// All words that are left.
    fn rest(&mut self) -> String {
        self.0.by_ref().collect::<Vec<_>>().join(" ")
    }

    fn end(&mut self) -> Result<()> {
        match self.0.next() {
            None => Ok(()),
            Some(word) => bail!("{word:?} does not belong there"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CLIENT: ClientId = ClientId { place: 3, generation: 1 };

    #[test]
    fn every_line_is_read_back_as_it_was_written() {
        let token = Token(7);
        let from: SocketAddr = ([127, 0, 0, 1], 40_000).into();
        let seen = [
            Seen::Opening { lock: 4, lease_ms: 1500 },
            Seen::Unreachable,
            Seen::Acquire { from },
            Seen::Waiting { confirmed_ns: 5 },
            Seen::Acquired { token, confirmed_ns: 5 },
            Seen::Confirmed { confirmed_ns: 6 },
            Seen::Write { token },
            Seen::Released { confirmed_ns: 6 },
            Seen::Crashed,
        ];
        let causes = [Cause::Closed, Cause::Broken, Cause::Timeout, Cause::Violation, Cause::Error(1)];
        let lost = causes.map(|cause| Seen::Lost { cause, confirmed_ns: 9 });
        for seen in seen.into_iter().chain(lost) {
            let line = ClientLine { at_ns: 8, number: 2, seen };
            assert_eq!(line.to_string().parse::<ClientLine>().unwrap(), line);
        }
        let clients = [Act::Spawn(CLIENT), Act::Kill(CLIENT), Act::Stop(CLIENT), Act::Continue(CLIENT)];
        let started = Act::ServerStart { audit_bytes: 9 };
        let server = [started, Act::ServerListening, Act::ServerTerm, Act::ServerKill, Act::ServerEnded];
        let released = Answer::Released(token);
        let failed = Answer::Failed("no answer within 5 s".into());
        let answers = [released, Answer::Kicked(from), Answer::Nobody, failed];
        let administrator = [Act::ForceRelease { lock: 4 }, Act::Kick { lock: 4 }];
        let administrator = administrator.into_iter().chain(answers.map(Act::Answered));
        for act in clients.into_iter().chain(server).chain(administrator) {
            let line = ActLine { at_ns: 8, act };
            assert_eq!(line.to_string().parse::<ActLine>().unwrap(), line);
        }
        let line = WriteLine { looked_ns: 8, claim: ClaimId { client: CLIENT, number: 2 }, token };
        assert_eq!(line.to_string().parse::<WriteLine>().unwrap(), line);
    }

    #[test]
    fn a_line_of_another_kind_is_an_error() {
        for wrong in
            ["", "8", "8 2", "8 2 slept", "8 2 waiting", "8 2 waiting x", "8 2 acquire", "8 2 lost so 1"]
        {
            assert!(wrong.parse::<ClientLine>().is_err(), "{wrong:?}");
        }
        assert!("8 spawn 3".parse::<ActLine>().is_err());
    }
}
