//! What a connection brings along from the intake.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use audit::Peer;
use protocol::Acquire;

use crate::addresses::Departures;
use crate::capacity::Place;

/// A connection on its way from the intake to its shard.
#[derive(Debug)]
pub(crate) struct HandOver {
    pub(crate) socket: OwnedFd,
    pub(crate) peer: Peer,
    /// Looked at right before it was accepted.
    pub(crate) accepted: Departures,
    pub(crate) place: Place,
    pub(crate) acquire: Acquire,
    /// What came glued to the ACQUIRE.
    pub(crate) rest: Vec<u8>,
    /// Of a TLS connection.
    pub(crate) secured: Option<Box<Secured>>,
}

/// What a TLS connection has besides its socket.
#[derive(Debug)]
pub(crate) struct Secured {
    pub(crate) tls: tls::Session,
    /// What the client's certificate says it is, under mutual TLS.
    pub(crate) identity: Option<Arc<str>>,
}
