//! Which server, and how to reach it.

use std::time::Duration;

#[cfg(feature = "tls")]
use crate::tls::Tls;

/// How long one address, and the look-up of a name, may take unless the caller says otherwise: SYNs at 0, 1
/// and 3 s, and an answer to the last.
pub const DIAL_TIMEOUT: Duration = Duration::from_secs(5);

/// Which server, and how to reach it.
#[derive(Debug, Clone)]
pub struct Config {
    pub(crate) address: String,
    pub(crate) dial_timeout: Duration,
    #[cfg(feature = "tls")]
    pub(crate) tls: Option<Tls>,
}

impl Config {
    /// The server at `host:port`. Each address that the host resolves to is tried, in order.
    pub fn new(address: impl Into<String>) -> Self {
        Self {
            address: address.into(),
            dial_timeout: DIAL_TIMEOUT,
            #[cfg(feature = "tls")]
            tls: None,
        }
    }

    /// How long one address may take, its TLS handshake included, and the look-up of a name: [`DIAL_TIMEOUT`]
    /// unless set.
    pub fn with_dial_timeout(mut self, dial_timeout: Duration) -> Self {
        self.dial_timeout = dial_timeout;
        self
    }

    /// Speaks TLS to the server.
    #[cfg(feature = "tls")]
    pub fn with_tls(mut self, tls: Tls) -> Self {
        self.tls = Some(tls);
        self
    }
}
