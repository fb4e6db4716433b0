//! The storm: this tool once more, as a process that connects again and again until it is told to stop.

use std::fmt;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;
use std::{env, thread};

use anyhow::{Context, Result, bail, ensure};
use protocol::{Acquire, Lease, ServerFrame, decode_server_frame};
use testkit::process;

use crate::clock::now_ns;
use crate::load::ANSWER_MAX;
use crate::tls::{self, Certificates, Dialer};
use crate::{LEASE_LONG_MS, Verdict, numbered_name};

/// The least that the scheduler knows: the storm takes what CPU time is left.
pub(super) const NICE: i32 = 19;

/// Between two looks at all half-open connections.
const HALF_OPEN_POLL: Duration = Duration::from_millis(10);

/// After a failure, so that a server that refuses is not asked a hundred thousand times.
const FAILURE_PAUSE: Duration = Duration::from_millis(10);

/// What a storm's process is told.
#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    #[arg(long)]
    address: SocketAddr,
    /// Where the certificates are.
    #[arg(long)]
    certificates: PathBuf,
    #[arg(long)]
    mutual: bool,
    #[arg(long)]
    threads: u32,
    #[arg(long)]
    half_open: u32,
}

/// A storm that goes on until [`Storm::end`]; ended when dropped.
pub(super) struct Storm(Child);

impl Storm {
    pub(super) fn start(
        server: SocketAddr,
        certificates: &Certificates,
        options: &super::Options,
    ) -> Result<Self> {
        let mut command = process::tied(&env::current_exe()?, None)?;
        command.args(["storm-clients", "--address", &server.to_string(), "--certificates"]);
        command.arg(certificates.directory());
        command.args([
            "--threads",
            &options.threads.to_string(),
            "--half-open",
            &options.half_open.to_string(),
        ]);
        if options.mutual {
            command.arg("--mutual");
        }
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        Ok(Self(command.spawn().context("starting the storm")?))
    }

    /// Tells it to stop; what it did.
    pub(super) fn end(mut self) -> Result<Weathered> {
        drop(self.0.stdin.take());
        let line = process::first_line(&mut self.0)?;
        Weathered::parse(&line).with_context(|| format!("the storm said {line:?}"))
    }
}

impl Drop for Storm {
    fn drop(&mut self) {
        process::end(&mut self.0);
    }
}

/// What a storm did, as its process prints it in one line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Weathered {
    elapsed_ms: u64,
    /// Handshakes whose ACQUIRE was granted.
    pub(super) served: u64,
    pub(super) failed: u64,
    half_open: u64,
    half_open_closed: u64,
    /// How the first one failed.
    pub(super) failure: Option<String>,
}

impl Weathered {
    fn line(&self) -> String {
        let Self { elapsed_ms, served, failed, half_open, half_open_closed, failure } = self;
        let failure = failure.as_deref().unwrap_or_default();
        format!("{elapsed_ms} {served} {failed} {half_open} {half_open_closed} {failure}")
    }

    pub(super) fn parse(line: &str) -> Option<Self> {
        let mut words = line.trim_end_matches('\n').splitn(6, ' ');
        let mut number = || words.next()?.parse().ok();
        let (elapsed_ms, served, failed) = (number()?, number()?, number()?);
        let (half_open, half_open_closed) = (number()?, number()?);
        let failure = Some(words.next()?.to_owned()).filter(|failure| !failure.is_empty());
        Some(Self { elapsed_ms, served, failed, half_open, half_open_closed, failure })
    }
}

impl fmt::Display for Weathered {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let rate = self.served as f64 * 1e3 / self.elapsed_ms.max(1) as f64;
        write!(
            f,
            "{} handshakes, each with a granted ACQUIRE, in {:.1} s: {rate:.0}/s, {} failed",
            self.served,
            self.elapsed_ms as f64 / 1e3,
            self.failed
        )?;
        if self.half_open > 0 {
            let Self { half_open, half_open_closed, .. } = self;
            write!(f, "; {half_open} half a ClientHello, {half_open_closed} of them closed by the server")?;
        }
        match &self.failure {
            Some(failure) => write!(f, "; the first failure: {failure}"),
            None => Ok(()),
        }
    }
}

/// What the threads of a storm share.
struct Shared {
    server: SocketAddr,
    dialer: Dialer,
    stop: AtomicBool,
    served: AtomicU64,
    failed: AtomicU64,
    half_open: AtomicU64,
    half_open_closed: AtomicU64,
    failure: Mutex<Option<String>>,
}

/// Storms until standard input ends, then prints what it did.
pub(crate) fn run(options: &Options) -> Result<Verdict> {
    // Threads inherit it.
    rustix::process::setpriority_process(None, NICE).context("nice")?;
    process::raise_nofile()?;
    let shared = Shared {
        server: options.address,
        dialer: Dialer::from_files(&options.certificates, options.mutual)?,
        stop: AtomicBool::new(false),
        served: AtomicU64::new(0),
        failed: AtomicU64::new(0),
        half_open: AtomicU64::new(0),
        half_open_closed: AtomicU64::new(0),
        failure: Mutex::new(None),
    };
    let start_ns = now_ns();
    let elapsed_ms = thread::scope(|scope| {
        for thread in 0..options.threads {
            let shared = &shared;
            scope.spawn(move || shared.handshakes(thread));
        }
        if options.half_open > 0 {
            scope.spawn(|| shared.hold_half_open(options.half_open));
        }
        let told = io::stdin().read_to_end(&mut Vec::new());
        shared.stop.store(true, Ordering::Relaxed);
        told.map(|_| (now_ns() - start_ns) / 1_000_000)
    })?;
    let weathered = Weathered {
        elapsed_ms,
        served: shared.served.into_inner(),
        failed: shared.failed.into_inner(),
        half_open: shared.half_open.into_inner(),
        half_open_closed: shared.half_open_closed.into_inner(),
        failure: shared.failure.into_inner().expect("no thread of the storm panics"),
    };
    println!("{}", weathered.line());
    Ok(Verdict::Met)
}

impl Shared {
    fn stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    fn failed(&self, error: &anyhow::Error) {
        self.failed.fetch_add(1, Ordering::Relaxed);
        let mut first = self.failure.lock().expect("no thread of the storm panics");
        first.get_or_insert_with(|| format!("{error:#}").replace('\n', " "));
        drop(first);
        thread::sleep(FAILURE_PAUSE);
    }

    fn handshakes(&self, thread: u32) {
        for n in 0.. {
            if self.stopped() {
                return;
            }
            match self.handshake(&format!("storm-{thread}"), n) {
                Ok(()) => _ = self.served.fetch_add(1, Ordering::Relaxed),
                Err(error) => self.failed(&error),
            }
        }
    }

    /// One client from its connect to its close.
    fn handshake(&self, prefix: &str, n: usize) -> Result<()> {
        let socket = TcpStream::connect_timeout(&self.server, ANSWER_MAX).context("connecting")?;
        socket.set_nodelay(true)?;
        socket.set_read_timeout(Some(ANSWER_MAX))?;
        let mut stream = self.dialer.handshake(socket).context("the handshake")?;
        let lease = Lease::from_ms(LEASE_LONG_MS).expect("a positive constant");
        stream
            .write_all(&Acquire { name: numbered_name(prefix, n), lease }.encode())
            .context("an ACQUIRE")?;
        let mut received = Vec::new();
        loop {
            let mut buffer = [0; 64];
            let len = stream.read(&mut buffer).context("waiting for ACQUIRED")?;
            ensure!(len > 0, "the server closed the connection");
            received.extend_from_slice(&buffer[..len]);
            match decode_server_frame(&received)? {
                Some((ServerFrame::Acquired(_), _)) => return tls::close(stream).context("closing"),
                Some((other, _)) => bail!("{other:?} came instead of ACQUIRED"),
                None => {}
            }
        }
    }

    /// Keeps so many connections that have sent half a ClientHello.
    fn hold_half_open(&self, count: u32) {
        let mut connections: Vec<Option<TcpStream>> = (0..count).map(|_| None).collect();
        while !self.stopped() {
            for connection in &mut connections {
                if connection.as_ref().is_some_and(is_open) {
                    continue;
                }
                self.half_open_closed.fetch_add(connection.is_some().into(), Ordering::Relaxed);
                *connection = None;
                match self.open_half() {
                    Ok(opened) => *connection = Some(opened),
                    Err(error) => self.failed(&error.context("a half-open connection")),
                }
                if self.stopped() {
                    return;
                }
            }
            thread::sleep(HALF_OPEN_POLL);
        }
    }

    fn open_half(&self) -> Result<TcpStream> {
        let mut socket = TcpStream::connect_timeout(&self.server, ANSWER_MAX)?;
        socket.write_all(&self.dialer.half_a_hello()?)?;
        socket.set_nonblocking(true)?;
        self.half_open.fetch_add(1, Ordering::Relaxed);
        Ok(socket)
    }
}

/// Whether the server has neither closed it nor said anything.
fn is_open(mut socket: &TcpStream) -> bool {
    matches!(socket.read(&mut [0; 64]), Err(error) if error.kind() == ErrorKind::WouldBlock)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_storm_did_survives_its_line() {
        let quiet = Weathered {
            elapsed_ms: 2000,
            served: 3000,
            failed: 0,
            half_open: 5,
            half_open_closed: 4,
            failure: None,
        };
        let failed =
            Weathered { failed: 1, failure: Some("the handshake: reset by peer".into()), ..quiet.clone() };
        for weathered in [quiet.clone(), failed] {
            assert_eq!(Weathered::parse(&format!("{}\n", weathered.line())), Some(weathered));
        }
        assert_eq!(Weathered::parse(""), None);
        assert!(quiet.to_string().contains(": 1500/s, 0 failed"), "{quiet}");
    }
}
