//! A client process: it claims a lock, waits, holds, writes to what the lock guards, lets go or crashes, and
//! begins anew.

use std::fs::{File, OpenOptions};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result};
use cli::parse_duration;
use client::{Closed, Connection, Error, Event, Loss, boottime_ns, request};
use fastrand::Rng;
use protocol::Token;
use rustix::process::{Signal, getpid, kill_process};
use soak::HOLD_LEASES_MAX;
use soak::logs::entry::{Cause, ClaimId, ClientId, ClientLine, Seen, WriteLine, append};
use soak::logs::names::{client_log, lock_name, register};
use socket2::SockRef;
use tokio::runtime::Builder;
use tokio::time::{sleep, timeout};

use crate::pauses::Pauses;
use crate::verdict::Verdict;

/// The log of one process: some hours of claims. Then it ends, and the soak starts another in its place.
const LOG_BYTES_MAX: usize = 1 << 20;

/// How often, in a lease, a client looks whether a heartbeat was answered, to log it. Answers come four times
/// a lease.
const LOOKS_PER_LEASE: u32 = 16;

/// Most holds are shorter than the time between two heartbeats.
const HOLD_SHORT_MS: std::ops::RangeInclusive<u64> = 5..=200;

/// One hold out of this many is long: up to [`HOLD_LEASES_MAX`].
const HOLD_LONG_ONE_IN: u32 = 8;

/// One hold out of this many ends with a crash.
const CRASH_ONE_IN: u32 = 50;

/// The pause between two guarded writes.
const WRITE_PAUSE_MS: std::ops::RangeInclusive<u64> = 10..=100;

/// One write out of this many takes its time to arrive: whatever stops its client meanwhile makes it a stale
/// one.
const WRITE_SLOW_ONE_IN: u32 = 2;
const WRITE_SLOW_MS: std::ops::RangeInclusive<u64> = 5..=50;

/// The pause between two claims.
const CLAIM_PAUSE_MS: std::ops::RangeInclusive<u64> = 0..=100;

/// The options of the hidden command that a client process is started with.
#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    #[arg(long)]
    address: SocketAddr,
    #[arg(long)]
    dir: PathBuf,
    #[arg(long)]
    client: ClientId,
    #[arg(long)]
    seed: u64,
    #[arg(long)]
    locks: u32,
    #[arg(long, value_parser = parse_duration)]
    lease_min: Duration,
    #[arg(long, value_parser = parse_duration)]
    lease_max: Duration,
}

/// Lives until it is killed, crashes, or has filled its log.
pub(crate) fn live(options: &Options) -> Result<Verdict> {
    let runtime = Builder::new_current_thread().enable_all().build()?;
    let path = client_log(&options.dir, options.client);
    let log = File::create_new(&path).with_context(|| path.display().to_string())?;
    let registers: Result<Vec<File>> = (0..options.locks).map(|lock| open_register(options, lock)).collect();
    let rng = Rng::with_seed(options.seed);
    let mut claimant =
        Claimant { options, log, logged_bytes: 0, registers: registers?, rng, backoff: Pauses::new() };
    runtime.block_on(async {
        for number in 0.. {
            if claimant.logged_bytes >= LOG_BYTES_MAX {
                break;
            }
            let longest = claimant.claim(number).await?;
            let pause = claimant.rng.u64(0..=u64::try_from(longest.as_nanos())?);
            sleep(Duration::from_nanos(pause)).await;
        }
        Ok(Verdict::Met)
    })
}

fn open_register(options: &Options, lock: u32) -> Result<File> {
    let path = register(&options.dir, lock);
    OpenOptions::new().append(true).create(true).open(&path).with_context(|| path.display().to_string())
}

struct Claimant<'a> {
    options: &'a Options,
    log: File,
    logged_bytes: usize,
    registers: Vec<File>,
    rng: Rng,
    backoff: Pauses,
}

/// A claim, and as of when the log says that it is confirmed.
struct Claiming {
    number: u32,
    lock: u32,
    lease: Duration,
    connection: Connection,
    logged_ns: u64,
}

impl Claimant<'_> {
    /// One claim from its connection to its end; the longest pause after it.
    async fn claim(&mut self, number: u32) -> Result<Duration> {
        let lock = self.rng.u32(0..self.options.locks);
        let (min, max) = (self.options.lease_min.as_millis(), self.options.lease_max.as_millis());
        let lease_ms = u32::try_from(self.rng.u128(min..=max))?;
        let lease = Duration::from_millis(u64::from(lease_ms));
        self.note(number, Seen::Opening { lock, lease_ms })?;
        let acquire = request(&lock_name(lock), lease)?;
        let connection = match Connection::open(&self.options.address.to_string(), acquire).await {
            Ok(connection) => connection,
            Err(error) => {
                self.note(number, Seen::Unreachable)?;
                return Ok(self.backoff.after(&error));
            }
        };
        let from = SockRef::from(&connection).local_addr()?.as_socket().context("TCP has an address")?;
        self.note(number, Seen::Acquire { from })?;
        let mut claiming = Claiming { number, lock, lease, connection, logged_ns: 0 };
        match self.wait_and_hold(&mut claiming).await? {
            None => {
                let confirmed_ns = claiming.connection.confirmed_ns();
                self.note(number, Seen::Released { confirmed_ns })?;
                Ok(Duration::from_millis(*CLAIM_PAUSE_MS.end()))
            }
            Some(loss) => {
                let (cause, confirmed_ns) = (cause(&loss), claiming.connection.confirmed_ns());
                self.note(number, Seen::Lost { cause, confirmed_ns })?;
                Ok(self.backoff.after(&Error::Lost(loss)))
            }
        }
    }

    async fn wait_and_hold(&mut self, claiming: &mut Claiming) -> Result<Option<Loss>> {
        loop {
            let Some(event) = self.next_event(claiming, claiming.lease / LOOKS_PER_LEASE).await? else {
                continue;
            };
            self.backoff = Pauses::new();
            let confirmed_ns = claiming.connection.confirmed_ns();
            claiming.logged_ns = confirmed_ns;
            match event {
                Event::Waiting => self.note(claiming.number, Seen::Waiting { confirmed_ns })?,
                Event::Acquired(token) => {
                    self.note(claiming.number, Seen::Acquired { token, confirmed_ns })?;
                    return self.hold(claiming, token).await;
                }
                Event::Lost(loss) => return Ok(Some(loss)),
            }
        }
    }

    /// Holds for a while, and ends well, or with a loss, or not at all.
    async fn hold(&mut self, claiming: &mut Claiming, token: Token) -> Result<Option<Loss>> {
        let longest_ms = u64::try_from(claiming.lease.as_millis())? * u64::from(HOLD_LEASES_MAX);
        let hold_ms = match self.rng.u32(0..HOLD_LONG_ONE_IN) {
            0 => self.rng.u64(0..=longest_ms),
            _ => self.rng.u64(HOLD_SHORT_MS).min(longest_ms),
        };
        let end_ns = boottime_ns() + hold_ms * 1_000_000;
        loop {
            self.write(claiming, token).await?;
            let now_ns = boottime_ns();
            if now_ns >= end_ns {
                break;
            }
            let pause = Duration::from_millis(self.rng.u64(WRITE_PAUSE_MS))
                .min(Duration::from_nanos(end_ns - now_ns));
            if let Some(Event::Lost(loss)) = self.next_event(claiming, pause).await? {
                return Ok(Some(loss));
            }
        }
        if self.rng.u32(0..CRASH_ONE_IN) == 0 {
            self.note(claiming.number, Seen::Crashed)?;
            kill_process(getpid(), Signal::KILL)?;
        }
        Ok(None)
    }

    /// A guarded write: only while the lock is held, and with the grant's token.
    async fn write(&mut self, claiming: &mut Claiming, token: Token) -> Result<()> {
        self.note_confirmation(claiming)?;
        let looked_ns = boottime_ns();
        if claiming.connection.is_held() {
            self.note(claiming.number, Seen::Write { token })?;
            if self.rng.u32(0..WRITE_SLOW_ONE_IN) == 0 {
                sleep(Duration::from_millis(self.rng.u64(WRITE_SLOW_MS))).await;
            }
            let claim = ClaimId { client: self.options.client, number: claiming.number };
            let register = &self.registers[usize::try_from(claiming.lock)?];
            append(register, &WriteLine { looked_ns, claim, token })?;
        }
        Ok(())
    }

    /// The next event, if it comes within `time`.
    async fn next_event(&mut self, claiming: &mut Claiming, time: Duration) -> Result<Option<Event>> {
        let event = timeout(time, claiming.connection.next_event()).await.ok();
        if event.is_none() {
            self.note_confirmation(claiming)?;
        }
        Ok(event)
    }

    fn note_confirmation(&mut self, claiming: &mut Claiming) -> Result<()> {
        let confirmed_ns = claiming.connection.confirmed_ns();
        // Before the first answer it is the claim's begin, which nothing confirms.
        if claiming.logged_ns != 0 && claiming.logged_ns != confirmed_ns {
            claiming.logged_ns = confirmed_ns;
            self.note(claiming.number, Seen::Confirmed { confirmed_ns })?;
        }
        Ok(())
    }

    fn note(&mut self, number: u32, seen: Seen) -> Result<()> {
        self.logged_bytes += append(&self.log, &ClientLine { at_ns: boottime_ns(), number, seen })?;
        Ok(())
    }
}

fn cause(loss: &Loss) -> Cause {
    match loss {
        Loss::ConnectionClosed(Closed::ByServer) => Cause::Closed,
        Loss::ConnectionClosed(Closed::Broken(_) | Closed::Refused(_) | Closed::SpeaksTls) => Cause::Broken,
        Loss::HeartbeatTimeout => Cause::Timeout,
        Loss::ProtocolViolation(_) => Cause::Violation,
        Loss::Server { code, .. } => Cause::Error(code.0),
    }
}
