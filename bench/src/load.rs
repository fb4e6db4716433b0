//! Client connections in numbers: one thread, one epoll set, nothing allocated for a heartbeat.

mod session;
mod stream;

use std::fmt;
use std::io::ErrorKind;
use std::net::{SocketAddr, TcpStream};
use std::os::fd::OwnedFd;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use protocol::{Acquire, ErrorCode, Lease, LockName, Token};
use rustix::buffer::spare_capacity;
use rustix::event::{Timespec, epoll};
use rustix::io::Errno;

use crate::clock::{NS_PER_S, as_ns, now_ns};
use crate::tls::Dialer;
use session::{Counts, Session};
use stream::Stream;

/// How long a connect may take. On loopback it takes microseconds unless the accept queue is full.
const CONNECT_MAX: Duration = Duration::from_secs(5);

/// How long the answer to an ACQUIRE or a heartbeat may take before the tool gives up.
pub(crate) const ANSWER_MAX: Duration = Duration::from_secs(10);

/// ACQUIREs without an answer while a crowd joins: below any accept queue (128 is the smallest usual one).
const JOINING_MAX: usize = 100;

/// Ready connections taken from one wait.
const READY_MAX: usize = 1024;

/// Bytes of one read: a hundred answers; a session has one or two.
const READ_BYTES: usize = 1024;

/// Connections to one server.
pub(crate) struct Fleet {
    server: SocketAddr,
    dialer: Option<Dialer>,
    epoll: OwnedFd,
    sessions: Vec<Option<Session>>,
    ready: Vec<epoll::Event>,
    buffer: Box<[u8; READ_BYTES]>,
    counts: Counts,
}

/// Something that happened to a session.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Happened {
    pub(crate) index: usize,
    pub(crate) at_ns: u64,
    pub(crate) what: What,
}

/// What happened to a session.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum What {
    /// WAITING answered the ACQUIRE.
    Queued,
    /// ACQUIRED answered the ACQUIRE, or was pushed.
    Granted(Token),
    /// A heartbeat was answered, with the state that it had to have.
    Beat {
        /// From the heartbeat's send to its answer.
        rtt_ns: u64,
    },
    /// The session is over; its place in the fleet is empty.
    Ended(End),
}

/// How a session ended that its client did not end.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// The server closed the connection.
    Closed,
    /// The server reset the connection.
    Reset,
    /// The server refused with an ERROR.
    Refused(ErrorCode),
    /// The server sent what the protocol does not allow here.
    Violation(&'static str),
    /// The local kernel ended it, or TLS did.
    Failed(String),
}

impl fmt::Display for End {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Closed => f.write_str("closed by the server"),
            Self::Reset => f.write_str("reset by the server"),
            Self::Refused(code) => write!(f, "refused: {code} {}", code.meaning()),
            Self::Violation(what) => f.write_str(what),
            Self::Failed(error) => write!(f, "failed: {error}"),
        }
    }
}

/// What became of the wish to send a heartbeat.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Sent {
    Yes,
    /// The one before is not answered yet, or the ACQUIRE is not.
    Busy,
    /// The session is over.
    Gone,
}

impl Fleet {
    pub(crate) fn new(server: SocketAddr) -> Result<Self> {
        Self::over(server, None)
    }

    /// Over TLS if there is a dialer.
    pub(crate) fn over(server: SocketAddr, dialer: Option<Dialer>) -> Result<Self> {
        Ok(Self {
            server,
            dialer,
            epoll: epoll::create(epoll::CreateFlags::CLOEXEC)?,
            sessions: Vec::new(),
            ready: Vec::with_capacity(READY_MAX),
            buffer: Box::new([0; READ_BYTES]),
            counts: Counts::default(),
        })
    }

    /// Connects and sends an ACQUIRE; its answer comes out of [`Fleet::poll`].
    pub(crate) fn join(&mut self, name: LockName, lease: Lease) -> Result<usize> {
        let socket = TcpStream::connect_timeout(&self.server, CONNECT_MAX).context("connecting")?;
        socket.set_nodelay(true)?;
        socket.set_read_timeout(Some(ANSWER_MAX))?;
        let mut stream = Stream::on(socket, self.dialer.as_ref()).context("the TLS handshake")?;
        stream.send(&Acquire { name, lease }.encode()).context("sending an ACQUIRE")?;
        let index = self.sessions.len();
        let flags = epoll::EventFlags::IN | epoll::EventFlags::RDHUP | epoll::EventFlags::ET;
        epoll::add(&self.epoll, stream.socket(), epoll::EventData::new_u64(index as u64), flags)?;
        self.sessions.push(Some(Session::joining(stream, &mut self.counts)));
        Ok(index)
    }

    /// Joins `count` sessions, the `n`th under `name(n)`, and waits for all their answers.
    pub(crate) fn join_all(
        &mut self,
        count: usize,
        lease: Lease,
        name: impl Fn(usize) -> LockName,
    ) -> Result<()> {
        let mut happened = Vec::new();
        for n in 0..count {
            self.join(name(n), lease)?;
            self.settle(&mut happened, |counts| counts.joining < JOINING_MAX)?;
        }
        self.settle(&mut happened, |counts| counts.joining == 0)
    }

    /// One heartbeat of every session, all answered.
    pub(crate) fn beat_all(&mut self) -> Result<()> {
        for index in 0..self.sessions.len() {
            self.heartbeat(index)?;
        }
        self.settle(&mut Vec::new(), |counts| counts.in_flight == 0)
    }

    /// Polls until the counts are as wanted; every end of a session is an error.
    fn settle(&mut self, happened: &mut Vec<Happened>, wanted: impl Fn(&Counts) -> bool) -> Result<()> {
        let deadline_ns = now_ns() + as_ns(ANSWER_MAX);
        while !wanted(&self.counts) {
            let now = now_ns();
            ensure!(now < deadline_ns, "no answer from {} within {ANSWER_MAX:?}", self.server);
            self.poll(deadline_ns - now, happened)?;
            for Happened { index, what, .. } in happened.iter() {
                if let What::Ended(end) = what {
                    bail!("session {index}: {end}");
                }
            }
        }
        Ok(())
    }

    /// Sends a heartbeat, if the session is there and has none in flight.
    pub(crate) fn heartbeat(&mut self, index: usize) -> Result<Sent> {
        match &mut self.sessions[index] {
            Some(session) => session.heartbeat(&mut self.counts),
            None => Ok(Sent::Gone),
        }
    }

    /// Heartbeats without an answer.
    pub(crate) fn in_flight(&self) -> usize {
        self.counts.in_flight
    }

    /// Places in the fleet, those of ended sessions included.
    pub(crate) fn len(&self) -> usize {
        self.sessions.len()
    }

    /// Closes a session's connection.
    pub(crate) fn close(&mut self, index: usize) {
        if let Some(session) = self.sessions[index].take() {
            session.leave(&mut self.counts);
        }
    }

    /// Waits at most `timeout_ns` and puts what happened into `happened`, whose former content goes.
    pub(crate) fn poll(&mut self, timeout_ns: u64, happened: &mut Vec<Happened>) -> Result<()> {
        happened.clear();
        self.ready.clear();
        let timeout = Timespec {
            tv_sec: (timeout_ns / NS_PER_S).cast_signed(),
            tv_nsec: (timeout_ns % NS_PER_S).cast_signed(),
        };
        match epoll::wait(&self.epoll, spare_capacity(&mut self.ready), Some(&timeout)) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(errno) => return Err(errno).context("epoll"),
        }
        for at in 0..self.ready.len() {
            let epoll::Event { flags, data } = self.ready[at];
            let over = epoll::EventFlags::RDHUP | epoll::EventFlags::HUP | epoll::EventFlags::ERR;
            let index = usize::try_from(data.u64()).expect("an index into `sessions`");
            self.read(index, flags.intersects(over), happened);
        }
        Ok(())
    }

    /// Reads what is there. An edge is reported only once, so this reads until a short read shows that the
    /// socket is empty, or to the end where the edge was the end.
    fn read(&mut self, index: usize, is_over: bool, happened: &mut Vec<Happened>) {
        let Self { sessions, buffer, counts, .. } = self;
        let Some(session) = &mut sessions[index] else { return };
        let end = loop {
            let len = match session.stream.read(&mut buffer[..]) {
                Ok(0) => break End::Closed,
                Ok(len) => len,
                Err(error) => match error.kind() {
                    ErrorKind::WouldBlock => return,
                    ErrorKind::Interrupted => continue,
                    // An end without TLS's goodbye.
                    ErrorKind::UnexpectedEof => break End::Closed,
                    ErrorKind::ConnectionReset => break End::Reset,
                    _ => break End::Failed(error.to_string()),
                },
            };
            let at_ns = now_ns();
            let tell = |what| happened.push(Happened { index, at_ns, what });
            if let Err(end) = session.take(&buffer[..len], at_ns, counts, tell) {
                break end;
            }
            if session.stream.is_drained_by(len, READ_BYTES) && !is_over {
                return;
            }
        };
        self.close(index);
        happened.push(Happened { index, at_ns: now_ns(), what: What::Ended(end) });
    }
}
