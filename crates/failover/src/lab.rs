//! One lab: two nodes with their servers and keepalived, clients, and what is done to them.

use std::fs::{self, File};
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use admin_api::NodeStatus;
use anyhow::{Context, Result, bail, ensure};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use testkit::process::tied;

use crate::bare;
use crate::crowd::Crowd;
use crate::files;
use crate::history::{Issuers, Life, Seen, judge};
use crate::net::{ADDRESS, Net, PROXY, Place};
use crate::standin::StandIn;

/// The nodes' names, and their places in arrays.
pub const NAMES: [&str; 2] = ["a", "b"];

/// How long anything but a measured failover may take.
pub const PATIENCE: Duration = Duration::from_secs(20);

/// What moves the address, and what else there is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// The customer's own: curl, no gate, no second network.
    Customers,
    /// Ours.
    Ours,
    /// Ours without keepalived: a proxy follows the open node, and a person promotes.
    Proxy,
}

/// How a lab is set up.
#[derive(Debug, Clone)]
pub struct Plan {
    /// Which configuration.
    pub kind: Kind,
    /// A command that cuts the other host off and confirms.
    pub power: bool,
    /// The program under test.
    pub program: PathBuf,
    /// Whether the program has an agent.
    pub agent: bool,
}

/// A host and what runs on it.
#[derive(Default)]
struct Host {
    server: Option<Child>,
    agent: Option<Child>,
    keepalived: Option<Child>,
    standin: Option<StandIn>,
    boots: u32,
    lives: usize,
}

/// Everything of a lab; it is gone when this is dropped.
pub struct Lab {
    hosts: [Host; 2],
    /// What clients saw.
    pub crowd: Option<Crowd>,
    /// The networks.
    pub net: Arc<Net>,
    plan: Plan,
    dir: PathBuf,
    proxy: Option<Child>,
    keeps_files: bool,
}

impl Lab {
    /// Networks, files, and two nodes that run, with clients, one of them active.
    pub fn start(tag: &str, plan: Plan) -> Result<Self> {
        // Of root alone, as keepalived wants the folders of its scripts.
        let dir = PathBuf::from("/var/lib").join(tag);
        fs::create_dir_all(&dir)?;
        let net = Arc::new(Net::new(tag)?);
        let mut lab =
            Self { hosts: Default::default(), crowd: None, net, plan, dir, proxy: None, keeps_files: false };
        lab.write_files()?;
        for node in [0, 1] {
            lab.boot(node)?;
        }
        if lab.plan.kind == Kind::Proxy {
            lab.start_proxy()?;
            lab.wait("a promotion", |lab| lab.operate(0, &["promote"]).is_ok_and(|(status, _)| status == 0))?;
        }
        lab.wait("an active node", |lab| lab.active().is_some())?;
        lab.crowd = Some(Crowd::start(&lab.net, lab.address())?);
        lab.settle()?;
        Ok(lab)
    }

    /// The address as clients have it.
    pub fn address(&self) -> SocketAddr {
        let address = if self.plan.kind == Kind::Proxy { PROXY } else { ADDRESS };
        SocketAddr::new(address.parse().expect("an address"), 7070)
    }

    /// Where the program under test is.
    pub fn program(&self) -> &Path {
        &self.plan.program
    }

    fn start_proxy(&mut self) -> Result<()> {
        self.net.ip(Place::Clients, &format!("addr add {PROXY}/24 dev eth0"))?;
        let conf = self.dir.join("haproxy.cfg");
        fs::write(&conf, files::PROXY)?;
        let log = File::create(self.dir.join("haproxy.log"))?;
        let proxy = tied(Path::new("/usr/bin/env"), None)?
            .args(["ip", "netns", "exec", &self.net.name(Place::Clients), "/usr/sbin/haproxy", "-db", "-f"])
            .arg(conf)
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log)
            .spawn()?;
        self.proxy = Some(proxy);
        Ok(())
    }

    fn write_files(&self) -> Result<()> {
        let mut params = CertificateParams::new([])?;
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let authority = CertifiedIssuer::self_signed(params, KeyPair::generate()?)?;
        for (node, name) in NAMES.into_iter().enumerate() {
            let (etc, run) = (self.etc(node), self.run(node));
            for dir in [&etc, &run, &run.join("monolock"), &run.join("monolock-ha-agent"), &etc.join("state")]
            {
                fs::create_dir_all(dir)?;
            }
            let key = KeyPair::generate()?;
            let cert = CertificateParams::new([name.to_owned()])?.signed_by(&key, &authority)?;
            fs::write(etc.join("ca.pem"), authority.pem())?;
            fs::write(etc.join("cert.pem"), cert.pem())?;
            fs::write(etc.join("key.pem"), key.serialize_pem())?;
            // A path, and no copy: of a name that keepalived's scripts have.
            std::os::unix::fs::symlink(&self.plan.program, etc.join("monolock"))?;
            let conf = match self.plan.kind {
                Kind::Customers => files::CUSTOMERS,
                Kind::Ours | Kind::Proxy => files::OURS,
            };
            let at_node = |text| files::at_node(text, &run, &etc, if node == 0 { 100 } else { 90 });
            fs::write(etc.join("keepalived.conf"), at_node(conf))?;
            self.script(&etc.join("monolock-notify"), &at_node(files::NOTIFY))?;
            self.script(&etc.join("power"), &self.power_switch(1 - node))?;
        }
        Ok(())
    }

    /// What cuts the host off: all its processes end and its links go. `status` says so.
    fn power_switch(&self, other: usize) -> String {
        let (host, switch) = (self.net.name(Place::Host(other)), self.net.name(Place::Switch));
        let name = NAMES[other];
        format!(
            "#!/bin/sh\ncase $1 in\noff)\n  for n in 0 1; do ip -n {switch} link set {name}$n down; done\n  \
             while p=$(ip netns pids {host}) && [ -n \"$p\" ]; do kill -9 $p 2>/dev/null; sleep 0.01; done ;;\n\
             status) [ -z \"$(ip netns pids {host})\" ] ;;\nesac\n"
        )
    }

    fn script(&self, path: &Path, text: &str) -> Result<()> {
        fs::write(path, text)?;
        fs::set_permissions(path, fs::Permissions::from_mode(0o755))?;
        Ok(())
    }

    /// A node's folder of what is written once.
    pub fn etc(&self, node: usize) -> PathBuf {
        self.dir.join(NAMES[node])
    }

    fn run(&self, node: usize) -> PathBuf {
        self.etc(node).join("run")
    }

    fn health_file(&self, node: usize) -> PathBuf {
        self.run(node).join("monolock-ha-agent/health")
    }

    fn agent_socket(&self, node: usize) -> String {
        self.run(node).join("monolock-ha-agent/agent.sock").display().to_string()
    }

    fn admin(&self, node: usize) -> String {
        format!("unix:{}", self.run(node).join("monolock/admin.sock").display())
    }

    /// A program on a node, in its boot.
    fn spawn(&self, node: usize, what: &str, words: &[String]) -> Result<Child> {
        let boot = self.etc(node).join(format!("boot-{}", self.hosts[node].boots));
        let log =
            File::options().create(true).append(true).open(self.etc(node).join(format!("{what}.log")))?;
        tied(Path::new("/usr/bin/env"), None)?
            .args(["ip", "netns", "exec", &self.net.name(Place::Host(node)), "/bin/sh", "-c"])
            .arg("mount --bind \"$0\" /proc/sys/kernel/random/boot_id && exec \"$@\"")
            .arg(boot)
            .args(words)
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log)
            .spawn()
            .with_context(|| format!("starting {what}"))
    }

    /// Starts a host anew: another boot id, and all its programs.
    pub fn boot(&mut self, node: usize) -> Result<()> {
        self.hosts[node].boots += 1;
        let id: [u8; 16] = std::array::from_fn(|_| fastrand::u8(..));
        let hex: Vec<String> = id.iter().map(|byte| format!("{byte:02x}")).collect();
        let id =
            [&hex[..4], &hex[4..6], &hex[6..8], &hex[8..10], &hex[10..]].map(|part| part.concat()).join("-");
        fs::write(self.etc(node).join(format!("boot-{}", self.hosts[node].boots)), id + "\n")?;
        for network in [0, 1] {
            self.net.link(node, network, true)?;
        }
        self.start_agent(node)?;
        self.start_server(node)?;
        self.start_keepalived(node)
    }

    fn word(&self, node: usize, name: &str) -> String {
        self.etc(node).join(name).display().to_string()
    }

    /// Words that the server and the agent of a node have in common.
    fn pair_words(&self, node: usize) -> Vec<String> {
        let (name, peer, number) = (NAMES[node], NAMES[1 - node], 2 - node);
        let path = |name| self.word(node, name);
        let fencer = if self.plan.power { format!("peer,exec:{}", path("power")) } else { "peer".into() };
        [
            ["--node-id", name],
            ["--peer", &format!("{peer}=10.0.0.{number}:7171,10.1.0.{number}:7171")],
            ["--ha-state", &path("state")],
            ["--ha-cert", &path("cert.pem")],
            ["--ha-key", &path("key.pem")],
            ["--ha-ca", &path("ca.pem")],
            ["--ha-allow", peer],
            ["--fencer", &fencer],
            ["--listen", "0.0.0.0:7070"],
        ]
        .concat()
        .into_iter()
        .map(str::to_owned)
        .collect()
    }

    /// Starts the agent of a node.
    pub fn start_agent(&mut self, node: usize) -> Result<()> {
        if self.plan.kind == Kind::Customers {
            return Ok(());
        }
        if !self.plan.agent {
            let file = self.health_file(node);
            self.hosts[node].standin = Some(StandIn::start(&self.net, node, file));
            return Ok(());
        }
        let mut words = vec![self.word(node, "monolock"), "ha-agent".into()];
        words.extend(self.pair_words(node));
        words.extend(["--ha-agent".into(), self.agent_socket(node)]);
        words.extend(["--ha-listen".into(), "0.0.0.0:7171".into(), "--health-file".into()]);
        words.push(self.health_file(node).display().to_string());
        let agent = self.spawn(node, "agent", &words)?;
        self.hosts[node].agent = Some(agent);
        Ok(())
    }

    /// Starts the server of a node.
    pub fn start_server(&mut self, node: usize) -> Result<()> {
        let mut words = vec![self.word(node, "monolock"), "serve".into()];
        if self.plan.kind != Kind::Customers {
            words.extend(self.pair_words(node));
            words.extend(["--standby".into(), "--fence-timeout".into(), "5s".into()]);
            words.extend(if self.plan.agent {
                ["--ha-agent".into(), self.agent_socket(node)]
            } else {
                ["--ha-listen".into(), "0.0.0.0:7171".into()]
            });
        } else {
            words.extend(["--listen".into(), "0.0.0.0:7070".into()]);
        }
        let audit = self.audit(node, self.hosts[node].lives).display().to_string();
        // Of the hosts' network alone, where the proxy asks.
        words.extend(
            ["--ops-listen", "0.0.0.0:9090", "--shards", "2", "--audit-log", &audit].map(str::to_owned),
        );
        words.extend(["--admin-listen".into(), self.admin(node)]);
        let server = self.spawn(node, "server", &words)?;
        if let Some(standin) = &self.hosts[node].standin {
            standin.server.store(server.id(), std::sync::atomic::Ordering::Relaxed);
        }
        self.hosts[node].server = Some(server);
        self.hosts[node].lives += 1;
        Ok(())
    }

    /// Starts keepalived on a node.
    pub fn start_keepalived(&mut self, node: usize) -> Result<()> {
        if self.plan.kind == Kind::Proxy {
            return Ok(());
        }
        let path = |name| self.word(node, name);
        // The one before may not have been reaped yet, and then counts as running.
        for name in ["keepalived.pid", "vrrp.pid"] {
            let _ = fs::remove_file(path(name));
        }
        let mut words: Vec<String> =
            ["/usr/sbin/keepalived", "-n", "-l", "-D", "-P"].map(str::to_owned).into();
        words.extend(["-f".into(), path("keepalived.conf"), "-p".into(), path("keepalived.pid")]);
        words.extend(["-r".into(), path("vrrp.pid")]);
        let keepalived = self.spawn(node, "keepalived", &words)?;
        self.hosts[node].keepalived = Some(keepalived);
        Ok(())
    }

    fn audit(&self, node: usize, life: usize) -> PathBuf {
        self.etc(node).join(format!("audit-{life}.log"))
    }

    /// A signal for a node's server.
    pub fn signal_server(&self, node: usize, signal: Signal) -> Result<()> {
        signal_to(self.hosts[node].server.as_ref(), signal)
    }

    /// The process of a node's server.
    pub fn server_pid(&self, node: usize) -> Result<u32> {
        Ok(self.hosts[node].server.as_ref().context("no server")?.id())
    }

    /// Ends a node's server as a crash does, and waits for its end.
    pub fn kill_server(&mut self, node: usize) -> Result<()> {
        end(&mut self.hosts[node].server)
    }

    /// Ends a node's agent as a crash does.
    pub fn kill_agent(&mut self, node: usize) -> Result<()> {
        self.hosts[node].standin = None;
        end(&mut self.hosts[node].agent)
    }

    /// Has keepalived read its files anew.
    pub fn reload_keepalived(&self, node: usize) -> Result<()> {
        signal_to(self.hosts[node].keepalived.as_ref(), Signal::SIGHUP)
    }

    /// Ends both processes of a node's keepalived as a crash does. With `as_systemd` the drop-in's command
    /// runs.
    pub fn kill_keepalived(&mut self, node: usize, as_systemd: bool) -> Result<()> {
        let child = fs::read_to_string(self.word(node, "vrrp.pid"))?;
        end(&mut self.hosts[node].keepalived)?;
        // It may have ended with its parent.
        let _ = kill(Pid::from_raw(child.trim().parse()?), Signal::SIGKILL);
        if as_systemd {
            let words: Vec<&str> = files::stop_post().split_whitespace().collect();
            let host = self.net.name(Place::Host(node));
            let _ = Command::new("ip").args(["netns", "exec", &host]).args(words).status()?;
        }
        Ok(())
    }

    /// A host without power.
    pub fn power_off(&mut self, node: usize) -> Result<()> {
        for network in [0, 1] {
            self.net.link(node, network, false)?;
        }
        self.net.kill_all(Place::Host(node));
        self.reap(node)
    }

    /// After something else has cut the host off: what it had is gone.
    pub fn reap(&mut self, node: usize) -> Result<()> {
        let host = &mut self.hosts[node];
        for child in [&mut host.server, &mut host.agent, &mut host.keepalived] {
            end(child)?;
        }
        self.hosts[node].standin = None;
        let _ = fs::remove_file(self.health_file(node));
        self.remove_address(node);
        Ok(())
    }

    /// Takes the address from a host.
    pub fn remove_address(&self, node: usize) {
        // It may not be there.
        let _ = self.net.ip(Place::Host(node), &format!("addr del {ADDRESS}/24 dev eth0"));
    }

    /// An operator's command on a node: its exit status and what it says.
    pub fn operate(&self, node: usize, words: &[&str]) -> Result<(i32, String)> {
        let Output { status, stdout, stderr } =
            Command::new(&self.plan.program).args(words).args(["--admin", &self.admin(node)]).output()?;
        let text = String::from_utf8_lossy(&[stdout, stderr].concat()).into_owned();
        Ok((status.code().context("no exit status")?, text))
    }

    /// What a node says of itself.
    pub fn status(&self, node: usize) -> Option<NodeStatus> {
        let (_, text) = self.operate(node, &["status", "--json"]).ok()?;
        serde_json::from_str(&text).ok()
    }

    /// The node that serves: open, and with the address.
    pub fn active(&self) -> Option<usize> {
        (0..2).find(|&node| {
            let open = match self.plan.kind {
                Kind::Customers => self.hosts[node].server.is_some(),
                _ => self.status(node).is_some_and(|status| status.gate == "open"),
            };
            open && (self.plan.kind == Kind::Proxy || self.net.has_address(node))
        })
    }

    /// Waits for something; at most [`PATIENCE`].
    pub fn wait(&self, what: &str, condition: impl FnMut(&Self) -> bool) -> Result<Duration> {
        self.wait_within(PATIENCE, what, condition)
    }

    /// Waits for something; how long it took.
    pub fn wait_within(
        &self,
        limit: Duration,
        what: &str,
        mut condition: impl FnMut(&Self) -> bool,
    ) -> Result<Duration> {
        let begun = Instant::now();
        while !condition(self) {
            ensure!(begun.elapsed() < limit, "waited in vain for {what}");
            thread::sleep(Duration::from_millis(10));
        }
        Ok(begun.elapsed())
    }

    /// Everything that has ended is started again, and the pair is whole: one node serves, the other is
    /// ready.
    pub fn settle(&mut self) -> Result<usize> {
        for node in [0, 1] {
            for network in [0, 1] {
                self.net.link(node, network, true)?;
            }
            if self.hosts[node].standin.is_none() && has_ended(&mut self.hosts[node].agent) {
                self.start_agent(node)?;
            }
            if has_ended(&mut self.hosts[node].server) {
                self.start_server(node)?;
            }
            if has_ended(&mut self.hosts[node].keepalived) {
                self.start_keepalived(node)?;
            }
        }
        self.wait("a whole pair", Self::is_whole)?;
        self.active().context("no active node")
    }

    /// Whether one node serves, alone with the address, and the other one is ready.
    pub fn is_whole(&self) -> bool {
        let Some(active) = self.active() else { return false };
        let known = |node: usize| {
            let Some(status) = self.status(node) else { return false };
            let has_health = self.health_file(node).exists();
            let heard = status.peer.answered_ms_ago.is_some_and(|ms| ms < 2000);
            has_health && heard && (status.gate == "open") == (node == active)
        };
        let serves = self.serves();
        match self.plan.kind {
            Kind::Proxy => serves && known(0) && known(1),
            Kind::Ours => serves && known(0) && known(1) && !self.net.has_address(1 - active),
            Kind::Customers => serves && !self.net.has_address(1 - active),
        }
    }

    /// Whether keepalived sees a healthy node.
    pub fn is_healthy(&self, node: usize) -> bool {
        self.health_file(node).exists()
    }

    /// A claim of the clients' host that nobody keeps alive.
    pub fn idle_claim(&self, name: &str) -> Result<bare::Claim> {
        let (net, name, address) = (Arc::clone(&self.net), name.to_owned(), self.address());
        let thread = thread::spawn(move || {
            net.enter(Place::Clients)?;
            bare::acquire(address, &name, Duration::from_secs(60))
                .map_err(|failed| anyhow::anyhow!("a claim failed: {failed:?}"))
        });
        thread.join().map_err(|_| anyhow::anyhow!("the thread has panicked"))?
    }

    /// Whether clients were served in the last moment.
    pub fn serves(&self) -> bool {
        self.crowd.as_ref().is_none_or(|crowd| {
            crate::history::now_ns().saturating_sub(crowd.history.last_read_ns()) < 100_000_000
        })
    }

    /// What clients saw so far, and who granted what as far as it is known.
    pub fn seen_now(&self) -> Result<(Seen, Issuers)> {
        Ok((self.crowd.as_ref().context("no clients")?.history.seen(), self.issuers()?))
    }

    /// What clients saw so far, and who granted what.
    pub fn seen(&self) -> Result<(Seen, Issuers)> {
        let seen = self.crowd.as_ref().context("no clients")?.history.seen();
        // The audit log is written a moment later.
        let deadline = Instant::now() + Duration::from_secs(2);
        loop {
            let issuers = self.issuers()?;
            let unknown = seen.answers.iter().filter(|answer| !issuers.contains_key(&answer.token)).count();
            // A killed server takes the last lines with it.
            if unknown == 0 || Instant::now() > deadline {
                return Ok((seen, issuers));
            }
            thread::sleep(Duration::from_millis(50));
        }
    }

    fn issuers(&self) -> Result<Issuers> {
        let mut issuers = Issuers::new();
        for node in [0, 1] {
            for life in 0..self.hosts[node].lives {
                let text = fs::read_to_string(self.audit(node, life)).unwrap_or_default();
                for line in text.lines().filter(|line| line.contains("\"granted\"")) {
                    let line: serde_json::Value = serde_json::from_str(line)?;
                    let token = line["token"].as_u64().context("a grant without a token")?;
                    if let Some(other) = issuers.insert(token, (node, life)) {
                        bail!("token {token} was granted by {other:?} and by {:?}", (node, life));
                    }
                }
            }
        }
        Ok(issuers)
    }

    /// Everything that is wrong so far.
    pub fn judge(&self) -> Result<Vec<String>> {
        let (seen, issuers) = self.seen()?;
        Ok(judge(&seen, &issuers))
    }

    /// What let a server open the last time, from its audit log.
    pub fn fence_of(&self, (node, life): Life) -> String {
        if self.plan.kind == Kind::Customers {
            return "none: the old process has ended".into();
        }
        let text = fs::read_to_string(self.audit(node, life)).unwrap_or_default();
        let lines = text.lines().filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok());
        let (mut fence, mut of_promotion) = (None, None);
        for line in lines {
            match line["event"].as_str() {
                Some("fence") if line["result"] == "confirmed" => {
                    fence = line["by"].as_str().map(str::to_owned)
                }
                Some("promoted") if line["result"] == "open" => {
                    of_promotion = Some((line["by"].clone(), fence.take()))
                }
                _ => {}
            }
        }
        match of_promotion {
            Some((_, Some(level))) if level == "level 0" => "the peer".into(),
            Some((_, Some(level))) => format!("a command ({level})"),
            Some((by, None)) if by == "unfenced" => "none: by force".into(),
            // Without any word a node opens only where nobody else can have been promoted.
            Some((by, None)) => {
                format!(
                    "none needed: last to be open, peer without a command ({})",
                    by.as_str().unwrap_or("?")
                )
            }
            None => "unknown".into(),
        }
    }

    /// Whether a node's audit log has this.
    pub fn audited(&self, node: usize, what: &str) -> bool {
        (0..self.hosts[node].lives)
            .any(|life| fs::read_to_string(self.audit(node, life)).is_ok_and(|text| text.contains(what)))
    }

    /// How often a node's keepalived has said this.
    pub fn keepalived_said(&self, node: usize, what: &str) -> usize {
        fs::read_to_string(self.word(node, "keepalived.log")).map_or(0, |text| text.matches(what).count())
    }

    /// The logs stay when the lab goes.
    pub fn keep_files(&mut self) -> &Path {
        self.keeps_files = true;
        &self.dir
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        self.crowd = None;
        let _ = end(&mut self.proxy);
        for node in [0, 1] {
            self.net.kill_all(Place::Host(node));
            let _ = self.reap(node);
        }
        if !self.keeps_files {
            let _ = fs::remove_dir_all(&self.dir);
        }
    }
}

fn signal_to(child: Option<&Child>, signal: Signal) -> Result<()> {
    let id = child.context("it does not run")?.id();
    Ok(kill(Pid::from_raw(i32::try_from(id)?), signal)?)
}

fn end(child: &mut Option<Child>) -> Result<()> {
    if let Some(mut child) = child.take() {
        // It may have ended.
        let _ = child.kill();
        child.wait()?;
    }
    Ok(())
}

fn has_ended(child: &mut Option<Child>) -> bool {
    child.as_mut().is_none_or(|child| !matches!(child.try_wait(), Ok(None)))
}
