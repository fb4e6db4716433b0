//! What this node tells its peer besides the state machine's word: for people, who compare two nodes.

use std::fs;
use std::net::IpAddr;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use ha::message::Facts;
use ring::digest::{SHA256, digest};

use crate::addresses;
use crate::clock;
use crate::metrics::Published;
use crate::metrics::names::Level;
use crate::settings::ServeSettings;

/// Where the facts come from.
#[derive(Clone)]
pub(super) struct FactsSource {
    shards: Vec<Arc<Published>>,
    addresses: addresses::Shared,
    address: Arc<Mutex<Option<IpAddr>>>,
    constant: Facts,
}

impl FactsSource {
    /// Reads the files that both nodes should have alike.
    pub(super) fn new(
        settings: &ServeSettings,
        shards: Vec<Arc<Published>>,
        addresses: addresses::Shared,
    ) -> Self {
        let client_ca = settings.tls.as_ref().and_then(|tls| tls.client_ca.as_ref());
        let acl = client_ca.and_then(|client_ca| client_ca.acl_file.as_deref());
        let constant = Facts {
            configuration: of_text(&shared_settings(settings)),
            authorities: of_file(client_ca.map(|client_ca| client_ca.file.as_path())),
            acl: of_file(acl),
            ..Facts::default()
        };
        Self { shards, addresses, address: Arc::default(), constant }
    }

    /// The address that moves, as a check script names it.
    pub(super) fn watch(&self, address: IpAddr) {
        *self.address.lock().unwrap_or_else(PoisonError::into_inner) = Some(address);
    }

    /// Whether this host has the address on one of its interfaces.
    pub(super) fn is_here(&self, address: IpAddr) -> bool {
        // Where the kernel does not tell: an address that cannot be bound is elsewhere. (A host that may bind
        // any, ip_nonlocal_bind, has them all.)
        let can_bind = || std::net::UdpSocket::bind((address, 0)).is_ok();
        self.addresses.is_here(address).unwrap_or_else(can_bind)
    }

    pub(super) fn now(&self) -> Facts {
        let connections =
            |published: &Arc<Published>| published.read().map_or(0, |cells| cells.level(Level::Connections));
        let address = *self.address.lock().unwrap_or_else(PoisonError::into_inner);
        Facts {
            sessions: self.shards.iter().map(connections).sum(),
            wall_clock_ns: clock::unix_ns(),
            holds_address: address.map(|address| self.is_here(address)),
            ..self.constant.clone()
        }
    }
}

/// What two nodes of a pair should not differ in.
fn shared_settings(settings: &ServeSettings) -> String {
    let tls = settings.tls.as_ref();
    let client_ca = tls.and_then(|tls| tls.client_ca.as_ref());
    format!(
        "{} {} {} {} {:?}",
        settings.listen,
        tls.is_some(),
        client_ca.is_some(),
        client_ca.is_some_and(|client_ca| client_ca.acl_file.is_some()),
        settings.io_timeout,
    )
}

fn of_file(path: Option<&Path>) -> String {
    path.map_or_else(String::new, |path| fs::read(path).map_or_else(|error| error.to_string(), of_bytes))
}

fn of_text(text: &str) -> String {
    of_bytes(text.as_bytes())
}

/// As many digits as people compare.
fn of_bytes(bytes: impl AsRef<[u8]>) -> String {
    digest(&SHA256, bytes.as_ref()).as_ref()[..8].iter().map(|byte| format!("{byte:02x}")).collect()
}
