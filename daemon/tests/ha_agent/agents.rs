//! `monolock ha-agent` as a child process; this test's own process is its server and its peer.

use std::fs;
use std::io::{BufRead, BufReader};
use std::net::TcpListener;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use agent::{Hello, Link, STATE_FILE, STATE_KIND, Standing};
use durable::Record;
use ha::ceiling::Ceiling;
use ha::identity::{HostId, Incarnation};
use ha::message::{Answer, Ask, Request, VERSION, Verdict};
use ha::stored::Stored;
use peer::{Allowed, Credentials, Peer};
use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;
use testkit::certificates::{Certificates, Says};
use testkit::harness::wait_for;
use tls::Mutual;

/// A folder with certificates and a state directory.
pub(crate) struct Node {
    folder: TempDir,
    certificates: Certificates,
    listen: String,
    port: u16,
}

/// A running agent; killed when dropped.
pub(crate) struct Agent {
    child: Child,
    log: Arc<Mutex<Vec<String>>>,
}

impl Node {
    pub(crate) fn new() -> Self {
        let certificates = Certificates::new();
        for name in ["a", "b"] {
            let extensions = format!("subjectAltName=DNS:{name}");
            certificates.issue(name, Says { extensions: &extensions, ..Says::default() });
        }
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("state")).unwrap();
        let boot = boot();
        let record = Record::new(folder.path().join("state").join(STATE_FILE), STATE_KIND);
        record.write(&Stored::new(HostId(1), boot, Ceiling(1), 1)).unwrap();
        let free = || TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        Self { folder, certificates, listen: format!("127.0.0.1:{}", free()), port: free() }
    }

    /// The settings of an agent, as variables.
    pub(crate) fn variables(&self) -> Vec<(&'static str, String)> {
        let certificate = |file: &str| self.certificates.path(file).display().to_string();
        vec![
            ("MONOLOCK_NODE_ID", "a".into()),
            ("MONOLOCK_PEER", "b=127.0.0.1:1".into()),
            ("MONOLOCK_HA_STATE", self.folder.path().join("state").display().to_string()),
            ("MONOLOCK_HA_LISTEN_ADDRESS", self.listen.clone()),
            ("MONOLOCK_HA_CERT", certificate("a.pem")),
            ("MONOLOCK_HA_KEY", certificate("a.key")),
            ("MONOLOCK_HA_CA", certificate("ca.pem")),
            ("MONOLOCK_HA_ALLOW", "b".into()),
            ("MONOLOCK_LISTEN_ADDRESS", format!("127.0.0.1:{}", self.port)),
            ("RUNTIME_DIRECTORY", self.folder.path().display().to_string()),
        ]
    }

    /// An agent by this command, once it says that it watches.
    pub(crate) fn agent(&self, mut command: Command) -> Agent {
        command.envs(self.variables()).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let log = Arc::<Mutex<Vec<String>>>::default();
        let (stderr, to) = (BufReader::new(child.stderr.take().unwrap()), Arc::clone(&log));
        std::thread::spawn(move || {
            for line in stderr.lines().map_while(Result::ok) {
                eprintln!("agent: {line}");
                to.lock().unwrap().push(line);
            }
        });
        let agent = Agent { child, log };
        agent.log_line("watching");
        agent
    }

    fn ask(&self, ask: Ask) -> Option<Answer> {
        let [cert, key, ca] = ["b.pem", "b.key", "ca.pem"].map(|file| self.certificates.path(file));
        let credentials = Credentials::new(Mutual::load(&cert, &key, &ca).unwrap());
        let allowed = Allowed::from_iter(["a".to_owned()]);
        let peer = Peer::new(vec![self.listen.parse().unwrap()], credentials, allowed);
        let (from, to) = ("b".parse().unwrap(), "a".parse().unwrap());
        let request = Request { version: VERSION, from, host: HostId(2), to, ask };
        let runtime = threads::runtime::current_thread().unwrap();
        runtime.block_on(peer.ask(&request, Duration::from_secs(1), |_: &Answer| Ok(()))).ok()
    }

    /// What an agent does in its life, but for killing: its server would be this process.
    pub(crate) fn connects_asks_and_ends(&self, agent: &mut Agent) {
        let term = "5.b".parse().unwrap();
        let close = Ask::Close { term, weak: true, ceiling: Ceiling(1) };
        let answer = self.ask(close).expect("no server is there");
        assert!(matches!(answer.said.verdict, Verdict::GoneFor(_)), "{answer:?}");

        let health = self.folder.path().join("health");
        let runtime = threads::runtime::current_thread().unwrap();
        let hello = Hello {
            node: "a".parse().unwrap(),
            host: HostId(1),
            incarnation: Incarnation { boot: boot(), started_ns: 1 },
            fencers: "peer".parse().unwrap(),
            ports: vec![self.port],
        };
        runtime.block_on(async {
            let (link, _questions) = Link::start(&self.folder.path().join("agent.sock"), hello);
            link.set_ready(true);
            until(|| matches!(link.standing(), Standing::Connected { .. }) && health.exists()).await;
            agent.signal(Signal::HUP);
            until(|| agent.has_said("certificates are read again")).await;
            agent.signal(Signal::TERM);
            until(|| !health.exists()).await;
        });
        assert!(agent.exit().success());
    }
}

async fn until(condition: impl Fn() -> bool) {
    let waiting = async {
        while !condition() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    tokio::time::timeout(testkit::harness::PATIENCE, waiting).await.expect("it comes so in time");
}

fn boot() -> ha::identity::BootId {
    fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap().parse().unwrap()
}

impl Agent {
    pub(crate) fn has_said(&self, text: &str) -> bool {
        self.log.lock().unwrap().iter().any(|line| line.contains(text))
    }

    pub(crate) fn log_line(&self, text: &str) {
        wait_for(&format!("a log line with {text:?}"), || self.has_said(text).then_some(()));
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    pub(crate) fn exit(&mut self) -> ExitStatus {
        wait_for("its end", || self.child.try_wait().unwrap())
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
