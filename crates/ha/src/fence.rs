//! Fence levels: how a node makes sure that its peer can no longer act, in the operator's order.

use std::fmt;
use std::path::Path;
use std::str::FromStr;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

/// One device of a level.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Fencer {
    /// The peer's own answer: `closed for term T`, or its agent's `gone for term T`.
    Peer,
    /// A command, called as `PATH off NODE`, then `PATH status NODE`; exit status 0 = the node can no longer
    /// act. It may take the power: it runs only when the rules of [`Levels`] let it.
    Exec(Arc<Path>),
}

/// All fence levels of a node: `peer` first and alone, then levels of one or more commands. As text and in
/// JSON like the flag: `peer,exec:/usr/lib/a+exec:/usr/lib/b`.
///
/// A level of several devices counts when all confirm. A level of commands runs only for a promotion that
/// may shoot (`promote` by hand or `--auto`; never `--keep`, a resume or a switchover), when the peer has
/// given an authenticated answer since this node's own boot, and never under hold.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Levels(Arc<[Vec<Fencer>]>);

/// Why fence levels cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BadLevels {
    /// An unknown word.
    #[error("{0:?} is no fencer: it is `peer`, or `exec:` and an absolute path")]
    Unknown(String),
    /// `peer` is missing, not first, doubled, or one of several devices.
    #[error("the first fence level is `peer`, alone: a fence starts with the peer's own answer")]
    PeerFirst,
}

impl Levels {
    /// The peer's answer and nothing else.
    pub fn peer_only() -> Self {
        Self([vec![Fencer::Peer]].into())
    }

    /// The levels, in order. The first is always `peer`.
    pub fn levels(&self) -> &[Vec<Fencer>] {
        &self.0
    }

    /// Whether nobody can be fenced without an own answer.
    pub fn is_peer_only(&self) -> bool {
        self.0.len() == 1
    }
}

impl FromStr for Levels {
    type Err = BadLevels;

    fn from_str(text: &str) -> Result<Self, BadLevels> {
        let fencer = |word: &str| match word.strip_prefix("exec:") {
            None if word == "peer" => Ok(Fencer::Peer),
            Some(path) if path.starts_with('/') => Ok(Fencer::Exec(Path::new(path).into())),
            _ => Err(BadLevels::Unknown(word.into())),
        };
        let level = |words: &str| words.split('+').map(fencer).collect::<Result<Vec<_>, _>>();
        let levels = text.split(',').map(level).collect::<Result<Vec<_>, _>>()?;
        let peers = levels.iter().flatten().filter(|&fencer| *fencer == Fencer::Peer).count();
        if levels[0] == [Fencer::Peer] && peers == 1 {
            Ok(Self(levels.into()))
        } else {
            Err(BadLevels::PeerFirst)
        }
    }
}

impl fmt::Display for Levels {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, level) in self.0.iter().enumerate() {
            for (k, fencer) in level.iter().enumerate() {
                f.write_str(if k > 0 {
                    "+"
                } else if i > 0 {
                    ","
                } else {
                    ""
                })?;
                write!(f, "{fencer}")?;
            }
        }
        Ok(())
    }
}

impl fmt::Display for Fencer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Peer => f.write_str("peer"),
            Self::Exec(path) => write!(f, "exec:{}", path.display()),
        }
    }
}

impl TryFrom<String> for Levels {
    type Error = BadLevels;

    fn try_from(text: String) -> Result<Self, BadLevels> {
        text.parse()
    }
}

impl From<Levels> for String {
    fn from(levels: Levels) -> Self {
        levels.to_string()
    }
}

/// What the devices of one level have said so far.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Round(Vec<Option<bool>>);

impl Round {
    pub(crate) fn new(devices: usize) -> Self {
        Self(vec![None; devices])
    }

    /// A device has ended. Returns whether the level counts, once every device has ended.
    pub(crate) fn ended(&mut self, device: usize, confirmed: bool) -> Option<bool> {
        *self.0.get_mut(device)? = Some(confirmed);
        let all: Option<Vec<bool>> = self.0.iter().copied().collect();
        all.map(|all| all.into_iter().all(|confirmed| confirmed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn levels_are_read_in_order_and_peer_comes_first() {
        let text = "peer,exec:/a+exec:/b,exec:/c";
        let levels: Levels = text.parse().unwrap();
        assert_eq!(levels.levels().len(), 3);
        assert_eq!(levels.to_string(), text);
        assert!(!levels.is_peer_only() && "peer".parse::<Levels>().unwrap().is_peer_only());
        for bad in
            ["", "exec:/a", "exec:/a,peer", "peer+exec:/a", "peer,peer", "peer,", "peer,exec:a", "peer,x"]
        {
            assert!(bad.parse::<Levels>().is_err(), "{bad}");
        }
    }

    #[test]
    fn a_level_counts_when_all_its_devices_confirm() {
        let mut round = Round::new(2);
        assert_eq!(round.ended(0, true), None);
        assert_eq!(round.ended(7, true), None);
        assert_eq!(round.ended(1, true), Some(true));
        assert_eq!(Round::new(1).ended(0, false), Some(false));
    }
}
