//! Two nodes on this machine.

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output};
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Duration;

use admin_api::NodeStatus;
use protocol::{ErrorCode, ServerFrame, Token};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use tempfile::TempDir;
use testkit::harness::{MONOLOCK, Peer, Server, acquire, wait_for};

pub(crate) const LEASE: Duration = Duration::from_secs(60);

/// The names of the two nodes, and their places in arrays.
pub(crate) const NAMES: [&str; 2] = ["a", "b"];
pub(crate) const A: usize = 0;
pub(crate) const B: usize = 1;

/// Two nodes that know each other: where they are, and their files.
pub(crate) struct Pair {
    dir: TempDir,
    /// Where each is asked by its peer.
    ears: [SocketAddr; 2],
    /// More flags of each.
    pub(crate) flags: [Vec<String>; 2],
    pub(crate) servers: [Option<Server>; 2],
    /// Of nodes that have one.
    agents: [Option<Child>; 2],
    /// Where each serves clients, if it has an agent: that looks whether anybody listens there.
    ports: [u16; 2],
}

impl Drop for Pair {
    fn drop(&mut self) {
        for node in [A, B] {
            self.kill_agent(node);
        }
    }
}

impl Pair {
    /// Files for two nodes; nothing runs.
    pub(crate) fn prepare() -> Self {
        let dir = TempDir::new().unwrap();
        let mut params = CertificateParams::new([]).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let authority = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
        fs::write(dir.path().join("ca.pem"), authority.pem()).unwrap();
        for name in NAMES {
            let key = KeyPair::generate().unwrap();
            let cert =
                CertificateParams::new([name.to_owned()]).unwrap().signed_by(&key, &authority).unwrap();
            fs::write(dir.path().join(format!("{name}.pem")), cert.pem()).unwrap();
            fs::write(dir.path().join(format!("{name}.key")), key.serialize_pem()).unwrap();
            fs::create_dir(dir.path().join(format!("state-{name}"))).unwrap();
        }
        // A node is started again on its port: addresses that no other test of this machine has.
        static PAIRS: AtomicU8 = AtomicU8::new(0);
        let process = std::process::id().to_le_bytes();
        let of_pair = PAIRS.fetch_add(1, Ordering::Relaxed);
        let ears = [1, 2]
            .map(|node| SocketAddr::from(([127, process[0] | 1, process[1], of_pair * 4 + node], 7171)));
        // Below those that the system chooses for others.
        let first = 10_000 + (std::process::id() * 8 + u32::from(of_pair) * 2) % 20_000;
        let ports = [first, first + 1].map(|port| u16::try_from(port).expect("below 2^16"));
        Self {
            dir,
            ears,
            flags: [Vec::new(), Vec::new()],
            servers: [None, None],
            agents: [None, None],
            ports,
        }
    }

    /// Two nodes that run, both closed.
    pub(crate) fn start() -> Self {
        let mut pair = Self::prepare();
        pair.run(A);
        pair.run(B);
        pair
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    pub(crate) fn state(&self, node: usize) -> PathBuf {
        self.path(&format!("state-{}", NAMES[node]))
    }

    /// The flags of a node.
    pub(crate) fn command(&self, node: usize) -> Command {
        let (name, peer) = (NAMES[node], NAMES[1 - node]);
        let file = |name: &str| self.path(name).display().to_string();
        let mut command = Command::new(MONOLOCK);
        command.args(["-listen", "127.0.0.1:0", "-ops-listen", "127.0.0.1:0", "-standby", "-node-id", name]);
        command.args(["-peer", &format!("{peer}={}", self.ears[1 - node])]);
        command.args(["-ha-listen", &self.ears[node].to_string(), "-ha-ca", &file("ca.pem")]);
        command.args(["-ha-cert", &file(&format!("{name}.pem")), "-ha-key", &file(&format!("{name}.key"))]);
        command.arg("-ha-state").arg(self.state(node));
        command.arg("-admin-listen").arg(format!("unix:{}", file(&format!("{name}.sock"))));
        if self.agents[node].is_some() {
            command.args(["-listen", &format!("127.0.0.1:{}", self.ports[node])]);
            command.arg("-ha-agent").arg(self.path(&format!("{name}.agent")));
        }
        command.args(&self.flags[node]);
        command
    }

    /// Starts a node's agent; before the node.
    pub(crate) fn run_agent(&mut self, node: usize) {
        let (name, peer) = (NAMES[node], NAMES[1 - node]);
        let mut command = Command::new(MONOLOCK);
        command.args(["ha-agent", "-node-id", name, "-ha-listen", &self.ears[node].to_string()]);
        command.args(["-peer", &format!("{peer}={}", self.ears[1 - node])]);
        for (flag, file) in [
            ("-ha-agent", format!("{name}.agent")),
            ("-health-file", format!("{name}.health")),
            ("-ha-cert", format!("{name}.pem")),
            ("-ha-key", format!("{name}.key")),
            ("-ha-ca", "ca.pem".into()),
        ] {
            command.arg(flag).arg(self.path(&file));
        }
        command.arg("-ha-state").arg(self.state(node));
        self.agents[node] = Some(command.spawn().unwrap());
        let socket = self.path(&format!("{name}.agent"));
        wait_for("the agent to listen", || socket.exists().then_some(()));
    }

    /// Ends a node's agent as a crash does.
    pub(crate) fn kill_agent(&mut self, node: usize) {
        if let Some(mut agent) = self.agents[node].take() {
            agent.kill().unwrap();
            agent.wait().unwrap();
        }
    }

    /// Whether keepalived would give this node the address.
    pub(crate) fn is_healthy(&self, node: usize) -> bool {
        self.path(&format!("{}.health", NAMES[node])).exists()
    }

    /// Waits until it would, or would not.
    pub(crate) fn is_healthy_soon(&self, node: usize, expected: bool) {
        wait_for(&format!("health {expected}"), || (self.is_healthy(node) == expected).then_some(()));
    }

    /// Starts a node.
    pub(crate) fn run(&mut self, node: usize) {
        self.servers[node] = Some(Server::spawn(self.command(node)));
    }

    /// Ends a node as a crash does.
    pub(crate) fn kill(&mut self, node: usize) {
        self.servers[node] = None;
    }

    pub(crate) fn server(&mut self, node: usize) -> &mut Server {
        self.servers[node].as_mut().expect("the node runs")
    }

    /// An operator's command on a node: its exit status and what it says.
    pub(crate) fn operate(&self, node: usize, words: &[&str]) -> (i32, String) {
        let socket = format!("unix:{}", self.path(&format!("{}.sock", NAMES[node])).display());
        let Output { status, stdout, stderr } =
            Command::new(MONOLOCK).args(words).args(["--admin", &socket]).output().unwrap();
        let text = [stdout, stderr].concat();
        (status.code().expect("an exit status"), String::from_utf8(text).unwrap())
    }

    /// The same for a command that has to succeed.
    pub(crate) fn done(&self, node: usize, words: &[&str]) -> String {
        let (status, text) = self.operate(node, words);
        assert_eq!(status, 0, "{words:?}: {text}");
        text
    }

    /// What the node says of itself.
    pub(crate) fn status(&self, node: usize) -> NodeStatus {
        serde_json::from_str(&self.operate(node, &["status", "--json"]).1).unwrap()
    }

    /// Waits until the node has this role.
    pub(crate) fn becomes(&self, node: usize, role: &str) {
        wait_for(&format!("{} to be {role}", NAMES[node]), || (self.status(node).role == role).then_some(()));
    }

    /// Waits until each node has heard the other.
    pub(crate) fn know_each_other(&self) {
        for node in [A, B] {
            wait_for("an answer of the peer", || self.status(node).peer.answered_ms_ago);
        }
    }

    /// A lock of an open node.
    pub(crate) fn hold(&mut self, node: usize, lock: &str) -> (Peer, Token) {
        self.server(node).hold(lock, LEASE)
    }

    /// How an ACQUIRE is answered.
    pub(crate) fn answer(&mut self, node: usize, lock: &str) -> ServerFrame {
        let mut peer = self.server(node).connect();
        peer.send(&acquire(lock, LEASE));
        peer.frame()
    }

    /// Whether the node refuses claims as a standby.
    pub(crate) fn is_closed(&mut self, node: usize) -> bool {
        matches!(self.answer(node, "probe"), ServerFrame::Error { code: ErrorCode::STANDBY, .. })
    }
}

/// A fencer: a script with this body, called as `$1 $2`, whose calls are kept in `calls`.
pub(crate) fn fencer(path: &Path, body: &str) -> String {
    use std::os::unix::fs::PermissionsExt;
    let calls = path.with_extension("calls");
    fs::write(path, format!("#!/bin/sh\necho \"$1 $2\" >> {}\n{body}\n", calls.display())).unwrap();
    fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
    format!("peer,exec:{}", path.display())
}
