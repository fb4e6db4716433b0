//! Could the server listen on its addresses? Each is bound for a moment, and nothing listens.

use std::net::SocketAddr;

use crate::listener;
use cli::ListenAddress;

/// The addresses that were looked at.
#[derive(Debug, Default)]
pub(super) struct Addresses {
    /// With the setting that has it.
    taken: Vec<(String, SocketAddr)>,
}

impl Addresses {
    /// What an address stands for, or why the server could not listen there. Who listens there now may be the
    /// server that runs.
    pub(super) async fn look(&mut self, setting: String, address: &ListenAddress) -> Result<String, String> {
        let addresses = address.resolve().await.map_err(|error| error.to_string())?;
        let (mut found, mut missing) = (Vec::new(), None);
        for address in addresses {
            match listener::is_free(address) {
                Ok(true) => found.push(address.to_string()),
                Ok(false) => found.push(format!("{address}, in use now")),
                // The server passes over it, too, if the name has another one.
                Err(error) if listener::is_missing(&error) => {
                    missing = Some((address, error));
                    continue;
                }
                Err(error) => return Err(format!("cannot listen on {address}: {error}")),
            }
            if let Some((other, _)) = self.taken.iter().find(|(_, taken)| overlap(*taken, address)) {
                return Err(format!("{other} has port {} already", address.port()));
            }
            self.taken.push((setting.clone(), address));
        }
        match missing {
            Some((address, error)) if found.is_empty() => Err(format!("cannot listen on {address}: {error}")),
            _ => Ok(found.join("; ")),
        }
    }
}

/// Only one of two listeners could have its address.
fn overlap(a: SocketAddr, b: SocketAddr) -> bool {
    let is_every = |address: SocketAddr| address.ip().is_unspecified();
    a.port() == b.port() && a.port() != 0 && (a.ip() == b.ip() || is_every(a) || is_every(b))
}
