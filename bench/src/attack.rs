//! Clients that misbehave, on a thread of their own.

use std::fmt;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result};
use protocol::{Acquire, HEARTBEAT, Lease};

use crate::numbered_name;

/// Random bytes that are sent at least, whatever the length of the phase.
const RANDOM_BYTES: usize = 2_000_000;

/// Bytes of one connection of noise at most: a few reads of the server.
const NOISE_BYTES_MAX: usize = 4096;

/// How long noise waits for the server's ERROR and close.
const NOISE_PATIENCE: Duration = Duration::from_millis(100);

/// Heartbeats of one write.
const FLOOD_BYTES: usize = 4096;

/// Connections that are opened beyond the server's limit of open files.
pub(crate) const BEYOND_LIMIT: usize = 200;

/// Lease of attackers' claims: longer than any phase.
pub(crate) const LEASE_MS: u32 = 1_200_000;

/// How long a connect may take: it fails when the server's accept queue is full.
const CONNECT_MAX: Duration = Duration::from_secs(2);

/// Pause of an attacker that cannot do anything.
const PAUSE: Duration = Duration::from_millis(1);

/// The attackers yield to the server and the witnesses: in truth they sit on other machines.
const NICE: i32 = 10;

#[derive(Debug, Clone, Copy)]
pub(crate) enum Attack {
    None,
    /// Connections that send noise, some after a proper ACQUIRE.
    RandomBytes {
        seed: u64,
    },
    /// Heartbeats as fast as the sockets take them.
    Floods(Floods),
    /// More connections than the server has descriptors.
    Descriptors {
        limit: usize,
    },
}

/// Sessions that flood.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Floods {
    pub(crate) sessions: usize,
    pub(crate) lease_ms: u32,
    /// Half of them never read their answers; else all do, as fast as they come.
    pub(crate) half_are_deaf: bool,
}

impl Attack {
    /// Attacks until told to stop, and says what it did.
    pub(crate) fn run(self, server: SocketAddr, stop: &AtomicBool) -> Result<String> {
        rustix::process::setpriority_process(Some(rustix::thread::gettid()), NICE).context("nice")?;
        match self {
            Self::None => Ok(String::new()),
            Self::RandomBytes { seed } => random_bytes(server, stop, &mut fastrand::Rng::with_seed(seed)),
            Self::Floods(how) => floods(server, stop, how),
            Self::Descriptors { limit } => descriptors(server, stop, limit),
        }
    }
}

fn connect(server: SocketAddr) -> io::Result<TcpStream> {
    TcpStream::connect_timeout(&server, CONNECT_MAX)
}

fn acquire(prefix: &str, n: usize, lease_ms: u32) -> protocol::AcquireFrame {
    let lease = Lease::from_ms(lease_ms).expect("a lease is not 0");
    Acquire { name: numbered_name(prefix, n), lease }.encode()
}

fn random_bytes(server: SocketAddr, stop: &AtomicBool, random: &mut fastrand::Rng) -> Result<String> {
    let (mut sent, mut connections, mut closed) = (0, 0_usize, 0_usize);
    while sent < RANDOM_BYTES || !stop.load(Ordering::Relaxed) {
        let mut noise = vec![0; random.usize(1..=NOISE_BYTES_MAX)];
        random.fill(&mut noise);
        let socket = connect(server).context("connecting")?;
        closed += usize::from(make_noise(socket, &mut noise, random));
        connections += 1;
        sent += noise.len();
    }
    Ok(format!("{sent} bytes on {connections} connections, {closed} seen closed by the server"))
}

/// Sends noise and leaves in one of several ways; whether the server was seen to close the connection.
fn make_noise(mut socket: TcpStream, noise: &mut Vec<u8>, random: &mut fastrand::Rng) -> bool {
    match random.u8(..4) {
        // After a claim that is granted.
        0 => noise.splice(..0, acquire("noise", random.usize(..16), LEASE_MS).iter().copied()).for_each(drop),
        // As an ACQUIRE of this version with random lease, length and name.
        1 => noise.splice(..0, [1, 1]).for_each(drop),
        _ => {}
    }
    // The server may close while noise is on its way.
    let _ = socket.write_all(noise);
    match random.u8(..4) {
        0 => false,
        1 => {
            let _ = socket2::SockRef::from(&socket).set_linger(Some(Duration::ZERO));
            false
        }
        _ => {
            let _ = socket.set_read_timeout(Some(NOISE_PATIENCE));
            !matches!(io::copy(&mut socket, &mut io::sink()), Err(error) if error.kind() == io::ErrorKind::WouldBlock)
        }
    }
}

/// One flooding session.
struct Flooder {
    socket: TcpStream,
    reads: bool,
}

#[derive(Default)]
struct Flooded {
    heartbeats: usize,
    answer_bytes: usize,
    dropped: usize,
}

impl fmt::Display for Flooded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { heartbeats, answer_bytes, dropped } = self;
        write!(f, "{heartbeats} heartbeats written, {answer_bytes} bytes of answers read, {dropped} dropped")
    }
}

fn floods(server: SocketAddr, stop: &AtomicBool, how: Floods) -> Result<String> {
    let start = |n: usize| -> io::Result<Flooder> {
        let mut socket = connect(server)?;
        socket.write_all(&acquire("flood", n, how.lease_ms))?;
        socket.set_nonblocking(true)?;
        Ok(Flooder { socket, reads: !how.half_are_deaf || n.is_multiple_of(2) })
    };
    let mut flooders = (0..how.sessions).map(start).collect::<io::Result<Vec<_>>>().context("connecting")?;
    let mut flooded = Flooded::default();
    let mut answers = vec![0; 64 * 1024];
    while !stop.load(Ordering::Relaxed) {
        let mut moved = false;
        for (n, flooder) in flooders.iter_mut().enumerate() {
            match flooder.turn(&mut answers, &mut flooded) {
                Ok(some) => moved |= some,
                Err(_) => {
                    flooded.dropped += 1;
                    *flooder = start(n).context("reconnecting")?;
                }
            }
        }
        if !moved {
            thread::sleep(PAUSE);
        }
    }
    Ok(flooded.to_string())
}

impl Flooder {
    /// Writes and reads what is possible; whether anything was. An error when the session is over.
    fn turn(&mut self, answers: &mut [u8], flooded: &mut Flooded) -> io::Result<bool> {
        let mut moved = false;
        match self.socket.write(&[HEARTBEAT[0]; FLOOD_BYTES]) {
            Ok(len) => {
                flooded.heartbeats += len;
                moved = true;
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
        }
        if self.reads {
            match self.socket.read(answers) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(len) => {
                    flooded.answer_bytes += len;
                    moved = true;
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Err(error),
            }
        }
        Ok(moved)
    }
}

fn descriptors(server: SocketAddr, stop: &AtomicBool, limit: usize) -> Result<String> {
    let mut sockets = Vec::with_capacity(limit + BEYOND_LIMIT);
    for n in 0..limit + BEYOND_LIMIT {
        let mut socket = connect(server).with_context(|| format!("connection {n}"))?;
        socket.write_all(&acquire("descriptors", n, LEASE_MS))?;
        socket.set_nonblocking(true)?;
        sockets.push(socket);
    }
    while !stop.load(Ordering::Relaxed) {
        thread::sleep(PAUSE);
    }
    let (mut answered, mut refused) = (0, 0);
    for socket in &mut sockets {
        match socket.read(&mut [0; 16]) {
            Ok(len) if len > 0 => answered += 1,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Ok(_) | Err(_) => refused += 1,
        }
    }
    let waiting = sockets.len() - answered - refused;
    Ok(format!("{} connections, {answered} answered, {waiting} waiting, {refused} closed", sockets.len()))
}
