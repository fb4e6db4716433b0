//! The settings of a node that has a standby, or is one.

use std::path::PathBuf;
use std::time::Duration;

use cli::{ListenAddress, Mistake, Reader};
use ha::fence::Levels;
use ha::term::NodeId;

use super::table::{
    FENCE_DELAY, FENCE_TIMEOUT, FENCER, HA_AGENT, HA_ALLOW, HA_CA, HA_CERT, HA_KEY, HA_LISTEN, HA_STATE,
    NODE_ID, PEER, STANDBY, Server,
};
use super::values::PeerAddress;

/// One of two nodes, of which one serves.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PairSettings {
    /// This node's name.
    pub(crate) node: NodeId,
    /// The other one.
    pub(crate) peer: PeerAddress,
    /// The state directory.
    pub(crate) state: PathBuf,
    /// Who hears the peer.
    pub(crate) ear: Ear,
    pub(crate) cert: PathBuf,
    pub(crate) key: PathBuf,
    pub(crate) authorities: PathBuf,
    /// Identities that the peer may have: at least one.
    pub(crate) allowed: Vec<String>,
    /// How the peer is stopped.
    pub(crate) levels: Levels,
    /// The limit of one command that stops it.
    pub(crate) fence_timeout: Duration,
    /// How long such commands wait, so that two nodes do not shoot each other.
    pub(crate) fence_delay: Duration,
}

/// Who listens for the peer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Ear {
    /// The server itself.
    Server(ListenAddress),
    /// The agent with this socket.
    Agent(PathBuf),
}

impl PairSettings {
    /// None without `-standby`, or where something that it needs is missing: that is a mistake by itself.
    pub(super) fn read(reader: &mut Reader<'_, Server, impl Fn(&str) -> Option<String>>) -> Option<Self> {
        let is_standby = reader.read(&STANDBY);
        let (node, peer) = (reader.read(&NODE_ID), reader.read(&PEER));
        let state = reader.read(&HA_STATE);
        let (listen, agent) = (reader.read(&HA_LISTEN), reader.read(&HA_AGENT));
        let (cert, key, authorities) = (reader.read(&HA_CERT), reader.read(&HA_KEY), reader.read(&HA_CA));
        let allowed = reader.read(&HA_ALLOW);
        let levels = reader.read(&FENCER);
        let (fence_timeout, fence_delay) = (reader.read(&FENCE_TIMEOUT), reader.read(&FENCE_DELAY));
        if !is_standby {
            return None;
        }
        let ear = match (listen, agent) {
            // One file of variables is for both; with an agent, only the agent listens.
            (_, Some(socket)) => Ear::Agent(socket),
            (Some(address), None) => Ear::Server(address),
            (None, None) => {
                let missing = vec!["-ha-listen or -ha-agent"];
                reader.mistake(Mistake::Alone { name: reader.given(&STANDBY.flag).name(), missing });
                return None;
            }
        };
        let (node, peer) = (node?, peer?);
        if node == peer.id {
            reader.mistake(Mistake::Both {
                name: reader.given(&NODE_ID.flag).name(),
                other: PEER.flag.name,
                problem: "the two nodes need two names",
            });
            return None;
        }
        let allowed = if allowed.is_empty() { vec![peer.id.as_str().to_owned()] } else { allowed };
        Some(Self {
            node,
            peer,
            state: state?,
            ear,
            cert: cert?,
            key: key?,
            authorities: authorities?,
            allowed,
            levels,
            fence_timeout,
            fence_delay,
        })
    }
}
