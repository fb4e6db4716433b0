//! How two nodes talk: a question, an answer, over mutual TLS.
//!
//! It decides who is let in: a node whose certificate an authority vouches for, and whose identity is on the
//! list. What is asked and what is answered are types of its user; this crate carries them as JSON, and knows
//! neither terms nor gates. It never says that a node is gone: an address that refuses, closes or is silent
//! gives no answer, and no answer proves nothing.
//!
//! ```
//! # use std::{net::TcpListener, time::Duration};
//! # let folder = tempfile::tempdir()?;
//! # let authority = rcgen::generate_simple_self_signed(["node-a".to_owned()])?;
//! # let (cert, key) = (folder.path().join("node.pem"), folder.path().join("node.key"));
//! # std::fs::write(&cert, authority.cert.pem())?;
//! # std::fs::write(&key, authority.signing_key.serialize_pem())?;
//! # let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
//! # runtime.block_on(async {
//! // Both nodes are one here: the same certificate, which is its own authority.
//! let credentials = peer::Credentials::new(tls::Mutual::load(&cert, &key, &cert)?);
//! let allowed = peer::Allowed::from_iter(["node-a".to_owned()]);
//! let listener = TcpListener::bind("127.0.0.1:0")?;
//! listener.set_nonblocking(true)?;
//! let address = listener.local_addr()?.to_string();
//! let double = |number: u64| std::future::ready(Ok(2 * number));
//! tokio::spawn(peer::serve(vec![listener], credentials.clone(), allowed.clone(), double));
//!
//! let peer = peer::Peer::new(vec![address.parse()?], credentials, allowed);
//! let answer = peer.ask(&21_u64, Duration::from_secs(60), |_: &u64| Ok(())).await?;
//! assert_eq!(answer, 42);
//! # Ok::<_, Box<dyn std::error::Error>>(())
//! # })?;
//! # Ok::<_, Box<dyn std::error::Error>>(())
//! ```
#![forbid(unsafe_code)]

mod ask;
mod endpoint;

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};

use tls::Mutual;

pub use ask::{NoAnswer, Peer};
pub use endpoint::serve;

/// The path of every request.
const PATH: &str = "/peer";

/// The longest request or answer: lists of names and numbers.
const BODY_BYTES_MAX: usize = 1 << 16;

/// The certificate of this node and the authorities of both. Clones are of the same ones.
#[derive(Debug, Clone)]
pub struct Credentials(Arc<Mutex<Mutual>>);

impl Credentials {
    /// For connections from now on.
    pub fn new(mutual: Mutual) -> Self {
        Self(Arc::new(Mutex::new(mutual)))
    }

    /// Connections from now on use other files' contents.
    pub fn replace(&self, mutual: Mutual) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = mutual;
    }

    fn now(&self) -> Mutual {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// The identities that the other node may have.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Allowed(Arc<BTreeSet<String>>);

impl Allowed {
    fn contains(&self, identity: &str) -> bool {
        self.0.contains(identity)
    }
}

impl FromIterator<String> for Allowed {
    fn from_iter<I: IntoIterator<Item = String>>(identities: I) -> Self {
        Self(Arc::new(identities.into_iter().collect()))
    }
}
