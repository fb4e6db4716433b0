//! `monolock run` as a child process, and what its command reports.
//!
//! Commands report through a FIFO that only they hold open: its end tells when the last of them died. They
//! live on standard input, a pipe from the test: no command outlives a test that failed.

use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::net::SocketAddr;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, TryRecvError, channel};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

use crate::harness::{MONOLOCK, PATIENCE, Server, wait_for};

/// A lease that no test outlasts: what moves the lock is not its expiry.
pub(crate) const LONG: &str = "600s";

/// The same, for a raw client.
pub(crate) const LONG_LEASE: Duration = Duration::from_secs(600);

/// How soon something must happen that happens at once.
pub(crate) const AT_ONCE: Duration = Duration::from_millis(200);

/// Attempts at a timing that a busy machine may spoil: the fastest counts.
pub(crate) const ATTEMPTS: usize = 3;

/// For env(1): who runs the tests in the background may have signals ignored, and they would stay so.
pub(crate) const DEFAULT_SIGNALS: &str = "--default-signal=HUP,INT,QUIT,TERM,USR1,USR2,ALRM";

/// `monolock run` with this after it, in an environment without settings of its own.
pub(crate) fn monolock_run(arguments: &[&str]) -> Command {
    // Without the terminal that somebody may run the tests at.
    let mut command = Command::new("setsid");
    command.args(["env", DEFAULT_SIGNALS, &MONOLOCK, "run"]);
    command.args(arguments);
    for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("MONOLOCK_")) {
        command.env_remove(name);
    }
    command
}

/// `monolock run` of `command` for `name` on a server.
pub(crate) fn locked(address: SocketAddr, lease: &str, name: &str, command: &[&str]) -> Command {
    let address = address.to_string();
    monolock_run(&[&["--address", &address, "--lease", lease, name, "--"], command].concat())
}

/// A running `monolock run`; killed when dropped, and its command then reads the end of its input.
pub(crate) struct Run {
    child: Child,
    stdin: Option<ChildStdin>,
    stdout: Receiver<Vec<u8>>,
    /// None where the test itself has the other end.
    stderr: Option<Receiver<Vec<u8>>>,
    report: Receiver<Said>,
    /// Where the FIFO is.
    directory: TempDir,
}

/// What a command reported, and when it came.
#[derive(Debug)]
pub(crate) enum Said {
    Line(String, Instant),
    /// Nobody is left who could report.
    End(Instant),
}

/// How a `monolock run` ended.
#[derive(Debug)]
pub(crate) struct Ended {
    pub(crate) code: Option<i32>,
    pub(crate) stdout: Vec<u8>,
    pub(crate) stderr: String,
}

impl Run {
    /// Runs a shell script under the lock; what the script prints is its report.
    pub(crate) fn script(server: &Server, lease: &str, name: &str, script: &str) -> Self {
        Self::start(locked(server.address, lease, name, &["sh", "-c", &reporting(script)]))
    }

    /// Runs a script that reports its process id and ends when told so.
    pub(crate) fn holding(server: &Server, lease: &str, name: &str) -> Self {
        let mut run = Self::script(server, lease, name, "echo $$; read -r _; exit 0");
        run.line();
        run
    }

    /// Starts a whole command; `$REPORT` is where its own commands report.
    pub(crate) fn start(command: Command) -> Self {
        Self::start_with_stderr(command, Stdio::piped())
    }

    /// The same with a standard error of the test's own.
    pub(crate) fn start_with_stderr(mut command: Command, stderr: impl Into<Stdio>) -> Self {
        let directory = tempfile::tempdir().expect("a directory for the FIFO");
        let fifo = directory.path().join("report");
        let made = Command::new("mkfifo").arg(&fifo).status().expect("mkfifo is there");
        assert!(made.success());
        let (report_sender, report) = channel();
        let reported = fifo.clone();
        // Opening waits for the first to report: for ever where the command never runs.
        thread::spawn(move || {
            let lines = BufReader::new(File::open(reported)?).lines();
            for line in lines {
                let _ = report_sender.send(Said::Line(line?, Instant::now()));
            }
            let _ = report_sender.send(Said::End(Instant::now()));
            Ok::<(), std::io::Error>(())
        });
        let mut child = command
            .env("REPORT", &fifo)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(stderr)
            .spawn()
            .expect("the program starts");
        // It keeps our end of the streams that it gave the child.
        drop(command);
        let stdin = child.stdin.take();
        let stdout = whole(child.stdout.take().expect("piped above"));
        let stderr = child.stderr.take().map(whole);
        Self { child, stdin, stdout, stderr, report, directory }
    }

    /// The next line of the report.
    pub(crate) fn line(&mut self) -> String {
        self.line_at().0
    }

    /// The next line of the report, and when it came.
    pub(crate) fn line_at(&mut self) -> (String, Instant) {
        match self.report.recv_timeout(PATIENCE) {
            Ok(Said::Line(line, at)) => (line, at),
            other => {
                let stderr = self.stderr.as_ref().map(|stderr| stderr.try_recv().map(text));
                panic!("no line in the report: {other:?}; {stderr:?}")
            }
        }
    }

    /// Waits until nobody is left who could report; no line may come before.
    pub(crate) fn report_end(&mut self) -> Instant {
        match self.report.recv_timeout(PATIENCE) {
            Ok(Said::End(at)) => at,
            other => panic!("the report does not end: {other:?}"),
        }
    }

    /// Waits until nobody is left who could report, whatever comes before.
    pub(crate) fn report_end_after_all(&mut self) -> Instant {
        loop {
            match self.report.recv_timeout(PATIENCE) {
                Ok(Said::Line(..)) => {}
                Ok(Said::End(at)) => return at,
                Err(error) => panic!("the report does not end: {error}"),
            }
        }
    }

    /// Whether no command has reported so far, nor ended.
    pub(crate) fn has_not_reported(&self) -> bool {
        matches!(self.report.try_recv(), Err(TryRecvError::Empty))
    }

    /// Whether nothing is reported for a while. For "not before" conditions only.
    pub(crate) fn is_silent_for(&self, duration: Duration) -> bool {
        matches!(self.report.recv_timeout(duration), Err(RecvTimeoutError::Timeout))
    }

    /// The command's standard input.
    pub(crate) fn stdin(&mut self) -> &mut ChildStdin {
        self.stdin.as_mut().expect("open until the end is told")
    }

    /// Ends the command's standard input, and with it the command.
    pub(crate) fn end_input(&mut self) {
        self.stdin = None;
    }

    pub(crate) fn pid(&self) -> Pid {
        Pid::from_child(&self.child)
    }

    /// Sends a signal to `monolock run` alone.
    pub(crate) fn signal(&self, signal: Signal) {
        kill_process(self.pid(), signal).expect("monolock run is there");
    }

    /// The guardian of the running command.
    pub(crate) fn guardian(&self) -> Pid {
        let parent = self.pid().as_raw_pid();
        let children = format!("/proc/{parent}/task/{parent}/children");
        wait_for("a guardian", || {
            let children = std::fs::read_to_string(&children).ok()?;
            let mut children = children.split_ascii_whitespace();
            let guardian = children.find(|pid| {
                let name = std::fs::read_to_string(format!("/proc/{pid}/comm"));
                name.is_ok_and(|name| name.trim() == "monolock-guard")
            })?;
            Pid::from_raw(guardian.parse().ok()?)
        })
    }

    /// Waits until nobody lives who was started by it, itself included.
    pub(crate) fn nothing_is_left(&self) {
        wait_for("the end of all processes", || self.descendants().is_empty().then_some(()));
    }

    /// Everybody alive who has this run's FIFO in the environment.
    pub(crate) fn descendants(&self) -> Vec<Pid> {
        let mark = format!("REPORT={}", self.directory.path().join("report").display());
        let processes = std::fs::read_dir("/proc").unwrap().filter_map(Result::ok);
        let ours = processes.filter(|process| {
            // That of a zombie is empty.
            let environment = std::fs::read(process.path().join("environ")).unwrap_or_default();
            environment.split(|&byte| byte == 0).any(|variable| variable == mark.as_bytes())
        });
        ours.filter_map(|process| Pid::from_raw(process.file_name().to_str()?.parse().ok()?)).collect()
    }

    /// Waits until `monolock run` ends by itself, whoever holds its output.
    pub(crate) fn child_end(&mut self) -> Option<i32> {
        wait_for("monolock run to end", || self.child.try_wait().expect("a child can be waited for")).code()
    }

    /// Waits until `monolock run` ends by itself and nobody holds its output.
    pub(crate) fn ended(&mut self) -> Ended {
        let status =
            wait_for("monolock run to end", || self.child.try_wait().expect("a child can be waited for"));
        let stdout = self.stdout.recv_timeout(PATIENCE).expect("standard output ends");
        let whole = |stream: &Receiver<_>| stream.recv_timeout(PATIENCE).expect("standard error ends");
        let stderr = text(self.stderr.as_ref().map(whole).unwrap_or_default());
        Ended { code: status.code(), stdout, stderr }
    }
}

impl Drop for Run {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Runs to the end, with nothing to read.
pub(crate) fn run_to_end(command: Command) -> Ended {
    let mut run = Run::start(command);
    run.end_input();
    run.ended()
}

/// A script whose output is the report.
pub(crate) fn reporting(script: &str) -> String {
    format!("exec >\"$REPORT\"; {script}")
}

/// The one line that `monolock run` said of itself.
pub(crate) fn only_line(ended: &Ended) -> &str {
    let line = ended.stderr.strip_suffix('\n').expect("a whole line on standard error");
    assert!(!line.contains(char::is_control), "more than one line, or worse: {line:?}");
    assert!(line.starts_with("monolock"), "{line:?}");
    assert_eq!(ended.stdout, b"", "standard output is the command's");
    line
}

/// Waits until every thread of a process is stopped.
pub(crate) fn wait_until_stopped(pid: Pid) {
    let tasks = format!("/proc/{}/task", pid.as_raw_pid());
    wait_for("a stopped process", || {
        let mut stats =
            std::fs::read_dir(&tasks).ok()?.map(|task| std::fs::read_to_string(task?.path().join("stat")));
        stats.all(|stat| stat.is_ok_and(|stat| state(&stat) == Some('T'))).then_some(())
    });
}

fn state(stat: &str) -> Option<char> {
    stat.rsplit_once(") ")?.1.chars().next()
}

fn whole(mut stream: impl Read + Send + 'static) -> Receiver<Vec<u8>> {
    let (sender, receiver) = channel();
    thread::spawn(move || {
        let mut bytes = Vec::new();
        if stream.read_to_end(&mut bytes).is_ok() {
            let _ = sender.send(bytes);
        }
    });
    receiver
}

fn text(bytes: Vec<u8>) -> String {
    String::from_utf8(bytes).expect("standard error is text")
}
