//! Network namespaces: two hosts and the clients' one on a bridge, and a second network between the hosts.

use std::fs::File;
use std::process::{Command, Stdio};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use nix::sched::{CloneFlags, setns};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

/// The address that moves.
pub const ADDRESS: &str = "10.0.0.10";

/// Where the proxy listens.
pub const PROXY: &str = "10.0.0.20";

/// A namespace of a lab.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    /// It has the bridges, and nothing else.
    Switch,
    /// A node.
    Host(usize),
    /// Where the clients are.
    Clients,
}

impl Place {
    const ALL: [Self; 4] = [Self::Switch, Self::Host(0), Self::Host(1), Self::Clients];

    fn suffix(self) -> &'static str {
        match self {
            Self::Switch => "sw",
            Self::Host(0) => "a",
            Self::Host(_) => "b",
            Self::Clients => "cl",
        }
    }
}

/// The networks of one lab. They go when it is dropped, and so does every process in them.
#[derive(Debug)]
pub struct Net {
    tag: String,
}

impl Net {
    /// Makes the networks. The tag is this run's alone.
    pub fn new(tag: &str) -> Result<Self> {
        let net = Self { tag: tag.into() };
        for place in Place::ALL {
            ip(&["netns", "add", &net.name(place)])?;
            net.ip(place, "link set lo up")?;
        }
        for bridge in ["br0", "br1"] {
            net.ip(Place::Switch, &format!("link add {bridge} type bridge stp_state 0 mcast_snooping 0"))?;
            net.ip(Place::Switch, &format!("link set {bridge} up"))?;
        }
        for (place, number) in [(Place::Host(0), 1), (Place::Host(1), 2), (Place::Clients, 3)] {
            net.wire(place, 0, number)?;
            if place != Place::Clients {
                net.wire(place, 1, number)?;
            }
        }
        net.give_clients_ports()?;
        Ok(net)
    }

    /// Hundreds of connections a second use the usual ports up within a minute, each for a minute more.
    fn give_clients_ports(&self) -> Result<()> {
        let set = "echo 1024 65535 > /proc/sys/net/ipv4/ip_local_port_range; echo 1 > /proc/sys/net/ipv4/tcp_tw_reuse";
        ip(&["netns", "exec", &self.name(Place::Clients), "/bin/sh", "-c", set])
    }

    fn wire(&self, place: Place, network: u8, number: u8) -> Result<()> {
        let (port, inside) = (self.port(place, network), self.name(place));
        let switch = |text: String| self.ip(Place::Switch, &text);
        switch(format!("link add {port} type veth peer name eth{network} netns {inside}"))?;
        switch(format!("link set {port} master br{network} up"))?;
        self.ip(place, &format!("addr add 10.{network}.0.{number}/24 dev eth{network}"))?;
        self.ip(place, &format!("link set eth{network} up"))
    }

    fn port(&self, place: Place, network: u8) -> String {
        format!("{}{network}", place.suffix())
    }

    /// The namespace's name.
    pub fn name(&self, place: Place) -> String {
        format!("{}-{}", self.tag, place.suffix())
    }

    /// `ip` in a namespace.
    pub fn ip(&self, place: Place, words: &str) -> Result<()> {
        let name = self.name(place);
        let arguments: Vec<&str> = ["-n", &name].into_iter().chain(words.split_whitespace()).collect();
        ip(&arguments)
    }

    /// Takes the carrier of a host's network away, or gives it back.
    pub fn link(&self, host: usize, network: u8, up: bool) -> Result<()> {
        let port = self.port(Place::Host(host), network);
        self.ip(Place::Switch, &format!("link set {port} {}", if up { "up" } else { "down" }))
    }

    /// Whether frames between the hosts are dropped on the way while every link stays up: by network.
    pub fn partition(&self, network: u8, on: bool) -> Result<()> {
        let (a, b) = (self.port(Place::Host(0), network), self.port(Place::Host(1), network));
        let table = format!("cut{network}");
        let rules = if on {
            format!(
                "add table bridge {table}; add chain bridge {table} f {{ type filter hook forward priority 0; }}; \
                 add rule bridge {table} f iifname {a} oifname {b} drop; \
                 add rule bridge {table} f iifname {b} oifname {a} drop"
            )
        } else {
            format!("delete table bridge {table}")
        };
        let status = Command::new("ip")
            .args(["netns", "exec", &self.name(Place::Switch), "nft", &rules])
            .status()
            .context("nft")?;
        ensure!(status.success(), "nft {rules}: {status}");
        Ok(())
    }

    /// Whether a host has the address that moves.
    pub fn has_address(&self, host: usize) -> bool {
        let output = Command::new("ip")
            .args(["-n", &self.name(Place::Host(host)), "-4", "-o", "addr", "show"])
            .stderr(Stdio::null())
            .output();
        output.is_ok_and(|output| String::from_utf8_lossy(&output.stdout).contains(&format!(" {ADDRESS}/")))
    }

    /// Moves this thread into a namespace; what it starts and opens from then on is there.
    pub fn enter(&self, place: Place) -> Result<()> {
        let path = format!("/run/netns/{}", self.name(place));
        let file = File::open(&path).with_context(|| path.clone())?;
        setns(file, CloneFlags::CLONE_NEWNET).with_context(|| format!("entering {path}"))
    }

    /// Processes in a namespace.
    fn processes(&self, place: Place) -> Vec<Pid> {
        let output = Command::new("ip").args(["netns", "pids", &self.name(place)]).output();
        let text = output.map(|output| output.stdout).unwrap_or_default();
        String::from_utf8_lossy(&text)
            .lines()
            .filter_map(|line| line.parse().ok())
            .map(Pid::from_raw)
            .collect()
    }

    /// Ends all processes of a namespace at once, as a power cut does.
    pub fn kill_all(&self, place: Place) {
        for _ in 0..100 {
            let processes = self.processes(place);
            if processes.is_empty() {
                return;
            }
            for process in processes {
                // It may have ended.
                let _ = kill(process, Signal::SIGKILL);
            }
            thread::sleep(Duration::from_millis(5));
        }
    }
}

impl Drop for Net {
    fn drop(&mut self) {
        for place in [Place::Host(0), Place::Host(1)] {
            self.kill_all(place);
        }
        for place in Place::ALL {
            let _ = Command::new("ip").args(["netns", "delete", &self.name(place)]).status();
        }
    }
}

fn ip(arguments: &[&str]) -> Result<()> {
    let output = Command::new("ip").args(arguments).output().context("ip")?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "ip {}: {}", arguments.join(" "), said.trim());
    Ok(())
}
