//! The remote address of a connection, in the 18 bytes that each session keeps of it.

use std::fmt;
use std::net::{Ipv6Addr, SocketAddr};

/// A remote address. An IPv4 peer of a dual-stack listener is the IPv4 address that it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Peer {
    /// IPv4 as v4-mapped.
    ip: Ipv6Addr,
    port: u16,
}

impl From<SocketAddr> for Peer {
    fn from(address: SocketAddr) -> Self {
        let ip = match address {
            SocketAddr::V4(v4) => v4.ip().to_ipv6_mapped(),
            SocketAddr::V6(v6) => *v6.ip(),
        };
        Self { ip, port: address.port() }
    }
}

impl fmt::Display for Peer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        SocketAddr::new(self.ip.to_canonical(), self.port).fmt(f)
    }
}
