//! One line of a log: what a client, the soak or a guarded register saw, and when on CLOCK_BOOTTIME.
//!
//! A line is one write: a process that is killed leaves whole lines, and at worst a torn last one.

use std::fmt;
use std::fs::File;
use std::io::{self, Write};
use std::net::SocketAddr;
use std::str::{FromStr, SplitWhitespace};

use protocol::Token;

/// Why a text is no line of a log, or no part of one.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Malformed(String);

/// A client process, written as `3.1`: the second one in place 3.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ClientId {
    /// From 0 on.
    pub place: u32,
    /// How many had the place before.
    pub generation: u32,
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
    type Err = Malformed;

    fn from_str(text: &str) -> Result<Self, Malformed> {
        let malformed = || Malformed(format!("{text:?}: a client is written as 3.0"));
        let (place, generation) = text.split_once('.').ok_or_else(malformed)?;
        let number = |text: &str| text.parse().map_err(|_| malformed());
        Ok(Self { place: number(place)?, generation: number(generation)? })
    }
}

/// One of a client's claims, written as `3.1#7`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ClaimId {
    /// Whose it is.
    pub client: ClientId,
    /// Counted by the client, from 0 on.
    pub number: u32,
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
pub enum Cause {
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
    type Err = Malformed;

    fn from_str(text: &str) -> Result<Self, Malformed> {
        Ok(match text {
            "closed" => Self::Closed,
            "broken" => Self::Broken,
            "timeout" => Self::Timeout,
            "violation" => Self::Violation,
            _ => {
                let code = text.strip_prefix("error-").and_then(|code| code.parse().ok());
                Self::Error(code.ok_or_else(|| Malformed(format!("unknown cause {text:?}")))?)
            }
        })
    }
}

/// What a client saw of one of its claims. `confirmed_ns` is when the last frame was sent that was answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Seen {
    /// It is about to connect.
    Opening {
        /// The lock that it claims.
        lock: u32,
        /// The lease that it asks for.
        lease_ms: u32,
    },
    /// No server took the connection.
    Unreachable,
    /// It is connected and about to send its ACQUIRE.
    Acquire {
        /// The connection's own address.
        from: SocketAddr,
    },
    /// WAITING answered the ACQUIRE.
    Waiting {
        /// When what it answers was sent.
        confirmed_ns: u64,
    },
    /// It was granted.
    Acquired {
        /// The grant's token.
        token: Token,
        /// When what it answers was sent.
        confirmed_ns: u64,
    },
    /// A heartbeat was answered.
    Confirmed {
        /// When it was sent.
        confirmed_ns: u64,
    },
    /// It is held, and about to write to what the lock guards.
    Write {
        /// The grant's token.
        token: Token,
    },
    /// It was lost.
    Lost {
        /// How.
        cause: Cause,
        /// When the last frame was sent that was answered.
        confirmed_ns: u64,
    },
    /// It is about to close the connection.
    Released {
        /// When the last frame was sent that was answered.
        confirmed_ns: u64,
    },
    /// It is about to kill itself.
    Crashed,
}

/// A line of a client's log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ClientLine {
    /// When it was seen, on CLOCK_BOOTTIME.
    pub at_ns: u64,
    /// The claim's number.
    pub number: u32,
    /// What was seen of the claim.
    pub seen: Seen,
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
    type Err = Malformed;

    fn from_str(line: &str) -> Result<Self, Malformed> {
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
            other => return Err(Malformed(format!("unknown event {other:?}"))),
        };
        words.end()?;
        Ok(Self { at_ns, number, seen })
    }
}

/// What came of an administrator's deed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Answer {
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
    fn read(words: &mut Words<'_>) -> Result<Self, Malformed> {
        Ok(match words.next::<String>()?.as_str() {
            "released" => Self::Released(Token(words.next()?)),
            "kicked" => Self::Kicked(words.next()?),
            "nobody" => Self::Nobody,
            "failed" => Self::Failed(words.rest()),
            other => return Err(Malformed(format!("unknown answer {other:?}"))),
        })
    }
}

/// What the soak did, said before it did it; `Listening`, `Ended` and `Answered` after they were seen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Act {
    /// A client is started.
    Spawn(ClientId),
    /// SIGKILL to a client.
    Kill(ClientId),
    /// SIGSTOP to a client.
    Stop(ClientId),
    /// SIGCONT to a client.
    Continue(ClientId),
    /// A server is started.
    ServerStart {
        /// The length of the audit log by then.
        audit_bytes: usize,
    },
    /// The server takes connections.
    ServerListening,
    /// SIGTERM to the server.
    ServerTerm,
    /// SIGKILL to the server.
    ServerKill,
    /// The server is gone, and so is its listener.
    ServerEnded,
    /// An administrator takes a lock from its holder.
    ForceRelease {
        /// The lock.
        lock: u32,
    },
    /// An administrator looks at a lock's queue and removes a waiter.
    Kick {
        /// The lock.
        lock: u32,
    },
    /// What came of the administrator's last deed.
    Answered(Answer),
}

/// A line of the soak's own log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ActLine {
    /// When, on CLOCK_BOOTTIME.
    pub at_ns: u64,
    /// What is done.
    pub act: Act,
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
    type Err = Malformed;

    fn from_str(line: &str) -> Result<Self, Malformed> {
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
            other => return Err(Malformed(format!("unknown act {other:?}"))),
        };
        words.end()?;
        Ok(Self { at_ns, act })
    }
}

/// A line of a register, which stands for what a lock guards: a write that reached it. They are in the order
/// of their coming.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WriteLine {
    /// Before its writer looked whether the lock is held, on CLOCK_BOOTTIME.
    pub looked_ns: u64,
    /// The claim by which its writer held the lock.
    pub claim: ClaimId,
    /// The token of the claim's grant.
    pub token: Token,
}

impl fmt::Display for WriteLine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { looked_ns, claim: ClaimId { client, number }, token } = self;
        write!(f, "{looked_ns} {client} {number} {token}")
    }
}

impl FromStr for WriteLine {
    type Err = Malformed;

    fn from_str(line: &str) -> Result<Self, Malformed> {
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

/// Writes a line, whole; how many bytes that were.
///
/// # Errors
///
/// The file does not take it.
pub fn append(mut file: &File, line: &impl fmt::Display) -> io::Result<usize> {
    let line = format!("{line}\n");
    file.write_all(line.as_bytes())?;
    Ok(line.len())
}

struct Words<'a>(SplitWhitespace<'a>);

impl Words<'_> {
    fn next<T: FromStr<Err: fmt::Display>>(&mut self) -> Result<T, Malformed> {
        let word = self.0.next().ok_or_else(|| Malformed("the line ends early".into()))?;
        word.parse().map_err(|error| Malformed(format!("{word:?}: {error}")))
    }

    /// All words that are left.
    fn rest(&mut self) -> String {
        self.0.by_ref().collect::<Vec<_>>().join(" ")
    }

    fn end(&mut self) -> Result<(), Malformed> {
        match self.0.next() {
            None => Ok(()),
            Some(word) => Err(Malformed(format!("{word:?} does not belong there"))),
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
    fn why_a_deed_failed_stays_on_one_line() {
        let act = Act::Answered(Answer::Failed("not an API:\n  <html>\r\n".into()));
        let line = ActLine { at_ns: 8, act }.to_string();
        assert_eq!(line, "8 answered failed not an API: <html>");
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
