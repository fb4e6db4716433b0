//! A node: a folder with certificates and state, its agent, its server; and the peer that asks it.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::net::TcpListener;
use std::path::PathBuf;
use std::process::{Child, ChildStdin, ChildStdout, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use agent::{Hello, STATE_FILE, STATE_KIND};
use durable::Record;
use ha::ceiling::Ceiling;
use ha::identity::{BootId, HostId, Incarnation};
use ha::message::{Answer, Ask, Request, VERSION};
use ha::stored::Stored;
use ha::term::Term;
use peer::{Allowed, Credentials, NoAnswer, Peer};
use rcgen::{CertificateParams, CertifiedIssuer, DnType, KeyPair};
use rustix::process::{Pid, Signal, kill_process};
use rustix::time::{ClockId, clock_gettime};
use tempfile::TempDir;
use testkit::patience::wait_for;
use tls::Mutual;

use crate::roles::{AgentRole, Answers, ROLE, Role, ServerRole};

/// As long as the peer waits for an answer.
pub(crate) const ANSWER_MAX: Duration = Duration::from_secs(1);

/// Whose requests the node takes.
pub(crate) const HOST: HostId = HostId(0xa);
pub(crate) const PEER_HOST: HostId = HostId(0xb);

/// Above this the node has issued no token.
pub(crate) const CEILING: Ceiling = Ceiling(4_711 << 20);

/// A node without processes.
pub(crate) struct Node {
    folder: TempDir,
    authority: Authority,
    /// Of the agent.
    listen: String,
    /// Of the server.
    pub(crate) port: u16,
}

impl Node {
    /// A node whose server has run once.
    pub(crate) fn new() -> Self {
        let authority = Authority::new();
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("state")).unwrap();
        let listen = format!("127.0.0.1:{}", free_port());
        let node = Self { folder, authority, listen, port: free_port() };
        node.certify(&node.authority);
        node.store(&Stored::new(HOST, boot_id(), CEILING, 1));
        node
    }

    /// The agent's certificate, and who it trusts.
    pub(crate) fn certify(&self, by: &Authority) {
        by.issue(&self.file(""), "a");
    }

    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn record(&self) -> Record<Stored> {
        Record::new(self.file("state").join(STATE_FILE), STATE_KIND)
    }

    pub(crate) fn store(&self, stored: &Stored) {
        self.record().write(stored).unwrap();
    }

    pub(crate) fn stored(&self) -> Stored {
        self.record().read().unwrap().unwrap()
    }

    pub(crate) fn agent(&self) -> Process {
        let role = AgentRole { folder: self.file(""), listen: self.listen.clone(), port: self.port };
        let agent = Process::start(&Role::Agent(role));
        agent.log_line("watching");
        agent
    }

    pub(crate) fn hello(&self) -> Hello {
        Hello {
            node: "a".parse().unwrap(),
            host: HOST,
            incarnation: Incarnation { boot: boot_id(), started_ns: boot_ns() },
            fencers: "peer".parse().unwrap(),
            ports: vec![self.port],
        }
    }

    pub(crate) fn server_role(&self, answers: Answers) -> ServerRole {
        ServerRole { folder: self.file(""), hello: self.hello(), serves: true, answers }
    }

    /// A server that closes when it is asked to.
    pub(crate) fn server(&self) -> Process {
        self.server_that(Answers::Closed)
    }

    pub(crate) fn server_that(&self, answers: Answers) -> Process {
        let server = Process::start(&Role::Server(self.server_role(answers)));
        server.expect("started");
        server
    }

    /// An agent, and a server that is connected and ready.
    pub(crate) fn healthy(&self, answers: Answers) -> (Process, Process) {
        let agent = self.agent();
        let server = self.server_that(answers);
        self.wait_healthy();
        (agent, server)
    }

    pub(crate) fn is_healthy(&self) -> bool {
        fs::read_to_string(self.file("health")).is_ok_and(|text| text == "1\n")
    }

    pub(crate) fn wait_healthy(&self) {
        wait_for("the health file", || self.is_healthy().then_some(()));
    }

    /// How long it takes until the health file is gone.
    pub(crate) fn wait_unhealthy(&self) -> Duration {
        let started = Instant::now();
        wait_for("the end of the health file", || (!self.file("health").exists()).then_some(()));
        started.elapsed()
    }

    /// Another node of the same authority, which asks this one.
    pub(crate) fn peer(&self) -> Peer {
        self.peer_of(&self.authority)
    }

    pub(crate) fn peer_of(&self, authority: &Authority) -> Peer {
        let folder = tempfile::tempdir().unwrap();
        let credentials = authority.issue(folder.path(), "b");
        let allowed = Allowed::from_iter(["a".to_owned()]);
        Peer::new(vec![self.listen.parse().unwrap()], credentials, allowed)
    }

    /// Asks as the peer does.
    pub(crate) fn ask(&self, ask: Ask) -> Result<Answer, NoAnswer> {
        self.request(&request(ask))
    }

    pub(crate) fn request(&self, request: &Request) -> Result<Answer, NoAnswer> {
        let runtime = threads::runtime::current_thread().unwrap();
        runtime.block_on(self.peer().ask(request, ANSWER_MAX, |_: &Answer| Ok(())))
    }

    /// Asks again and again, as long as whatever stands in the way takes to pass.
    pub(crate) fn ask_until_answered(&self, ask: &Ask) -> Answer {
        wait_for("an answer", || self.ask(ask.clone()).ok())
    }
}

pub(crate) fn term(counter: u64) -> Term {
    Term { counter, node: "b".parse().unwrap() }
}

pub(crate) fn close(counter: u64) -> Ask {
    Ask::Close { term: term(counter), weak: false, ceiling: Ceiling(1) }
}

pub(crate) fn close_weakly(counter: u64) -> Ask {
    Ask::Close { term: term(counter), weak: true, ceiling: Ceiling(1) }
}

/// A request of the peer.
pub(crate) fn request(ask: Ask) -> Request {
    Request { version: VERSION, from: "b".parse().unwrap(), host: PEER_HOST, to: "a".parse().unwrap(), ask }
}

pub(crate) fn boot_id() -> BootId {
    fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap().parse().unwrap()
}

/// CLOCK_BOOTTIME, ns.
pub(crate) fn boot_ns() -> u64 {
    let now = clock_gettime(ClockId::Boottime);
    u64::try_from(now.tv_sec * 1_000_000_000 + now.tv_nsec).unwrap()
}

fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

/// Vouches for both nodes.
pub(crate) struct Authority(CertifiedIssuer<'static, KeyPair>);

impl Authority {
    pub(crate) fn new() -> Self {
        let mut params = CertificateParams::new([]).unwrap();
        params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
        params.distinguished_name.push(DnType::CommonName, "authority");
        Self(CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap())
    }

    fn issue(&self, folder: &std::path::Path, name: &str) -> Credentials {
        let key = KeyPair::generate().unwrap();
        let cert = CertificateParams::new([name.to_owned()]).unwrap().signed_by(&key, &self.0).unwrap();
        let file = |suffix: &str, text: String| {
            let path = folder.join(format!("{name}{suffix}"));
            fs::write(&path, text).unwrap();
            path
        };
        let (cert, key) = (file(".pem", cert.pem()), file(".key", key.serialize_pem()));
        let authorities = file(".ca", self.0.pem());
        Credentials::new(Mutual::load(&cert, &key, &authorities).unwrap())
    }
}

/// A started process; killed when dropped.
pub(crate) struct Process {
    child: Child,
    stdin: Mutex<ChildStdin>,
    stdout: Mutex<BufReader<ChildStdout>>,
    log: Arc<Mutex<Vec<String>>>,
}

impl Process {
    pub(crate) fn start(role: &Role) -> Self {
        Self::spawn(Command::new(std::env::current_exe().unwrap()), role)
    }

    pub(crate) fn spawn(mut command: Command, role: &Role) -> Self {
        let mut child = command
            .args(["roles::role", "--exact", "--ignored", "--nocapture", "--quiet"])
            .env(ROLE, serde_json::to_string(role).unwrap())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let log = Arc::<Mutex<Vec<String>>>::default();
        let (stderr, to) = (BufReader::new(child.stderr.take().unwrap()), Arc::clone(&log));
        std::thread::spawn(move || {
            for line in stderr.lines().map_while(Result::ok) {
                eprintln!("{line}");
                to.lock().unwrap().push(line);
            }
        });
        let stdin = Mutex::new(child.stdin.take().unwrap());
        let stdout = Mutex::new(BufReader::new(child.stdout.take().unwrap()));
        Self { child, stdin, stdout, log }
    }

    pub(crate) fn id(&self) -> i32 {
        self.child.id().try_into().unwrap()
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    /// Kills it and waits until its number is free.
    pub(crate) fn kill(&mut self) {
        self.signal(Signal::KILL);
        self.child.wait().unwrap();
    }

    pub(crate) fn is_alive(&mut self) -> bool {
        self.child.try_wait().unwrap().is_none()
    }

    pub(crate) fn exit(&mut self) -> ExitStatus {
        wait_for("its end", || self.child.try_wait().unwrap())
    }

    pub(crate) fn order(&self, order: &str) {
        writeln!(self.stdin.lock().unwrap(), "{order}").unwrap();
    }

    /// Waits for a line of its output that ends like this: the test harness of the child writes there too.
    pub(crate) fn expect(&self, end: &str) {
        let mut stdout = self.stdout.lock().unwrap();
        loop {
            let mut line = String::new();
            assert_ne!(
                stdout.read_line(&mut line).unwrap(),
                0,
                "it ended before it said {end:?}: {:#?}",
                self.log()
            );
            if line.trim().ends_with(end) {
                return;
            }
        }
    }

    /// What it says to an order.
    pub(crate) fn said_to(&self, order: &str) -> String {
        self.order(order);
        crate::roles::first_line(&mut *self.stdout.lock().unwrap())
    }

    pub(crate) fn log(&self) -> Vec<String> {
        self.log.lock().unwrap().clone()
    }

    pub(crate) fn log_line(&self, text: &str) -> String {
        wait_for(&format!("a log line with {text:?}"), || {
            self.log().into_iter().find(|line| line.contains(text))
        })
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
