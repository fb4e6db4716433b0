//! Addresses to listen on, as Go writes them.

use std::fmt;
use std::io;
use std::net::{IpAddr, Ipv6Addr, SocketAddr, ToSocketAddrs};
use std::str::FromStr;

use tokio::sync::oneshot;

/// `host:port`: `:9090`, `localhost:7070`, `[::1]:7070`. An empty host and both wildcards stand for every
/// address of the machine, IPv4 and IPv6.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListenAddress {
    host: Host,
    port: u16,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Host {
    Wildcard,
    Ip(IpAddr),
    /// Resolved when the port is opened. IPv6 addresses with a zone too.
    Name(String),
}

impl ListenAddress {
    /// The socket addresses that it stands for, each once.
    ///
    /// # Errors
    ///
    /// When the name is unknown or cannot be looked up.
    pub async fn resolve(&self) -> io::Result<Vec<SocketAddr>> {
        let port = self.port;
        match &self.host {
            Host::Wildcard => Ok(vec![(Ipv6Addr::UNSPECIFIED, port).into()]),
            Host::Ip(ip) => Ok(vec![(*ip, port).into()]),
            Host::Name(name) => {
                let mut addresses: Vec<SocketAddr> = Vec::new();
                for address in look_up(name.clone(), port).await? {
                    if !addresses.contains(&address) {
                        addresses.push(address);
                    }
                }
                Ok(addresses)
            }
        }
    }

    /// Its port; 0 for one that the system chooses.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// The address under which this machine reaches a server that listens here.
    pub fn to_dial(&self) -> Self {
        match self.host {
            Host::Wildcard => Self { host: Host::Name("localhost".into()), port: self.port },
            Host::Ip(_) | Host::Name(_) => self.clone(),
        }
    }
}

/// Looks a name up, on a thread of its own. Where there are no more threads the caller waits: that is better
/// than no answer.
async fn look_up(name: String, port: u16) -> io::Result<Vec<SocketAddr>> {
    let look_up = move |name: &str| Ok((name, port).to_socket_addrs()?.collect());
    let (found, is_found) = oneshot::channel();
    let on_a_thread = {
        let name = name.clone();
        // Whoever asked may have given up.
        threads::start("lookup", move || drop(found.send(look_up(&name))))
    };
    match on_a_thread {
        Ok(_) => is_found.await.unwrap_or_else(|_| Err(io::Error::other("the look-up failed"))),
        Err(_) => look_up(&name),
    }
}

impl FromStr for ListenAddress {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (host, port) = split(text)?;
        let port = parse_port(port).ok_or_else(|| format!("{port:?} is not a port: 0 to 65535"))?;
        let host = match host.parse::<IpAddr>() {
            _ if host.is_empty() => Host::Wildcard,
            Ok(ip) if ip.is_unspecified() => Host::Wildcard,
            Ok(ip) => Host::Ip(ip),
            Err(_) if host.contains(|c: char| c.is_whitespace() || c.is_control() || c == '/') => {
                return Err(format!("{host:?} is not a host"));
            }
            Err(_) => Host::Name(host.to_owned()),
        };
        Ok(Self { host, port })
    }
}

fn parse_port(text: &str) -> Option<u16> {
    // The standard parser takes a sign.
    if text.starts_with('+') { None } else { text.parse().ok() }
}

/// Host and port; the host without its brackets.
fn split(text: &str) -> Result<(&str, &str), String> {
    if text.contains("://") {
        return Err("an address without a scheme is expected: host:port or :port".into());
    }
    let missing_port = || "the port is missing: write host:port or :port".to_owned();
    if let Some(bracketed) = text.strip_prefix('[') {
        let (host, rest) = bracketed.split_once(']').ok_or("the ] after [ is missing")?;
        let port = rest.strip_prefix(':').filter(|port| !port.is_empty()).ok_or_else(missing_port)?;
        if !host.contains(':') {
            return Err("only an IPv6 address stands in brackets".into());
        }
        return Ok((host, port));
    }
    let (host, port) = text.rsplit_once(':').filter(|(_, port)| !port.is_empty()).ok_or_else(missing_port)?;
    if host.contains(':') {
        return Err("an IPv6 address stands in brackets: [::1]:7070".into());
    }
    Ok((host, port))
}

impl fmt::Display for ListenAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.host {
            Host::Wildcard => write!(f, ":{}", self.port),
            Host::Ip(ip) => SocketAddr::new(*ip, self.port).fmt(f),
            Host::Name(name) if name.contains(':') => write!(f, "[{name}]:{}", self.port),
            Host::Name(name) => write!(f, "{name}:{}", self.port),
        }
    }
}
