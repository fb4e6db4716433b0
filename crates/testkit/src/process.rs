//! Child processes of a tool that measures or torments servers: started on a free loopback port, ended with
//! the tool on every path.
//!
//! A child begins as the tool's own program, which ties itself to its parent and then becomes what was asked
//! for: see [`tied`]. A tool's `main` calls [`become_what_was_asked`] before anything else.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::ffi::OsString;
use std::io::{self, BufRead, BufReader};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::ops::RangeInclusive;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{self, Child, Command, ExitStatus, Stdio};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use std::{env, thread};

use anyhow::{Context, Result, bail, ensure};
use rustix::process::{
    Pid, Resource, Rlimit, Signal, getppid, getrlimit, kill_process, set_parent_process_death_signal,
    setrlimit,
};

/// How long a server may take until it listens. It should take 50 ms.
const START_MAX: Duration = Duration::from_secs(10);

/// Between two looks whether it listens.
const START_POLL: Duration = Duration::from_millis(5);

/// Lines of a server's diagnostics that are kept, to be shown when it dies.
const LOG_LINES_MAX: usize = 20;

/// The usual soft limit of open files. Children start with it: a server raises its own.
const NOFILE_SOFT_USUAL: u64 = 1024;

/// The first argument of a tool's process that is to become another program.
const BECOME: &str = "become";

/// The exit status of a shell whose command cannot be started.
const STATUS_NOT_STARTED: i32 = 127;

/// No limit, among arguments.
const UNLIMITED: &str = "unlimited";

/// Between two looks whether it has ended, and whether its port is closed.
const END_POLL: Duration = Duration::from_millis(1);

/// How long a closed port of this machine takes to refuse: microseconds, and what the scheduler adds.
const REFUSAL_MAX: Duration = Duration::from_millis(20);

/// Where a server that is restarted listens: below the range that Linux takes a client's own port from, so
/// that no client can take the port while no server has it.
const FIXED_PORTS: RangeInclusive<u16> = 15_000..=30_000;

/// A running server; ended when dropped, and by the kernel when this process ends in any other way.
pub struct Server {
    child: Child,
    address: SocketAddr,
    log: Option<JoinHandle<VecDeque<String>>>,
}

/// How to start a monolock server.
pub struct Start<'a> {
    /// Its program.
    pub program: &'a Path,
    /// Its shards.
    pub shards: usize,
    /// Hard limit of open files, where it is not this process's own.
    pub nofile: Option<u64>,
    /// More flags.
    pub flags: Vec<String>,
}

impl<'a> Start<'a> {
    /// With this process's limits and no more flags.
    pub fn new(program: &'a Path, shards: usize) -> Self {
        Self { program, shards, nofile: None, flags: Vec::new() }
    }
}

impl Server {
    /// Starts a monolock server and waits until it listens.
    pub fn start(start: &Start<'_>) -> Result<Self> {
        Self::start_at(start, free_address()?)
    }

    /// The same, on an address that an earlier server may have had.
    pub fn start_at(start: &Start<'_>, address: SocketAddr) -> Result<Self> {
        let mut command = tied(start.program, start.nofile)?;
        command.args(["-listen", &address.to_string(), "-shards", &start.shards.to_string()]);
        command.args(&start.flags);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
        let mut child = command.spawn().with_context(|| format!("starting {}", start.program.display()))?;
        let log = keep_last_lines(&mut child);
        let mut server = Self { child, address, log };
        server.wait_until_listening()?;
        Ok(server)
    }

    /// A child that serves at an address already.
    pub fn of(child: Child, address: SocketAddr) -> Self {
        Self { child, address, log: None }
    }

    /// Where it serves.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Its number.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Sends it a signal.
    pub fn signal(&self, signal: Signal) -> Result<()> {
        kill_process(Pid::from_child(&self.child), signal).context("signalling the server")
    }

    /// Waits until it has ended and its port is closed: the kernel takes an io_uring down after its process
    /// is gone, and the listener with it. Until then it goes on taking connections that nobody serves.
    pub fn wait_for_end(&mut self, at_most: Duration) -> Result<ExitStatus> {
        let start = Instant::now();
        let mut ended = None;
        loop {
            ended = match ended {
                None => self.child.try_wait()?,
                Some(status) if self.is_refusing() => return Ok(status),
                Some(status) => Some(status),
            };
            ensure!(start.elapsed() < at_most, "the server does not end within {at_most:?}");
            thread::sleep(END_POLL);
        }
    }

    /// Whether its port is closed. A SYN that comes while it is being closed is lost, and says nothing.
    fn is_refusing(&self) -> bool {
        let refused = TcpStream::connect_timeout(&self.address, REFUSAL_MAX).err();
        refused.is_some_and(|error| error.kind() == io::ErrorKind::ConnectionRefused)
    }

    /// An error with the server's last words if it has ended.
    pub fn check_alive(&mut self) -> Result<()> {
        let Some(status) = self.child.try_wait()? else { return Ok(()) };
        let lines = self.log.take().map(|reader| reader.join().expect("a reader does not panic"));
        bail!("the server ended ({status}): {}", Vec::from(lines.unwrap_or_default()).join("\n"))
    }

    fn wait_until_listening(&mut self) -> Result<()> {
        let start = Instant::now();
        while TcpStream::connect_timeout(&self.address, START_MAX).is_err() {
            self.check_alive()?;
            ensure!(start.elapsed() < START_MAX, "the server does not listen on {}", self.address);
            thread::sleep(START_POLL);
        }
        Ok(())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        end(&mut self.child);
    }
}

/// Kills a child and takes its status, whether or not it has ended already.
pub fn end(child: &mut Child) {
    let _ = child.kill();
    let _ = child.wait();
}

/// The first line that a child prints on its piped standard output.
pub fn first_line(child: &mut Child) -> Result<String> {
    let stdout = child.stdout.as_mut().context("the child's output is not piped")?;
    let mut line = String::new();
    BufReader::new(stdout).read_line(&mut line)?;
    Ok(line)
}

/// A command that runs `program`, whose arguments are to be added. Whatever ends this process kills the
/// command's, and its limits of open files are those of a shell's command: a hard limit of `nofile` or the
/// one of this process, and the usual soft limit.
///
/// It works in a program that calls [`become_what_was_asked`].
///
/// # Errors
///
/// This process's own program cannot be told.
pub fn tied(program: &Path, nofile: Option<u64>) -> Result<Command> {
    let hard = nofile.or(getrlimit(Resource::Nofile).maximum);
    let hard = hard.map_or(UNLIMITED.to_owned(), |hard| hard.to_string());
    let mut command = Command::new(env::current_exe().context("this program's own path")?);
    command.args([BECOME, &process::id().to_string(), &hard]).arg(program);
    Ok(command)
}

/// Becomes another program if the first argument says so; else it returns and has done nothing.
pub fn become_what_was_asked() {
    let mut arguments = env::args_os().skip(1);
    if arguments.next().is_none_or(|first| first != BECOME) {
        return;
    }
    let Err(why) = become_tied(arguments);
    eprintln!("{why:#}");
    process::exit(STATUS_NOT_STARTED);
}

/// Does what [`tied`] wrote down. Nothing is returned but an error.
fn become_tied(mut arguments: impl Iterator<Item = OsString>) -> Result<Infallible> {
    let mut next = || arguments.next().context("an argument is missing");
    let (parent, hard, program) = (next()?, next()?, next()?);
    let number = |text: &OsString| text.to_str().and_then(|text| text.parse().ok());
    set_parent_process_death_signal(Some(Signal::KILL))?;
    let parent = number(&parent).and_then(|number| Pid::from_raw(i32::try_from(number).ok()?));
    ensure!(parent.is_some() && getppid() == parent, "the process that asked for it has ended");
    let maximum = number(&hard);
    ensure!(maximum.is_some() || hard == UNLIMITED, "{hard:?} is no limit of open files");
    let current = Some(maximum.map_or(NOFILE_SOFT_USUAL, |hard: u64| hard.min(NOFILE_SOFT_USUAL)));
    setrlimit(Resource::Nofile, Rlimit { current, maximum }).context("RLIMIT_NOFILE")?;
    let why = Command::new(&program).args(arguments).exec();
    Err(why).with_context(|| format!("starting {}", program.display()))
}

/// Raises the soft limit of open files to the hard limit and says what it is.
pub fn raise_nofile() -> Result<u64> {
    let maximum = getrlimit(Resource::Nofile).maximum;
    setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum }).context("raising RLIMIT_NOFILE")?;
    Ok(maximum.unwrap_or(u64::MAX))
}

/// Where the server's program is: as asked, beside this program, or where cargo puts it.
pub fn find_program(asked: Option<&Path>) -> Result<PathBuf> {
    let remedy = "build it with `cargo build --release -p monolock`, or name it with --server PATH";
    if let Some(path) = asked {
        ensure!(path.is_file(), "there is no server at {}: {remedy}", path.display());
        return Ok(path.to_owned());
    }
    let beside = env::current_exe()?.with_file_name("monolock");
    let candidates = [beside, PathBuf::from("target/release/monolock")];
    match candidates.iter().find(|path| path.is_file()) {
        Some(path) => Ok(path.clone()),
        None => bail!(
            "there is no server at {} or {}: {remedy}",
            candidates[0].display(),
            candidates[1].display()
        ),
    }
}

/// A port that was free a moment ago; the server's own bind decides.
fn free_address() -> Result<SocketAddr> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).context("looking for a free port")?;
    Ok(listener.local_addr()?)
}

/// A free address for a server that is restarted on it.
pub fn fixed_address() -> Result<SocketAddr> {
    let mut ports = std::iter::repeat_with(|| fastrand::u16(FIXED_PORTS)).take(FIXED_PORTS.len());
    let free = ports.find(|&port| TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok());
    Ok((Ipv4Addr::LOCALHOST, free.context("looking for a free port")?).into())
}

/// Reads a child's diagnostics to their end, so that it never blocks on them.
fn keep_last_lines(child: &mut Child) -> Option<JoinHandle<VecDeque<String>>> {
    let stderr = child.stderr.take()?;
    Some(thread::spawn(move || {
        let mut last = VecDeque::with_capacity(LOG_LINES_MAX);
        for line in BufReader::new(stderr).lines().map_while(Result::ok) {
            if last.len() == LOG_LINES_MAX {
                last.pop_front();
            }
            last.push_back(line);
        }
        last
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_server_is_one_line_that_names_the_remedy() {
        let error = find_program(Some(Path::new("/nonexistent/monolock"))).unwrap_err().to_string();
        assert!(error.contains("/nonexistent/monolock") && error.contains("--server"), "{error}");
        assert_eq!(error.lines().count(), 1);
    }
}
