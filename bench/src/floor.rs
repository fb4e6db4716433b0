//! The floor: the least that a heartbeat costs on this machine.
//!
//! One io_uring ring with everything that pays (one issuer, deferred task work, multishot accept and receive,
//! provided buffers, direct descriptors, sends without a completion) answers an ACQUIRE and then each byte
//! with ACQUIRED. No lock, lease, queue, limit or check: what a server costs above this is what its work
//! costs.

mod buffers;

use std::net::{SocketAddr, TcpListener};
use std::os::fd::AsRawFd;
use std::process::Stdio;
use std::time::Duration;
use std::{env, io};

use anyhow::{Context, Result};
use io_uring::{IoUring, SubmissionQueue, Submitter, cqueue, opcode, squeue, types};
use protocol::{ACQUIRED_BYTES, Token, acquired, decode_acquire};
use rustix::io::Errno;
use rustix::net::SendFlags;
use testkit::process::{self, Server};

use crate::Verdict;
use buffers::{Buffers, GROUP};

/// Submission entries: one turn's sends go out with one system call up to this many.
const SUBMISSIONS: u32 = 4096;

/// Completion entries: every connection's receive may complete in one turn.
const COMPLETIONS: u32 = 32_768;

/// Direct descriptors, so also the most connections. Below the usual hard limit of open files.
const CONNECTIONS_MAX: u32 = 16_384;

/// The accept queue: the load generator's connections in the making, many times over.
const BACKLOG: i32 = 4096;

/// Bare io_uring responder: what a heartbeat costs at least.
#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// Address to listen on; the port that it became is printed.
    #[arg(long, default_value = "127.0.0.1:0")]
    listen: SocketAddr,
    /// CPU to run on.
    #[arg(long)]
    cpu: Option<usize>,
    /// Ends after this long.
    #[arg(long, default_value = "3600s", value_parser = crate::clock::parse_duration)]
    time: Duration,
}

/// Starts it as a process of its own, on `cpu` if given.
pub(crate) fn start(cpu: Option<usize>) -> Result<Server> {
    let mut command = process::tied(&env::current_exe()?, None)?;
    command.arg("floor");
    if let Some(cpu) = cpu {
        command.args(["--cpu", &cpu.to_string()]);
    }
    command.stdin(Stdio::null()).stdout(Stdio::piped());
    let mut child = command.spawn().context("starting the floor")?;
    let address = process::first_line(&mut child).and_then(|line| {
        let address = line.trim().strip_prefix("listening ").map(str::to_owned);
        Ok(address.with_context(|| format!("the floor said {line:?}"))?.parse()?)
    });
    match address {
        Ok(address) => Ok(Server::of(child, address)),
        Err(error) => {
            process::end(&mut child);
            Err(error)
        }
    }
}

/// Serves until the time is over.
pub(crate) fn run(options: &Options) -> Result<Verdict> {
    // The table of direct descriptors is bounded by it.
    process::raise_nofile()?;
    if let Some(cpu) = options.cpu {
        crate::cpus::pin_to(cpu)?;
    }
    let listener = listen(options.listen).with_context(|| format!("listening on {}", options.listen))?;
    println!("listening {}", listener.local_addr()?);
    serve(&listener, options.time).context("the floor's ring")?;
    Ok(Verdict::Met)
}

/// A listener whose connections send without delay.
pub(crate) fn listen(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = socket2::Socket::new(socket2::Domain::for_address(address), socket2::Type::STREAM, None)?;
    socket.set_reuse_address(true)?;
    socket.set_tcp_nodelay(true)?;
    socket.bind(&address.into())?;
    socket.listen(BACKLOG)?;
    Ok(socket.into())
}

/// Answers on `listener` for `time`. The ring belongs to the calling thread.
pub(crate) fn serve(listener: &TcpListener, time: Duration) -> io::Result<()> {
    let mut ring: IoUring = IoUring::builder()
        .setup_single_issuer()
        .setup_defer_taskrun()
        .setup_cqsize(COMPLETIONS)
        .build(SUBMISSIONS)?;
    ring.submitter().register_files_sparse(CONNECTIONS_MAX)?;
    ring.submitter().register_ring_fd()?;
    let mut responder = Responder {
        listener: types::Fd(listener.as_raw_fd()),
        buffers: Buffers::register(&ring)?,
        connections: (0..CONNECTIONS_MAX).map(Connection::new).collect(),
    };

    let end = types::Timespec::from(time);
    let (submitter, mut submissions, mut completions) = ring.split();
    let mut out = Out { submitter, queue: &mut submissions };
    out.push(&opcode::Timeout::new(&end).build().user_data(Op::End.tag(0)))?;
    out.push(&responder.accept())?;
    loop {
        out.queue.sync();
        match out.submitter.submit_and_wait(1) {
            Ok(_) => {}
            Err(error) if is_passing(&error) => {}
            Err(error) => return Err(error),
        }
        completions.sync();
        for completion in &mut completions {
            if Op::of(completion.user_data()).0 == Op::End {
                return Ok(());
            }
            responder.complete(&completion, &mut out)?;
        }
        responder.buffers.publish();
    }
}

/// Interrupted, or completions are waiting to be taken first.
fn is_passing(error: &io::Error) -> bool {
    let passing = [Errno::INTR, Errno::BUSY, Errno::AGAIN];
    passing.iter().any(|errno| error.raw_os_error() == Some(errno.raw_os_error()))
}

/// What a completion belongs to; its tag is the operation above the connection's slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Op {
    Accept,
    Receive,
    Send,
    Close,
    End,
}

impl Op {
    fn tag(self, slot: u32) -> u64 {
        (self as u64) << 32 | u64::from(slot)
    }

    fn of(tag: u64) -> (Self, u32) {
        let op = match tag >> 32 {
            0 => Self::Accept,
            1 => Self::Receive,
            2 => Self::Send,
            3 => Self::Close,
            _ => Self::End,
        };
        (op, tag as u32)
    }
}

/// The submission side of the ring.
struct Out<'ring, 'queue> {
    submitter: Submitter<'ring>,
    queue: &'queue mut SubmissionQueue<'ring>,
}

impl Out<'_, '_> {
    /// Queues an entry; submits what is queued when there is no room.
    fn push(&mut self, entry: &squeue::Entry) -> io::Result<()> {
        // SAFETY: what the entries point to outlives the ring's use of it: answers lie in
        // `Responder::connections`, which is never resized nor written after its creation, and a send with
        // MSG_DONTWAIT is over when it is submitted; the timeout's timespec lives as long as the loop.
        while unsafe { self.queue.push(entry) }.is_err() {
            self.queue.sync();
            match self.submitter.submit() {
                Ok(_) => {}
                Err(error) if is_passing(&error) => {}
                Err(error) => return Err(error),
            }
            self.queue.sync();
        }
        Ok(())
    }
}

/// A direct descriptor's connection.
struct Connection {
    /// The same answer for every connection in this slot, so it is never written while the kernel may read
    /// it.
    answer: [u8; ACQUIRED_BYTES],
    acquired: bool,
    /// The start of an ACQUIRE that came in pieces.
    partial: Vec<u8>,
}

impl Connection {
    fn new(slot: u32) -> Self {
        let answer = acquired(Token(u64::from(slot) + 1));
        Self { answer, acquired: false, partial: Vec::new() }
    }

    /// How many answers these bytes ask for; `None` when they are no ACQUIRE.
    fn answers(&mut self, bytes: &[u8]) -> Option<usize> {
        if self.acquired {
            return Some(bytes.len());
        }
        self.partial.extend_from_slice(bytes);
        let Some((_, rest)) = decode_acquire(&self.partial).ok()? else { return Some(0) };
        let answers = 1 + rest.len();
        self.acquired = true;
        self.partial = Vec::new();
        Some(answers)
    }
}

struct Responder {
    listener: types::Fd,
    buffers: Buffers,
    connections: Box<[Connection]>,
}

impl Responder {
    fn accept(&self) -> squeue::Entry {
        let accept = opcode::AcceptMulti::new(self.listener).allocate_file_index(true).build();
        accept.user_data(Op::Accept.tag(0))
    }

    fn complete(&mut self, completion: &cqueue::Entry, out: &mut Out<'_, '_>) -> io::Result<()> {
        let (op, slot) = Op::of(completion.user_data());
        let result = completion.result();
        match op {
            Op::Accept => {
                let slot = u32::try_from(result).map_err(|_| io::Error::from_raw_os_error(-result))?;
                let connection = &mut self.connections[slot as usize];
                connection.acquired = false;
                connection.partial.clear();
                out.push(&receive(slot))?;
                if !cqueue::more(completion.flags()) {
                    out.push(&self.accept())?;
                }
            }
            Op::Receive => self.received(slot, completion, out)?,
            // A full socket or a peer that left: the floor has no patience, and its receive then ends as
            // well.
            Op::Send if result < 0 => out.push(&shutdown(slot))?,
            Op::Send | Op::Close | Op::End => {}
        }
        Ok(())
    }

    fn received(&mut self, slot: u32, completion: &cqueue::Entry, out: &mut Out<'_, '_>) -> io::Result<()> {
        let no_buffers = completion.result() == -Errno::NOBUFS.raw_os_error();
        let Some(len) = usize::try_from(completion.result()).ok().filter(|&len| len > 0) else {
            return out.push(&if no_buffers { receive(slot) } else { close(slot) });
        };
        let id = cqueue::buffer_select(completion.flags()).expect("a receive with data names its buffer");
        let connection = &mut self.connections[slot as usize];
        let answers = connection.answers(self.buffers.filled(id, len));
        self.buffers.give_back(id);
        match answers {
            Some(answers) => (0..answers).try_for_each(|_| out.push(&send(slot, connection)))?,
            None => out.push(&shutdown(slot))?,
        }
        if !cqueue::more(completion.flags()) {
            out.push(&receive(slot))?;
        }
        Ok(())
    }
}

fn receive(slot: u32) -> squeue::Entry {
    opcode::RecvMulti::new(types::Fixed(slot), GROUP).build().user_data(Op::Receive.tag(slot))
}

/// Without MSG_DONTWAIT a send that leaves no completion could overtake one that waits for room.
fn send(slot: u32, connection: &Connection) -> squeue::Entry {
    let flags = (SendFlags::NOSIGNAL | SendFlags::DONTWAIT).bits().cast_signed();
    opcode::Send::new(types::Fixed(slot), connection.answer.as_ptr(), ACQUIRED_BYTES as u32)
        .flags(flags)
        .build()
        .flags(squeue::Flags::SKIP_SUCCESS)
        .user_data(Op::Send.tag(slot))
}

/// Ends both directions: the receive completes and the slot is closed then.
fn shutdown(slot: u32) -> squeue::Entry {
    const BOTH: i32 = 2;
    opcode::Shutdown::new(types::Fixed(slot), BOTH).build().user_data(Op::Close.tag(slot))
}

fn close(slot: u32) -> squeue::Entry {
    opcode::Close::new(types::Fixed(slot)).build().user_data(Op::Close.tag(slot))
}

#[cfg(test)]
mod tests {
    use super::*;
    use protocol::{Acquire, Lease, LockName};

    #[test]
    fn an_acquire_in_pieces_is_answered_once_and_each_byte_after_it_once() {
        let acquire = Acquire { name: LockName::new("floor").unwrap(), lease: Lease::from_ms(1000).unwrap() };
        let mut bytes = acquire.encode().to_vec();
        bytes.extend([2, 2]);
        for cut in 0..bytes.len() {
            let mut connection = Connection::new(7);
            let (first, second) = bytes.split_at(cut);
            let answers = connection.answers(first).unwrap() + connection.answers(second).unwrap();
            assert_eq!(answers, 3, "cut at {cut}");
        }
        assert_eq!(Connection::new(7).answers(b"GET /"), None);
    }

    #[test]
    fn a_tag_gives_back_its_operation_and_slot() {
        for op in [Op::Accept, Op::Receive, Op::Send, Op::Close, Op::End] {
            assert_eq!(Op::of(op.tag(u32::MAX)), (op, u32::MAX));
        }
    }
}
