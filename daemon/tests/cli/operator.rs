//! A server with its admin API, the commands that look at it, and impostors in its place.

use std::io::{Read, Write};
use std::net::TcpListener;
use std::process::{Command, Stdio};
use std::thread;
use std::time::Duration;

use serde_json::Value;

use crate::harness::{MONOLOCK, Peer, Server, field};

/// A lease that no test outlasts.
pub(crate) const LEASE: Duration = Duration::from_secs(600);

/// A server, and where its admin API is.
pub(crate) struct Site {
    pub(crate) server: Server,
    pub(crate) admin: String,
}

impl Site {
    pub(crate) fn start() -> Self {
        Self::with(&["-admin-listen", "127.0.0.1:0"])
    }

    pub(crate) fn with(flags: &[&str]) -> Self {
        let mut server = Server::with(flags);
        let line = server.log_line("listening");
        let admin = field(&line, "admin").expect("the line names it");
        Self { server, admin }
    }

    /// A command that looks at this server.
    pub(crate) fn command(&self, arguments: &[&str]) -> Command {
        let mut command = monolock(arguments);
        command.args(["--admin", &self.admin]);
        command
    }

    /// Runs a command that succeeds: what it writes.
    pub(crate) fn says(&self, arguments: &[&str]) -> String {
        ended(&mut self.command(arguments)).ok()
    }

    /// Runs a command with --json that succeeds: the value of each line.
    pub(crate) fn json(&self, arguments: &[&str]) -> Vec<Value> {
        let text = self.says(&[arguments, &["--json"]].concat());
        text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect()
    }
}

/// The program, in an environment without settings of its own.
pub(crate) fn monolock(arguments: &[&str]) -> Command {
    let mut command = Command::new(MONOLOCK);
    command.args(arguments).env_remove("MONOLOCK_ADMIN_LISTEN_ADDRESS").stdin(Stdio::null());
    command
}

/// How a command ended.
#[derive(Debug)]
pub(crate) struct Ended {
    pub(crate) status: i32,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

pub(crate) fn ended(command: &mut Command) -> Ended {
    let output = command.output().expect("the program starts");
    let [stdout, stderr] = [output.stdout, output.stderr].map(|text| String::from_utf8(text).expect("text"));
    Ended { status: output.status.code().expect("no signal ended it"), stdout, stderr }
}

impl Ended {
    /// What was written by a command that succeeded.
    pub(crate) fn ok(self) -> String {
        assert_eq!((self.status, self.stderr.as_str()), (0, ""), "{self:?}");
        self.stdout
    }

    /// The one line of a command that ended with this status and wrote nothing else.
    pub(crate) fn problem(self, status: i32) -> String {
        assert_eq!((self.status, self.stdout.as_str()), (status, ""), "{self:?}");
        let line = self.stderr.strip_prefix("monolock: ").and_then(|rest| rest.strip_suffix('\n'));
        let line = line.unwrap_or_else(|| panic!("{self:?}")).to_owned();
        assert!(!line.contains(char::is_control), "{line:?}");
        line
    }
}

/// The address under which the server knows a client.
pub(crate) fn address(peer: &Peer) -> String {
    peer.stream.local_addr().unwrap().to_string()
}

/// The words of each line.
pub(crate) fn cells(text: &str) -> Vec<Vec<&str>> {
    text.lines().map(|line| line.split_whitespace().collect()).collect()
}

/// Listens in an API's place, and answers each request's first line with these bytes; gives its address.
pub(crate) fn impostor(answer: impl Fn(&str) -> Vec<u8> + Send + 'static) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let mut request = Vec::new();
            while !request.ends_with(b"\r\n\r\n") {
                let mut byte = [0];
                stream.read_exact(&mut byte).expect("a whole request");
                request.extend(byte);
            }
            let request = String::from_utf8(request).unwrap();
            // The command may have seen enough.
            let _ = stream.write_all(&answer(request.lines().next().unwrap()));
        }
    });
    address
}

/// An answer of HTTP's.
pub(crate) fn http(status: &str, body: &str) -> Vec<u8> {
    format!("HTTP/1.1 {status}\r\nContent-Length: {}\r\n\r\n{body}", body.len()).into()
}
