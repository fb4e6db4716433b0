//! The real server as a child process, and raw sockets as its clients.
//!
//! Whatever does not go as a test says panics, with the sentence that says what was expected. A tool that has
//! to go on uses [`crate::process`].

use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use protocol::{Acquire, ErrorCode, HEARTBEAT, Lease, LockName, ServerFrame, Token, decode_server_frame};
use rustix::process::{Pid, Signal, kill_process};

pub use crate::patience::{PATIENCE, wait_for};
pub use crate::program::MONOLOCK;

/// A running server; killed when dropped.
pub struct Server {
    child: Child,
    /// Where it listens for clients.
    pub address: SocketAddr,
    /// Where its ops endpoints are, if they are on.
    pub ops: Option<SocketAddr>,
    log: Arc<Mutex<Vec<String>>>,
    /// Ends when nobody can log any more.
    reader: JoinHandle<()>,
}

impl Server {
    /// Starts a server on a free loopback port, with ops endpoints on another.
    pub fn start() -> Self {
        Self::with(&[])
    }

    /// Starts a server with more flags.
    pub fn with(flags: &[&str]) -> Self {
        let mut command = Command::new(MONOLOCK);
        command.args(["-listen", "127.0.0.1:0", "-ops-listen", "127.0.0.1:0"]).args(flags);
        Self::spawn(command)
    }

    /// Starts a server from a whole command; waits until it says where it listens.
    pub fn spawn(mut command: Command) -> Self {
        command.stdout(Stdio::null());
        Self::spawn_with_stdout(command)
    }

    /// The same, with the command's own standard output.
    pub fn spawn_with_stdout(mut command: Command) -> Self {
        let mut child =
            command.stdin(Stdio::null()).stderr(Stdio::piped()).spawn().expect("the server's program starts");
        // The command may hold a pipe's end, which is the child's alone.
        drop(command);
        let stderr = BufReader::new(child.stderr.take().expect("piped above"));
        let log = Arc::new(Mutex::new(Vec::new()));
        let writer = Arc::clone(&log);
        let reader = thread::spawn(move || {
            for line in stderr.lines().map_while(Result::ok) {
                eprintln!("server: {line}");
                writer.lock().unwrap().push(line);
            }
        });
        let unset = SocketAddr::from(([0, 0, 0, 0], 0));
        let mut server = Self { child, address: unset, ops: None, log, reader };
        let line = server.log_line("listening");
        server.address =
            field(&line, "address").and_then(|a| a.parse().ok()).expect("the first line names the address");
        server.ops = field(&line, "ops").and_then(|a| a.parse().ok());
        server
    }

    /// Waits for a log line that contains `text`.
    pub fn log_line(&mut self, text: &str) -> String {
        wait_for(&format!("a log line with {text:?}"), || {
            // Looked at first: the last lines may come later than the end of the process.
            let has_all = self.reader.is_finished();
            let line = self.log().into_iter().find(|line| line.contains(text));
            if line.is_none()
                && has_all
                && let Some(status) = self.child.try_wait().expect("a child can be waited for")
            {
                panic!("the server ended with {status} before it logged {text:?}: {:#?}", self.log());
            }
            line
        })
    }

    /// All log lines so far.
    pub fn log(&self) -> Vec<String> {
        self.log.lock().unwrap().clone()
    }

    /// Its number.
    pub fn pid(&self) -> Pid {
        Pid::from_child(&self.child)
    }

    /// Sends it a signal.
    pub fn signal(&self, signal: Signal) {
        kill_process(self.pid(), signal).expect("the server is there");
    }

    /// The thread with this name.
    pub fn thread(&self, name: &str) -> nix::unistd::Pid {
        let tasks = format!("/proc/{}/task", self.pid().as_raw_nonzero());
        let task = std::fs::read_dir(tasks)
            .unwrap()
            .map(|task| task.unwrap().path())
            .find(|task| std::fs::read_to_string(task.join("comm")).is_ok_and(|comm| comm.trim() == name));
        let task = task.unwrap_or_else(|| panic!("a thread named {name}"));
        nix::unistd::Pid::from_raw(task.file_name().unwrap().to_str().unwrap().parse().unwrap())
    }

    /// Waits until the server ends by itself.
    pub fn exit(&mut self) -> ExitStatus {
        wait_for("the server to exit", || self.child.try_wait().expect("a child can be waited for"))
    }

    /// Whether the server still runs.
    pub fn is_alive(&mut self) -> bool {
        self.child.try_wait().expect("a child can be waited for").is_none()
    }

    /// A connection that has sent nothing yet.
    pub fn connect(&self) -> Peer {
        Peer::connect(self.address)
    }

    /// A connection whose ACQUIRE is sent.
    pub fn claim(&self, name: &str, lease: Duration) -> Peer {
        let mut peer = self.connect();
        peer.send(&acquire(name, lease));
        peer
    }

    /// A connection that holds `name`, with its token.
    pub fn hold(&self, name: &str, lease: Duration) -> (Peer, Token) {
        let mut peer = self.claim(name, lease);
        let token = peer.acquired();
        (peer, token)
    }

    /// A connection that waits for `name`.
    pub fn wait_in_line(&self, name: &str, lease: Duration) -> Peer {
        let mut peer = self.claim(name, lease);
        peer.waiting();
        peer
    }

    /// A GET on the ops endpoints: status and body.
    pub fn get(&self, path: &str) -> (u16, String) {
        self.request("GET", path)
    }

    /// A request to the ops endpoints: status and body.
    pub fn request(&self, method: &str, path: &str) -> (u16, String) {
        http(self.ops.expect("ops endpoints are on"), method, path)
    }

    /// The value of one series of `/metrics`, named as it stands there.
    pub fn metric(&self, series: &str) -> f64 {
        let (status, body) = self.get("/metrics");
        assert_eq!(status, 200);
        let value = body.lines().find_map(|line| line.strip_prefix(series)?.strip_prefix(' '));
        value.unwrap_or_else(|| panic!("no series {series} in\n{body}")).parse().expect("a number")
    }

    /// Waits until one series of `/metrics` has a value.
    pub fn wait_for_metric(&self, series: &str, expected: f64) {
        wait_for(&format!("{series} {expected}"), || (self.metric(series) == expected).then_some(()));
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A request: status and body.
pub fn http(address: SocketAddr, method: &str, path: &str) -> (u16, String) {
    let mut stream = TcpStream::connect(address).expect("the port is open");
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    write!(stream, "{method} {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("a whole answer");
    let (head, body) = answer.split_once("\r\n\r\n").expect("an HTTP answer");
    let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).expect("an HTTP status");
    (status, body.to_owned())
}

/// The value of `key=value` in a text log line.
pub fn field(line: &str, key: &str) -> Option<String> {
    let mut fields = line.split_whitespace();
    fields.find_map(|field| Some(field.strip_prefix(key)?.strip_prefix('=')?.trim_matches('"').to_owned()))
}

/// How a connection ended.
#[derive(Debug, PartialEq, Eq)]
pub enum Closed {
    /// In order.
    Fin,
    /// With RST.
    Reset,
}

/// A client that does what a test says and nothing else.
pub struct Peer {
    /// Its socket.
    pub stream: TcpStream,
    /// Received and not yet looked at.
    received: Vec<u8>,
}

impl Peer {
    /// Connects and sends nothing.
    pub fn connect(address: SocketAddr) -> Self {
        Self::over(TcpStream::connect(address).expect("the server accepts"))
    }

    /// Over a connection that is there.
    pub fn over(stream: TcpStream) -> Self {
        stream.set_nodelay(true).unwrap();
        Self { stream, received: Vec::new() }
    }

    /// Sends bytes as they are.
    pub fn send(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).expect("the server takes bytes");
    }

    /// Sends a heartbeat.
    pub fn heartbeat(&mut self) {
        self.send(&HEARTBEAT);
    }

    /// The next frame.
    pub fn frame(&mut self) -> ServerFrame {
        let deadline = Instant::now() + PATIENCE;
        loop {
            if let Some((frame, len)) = decode_server_frame(&self.received).expect("a frame of the protocol")
            {
                self.received.drain(..len);
                return frame;
            }
            let more = self.receive(deadline).expect("a frame comes before the end of the connection");
            assert!(more, "no frame came in time; received so far {:02x?}", self.received);
        }
    }

    /// The next frame must be WAITING.
    pub fn waiting(&mut self) {
        assert_eq!(self.frame(), ServerFrame::Waiting);
    }

    /// The next frame must be ACQUIRED.
    pub fn acquired(&mut self) -> Token {
        match self.frame() {
            ServerFrame::Acquired(token) => token,
            other => panic!("ACQUIRED expected, got {other:?}"),
        }
    }

    /// The next frame must be an ERROR with this code, and the connection then ends with FIN.
    pub fn refused(&mut self, expected: ErrorCode) {
        match self.frame() {
            ServerFrame::Error { code, .. } => assert_eq!(code, expected),
            other => panic!("ERROR {expected} expected, got {other:?}"),
        }
        assert_eq!(self.closed(), Closed::Fin);
    }

    /// The next bytes must be `frame`, `count` times.
    pub fn repeated(&mut self, frame: &[u8], count: u64) {
        let mut left = count * frame.len() as u64;
        let mut position = 0;
        while left > 0 {
            for byte in std::mem::take(&mut self.received) {
                assert!(left > 0, "more bytes than expected");
                assert_eq!(byte, frame[position], "{left} bytes before the end");
                position = (position + 1) % frame.len();
                left -= 1;
            }
            if left > 0 {
                let more = self.receive(Instant::now() + PATIENCE);
                assert_eq!(more, Ok(true), "{left} bytes are missing");
            }
        }
    }

    /// Waits for the end of the connection; no frame may come before it.
    pub fn closed(&mut self) -> Closed {
        let deadline = Instant::now() + PATIENCE;
        let closed = loop {
            match self.receive(deadline) {
                Ok(true) => {}
                Ok(false) => panic!("the connection does not end"),
                Err(closed) => break closed,
            }
        };
        assert_eq!(self.received, [0_u8; 0], "frames before the end");
        closed
    }

    /// Whether nothing comes, nor the connection ends, for a while. For "not before" conditions only.
    pub fn is_silent_for(&mut self, duration: Duration) -> bool {
        self.received.is_empty() && matches!(self.receive(Instant::now() + duration), Ok(false))
    }

    /// Receives once; false at the deadline.
    fn receive(&mut self, deadline: Instant) -> Result<bool, Closed> {
        let left = deadline.saturating_duration_since(Instant::now()).max(Duration::from_micros(1));
        self.stream.set_read_timeout(Some(left)).unwrap();
        let mut buffer = [0; 4096];
        match self.stream.read(&mut buffer) {
            Ok(0) => Err(Closed::Fin),
            Ok(len) => {
                self.received.extend_from_slice(&buffer[..len]);
                Ok(true)
            }
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => Ok(false),
            Err(error) if error.kind() == ErrorKind::ConnectionReset => Err(Closed::Reset),
            Err(error) => panic!("{error}"),
        }
    }

    /// Closes in order.
    pub fn close(self) {
        let _ = self.stream.shutdown(Shutdown::Both);
    }

    /// Closes with RST.
    pub fn reset(self) {
        socket2::SockRef::from(&self.stream).set_linger(Some(Duration::ZERO)).unwrap();
    }
}

/// The bytes of an ACQUIRE.
pub fn acquire(name: &str, lease: Duration) -> Vec<u8> {
    let name = LockName::new(name).expect("a legal name");
    let lease = Lease::from_duration(lease).expect("a legal lease");
    Acquire { name, lease }.encode().to_vec()
}

/// Runs the program to its end: status and stderr. For commands that are expected to end by themselves.
pub fn run_to_end(command: &mut Command) -> (ExitStatus, String) {
    let mut child = command.stdin(Stdio::null()).stderr(Stdio::piped()).spawn().expect("the program starts");
    let mut stderr = child.stderr.take().expect("piped above");
    let reader = thread::spawn(move || {
        let mut text = String::new();
        stderr.read_to_string(&mut text).map(|_| text)
    });
    let deadline = Instant::now() + PATIENCE;
    let status = loop {
        if let Some(status) = child.try_wait().expect("a child can be waited for") {
            break status;
        }
        if Instant::now() >= deadline {
            child.kill().unwrap();
            break ExitStatus::from_raw(9);
        }
        thread::sleep(Duration::from_millis(1));
    };
    (status, reader.join().unwrap().expect("stderr is text"))
}
