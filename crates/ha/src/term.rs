//! Terms: who may open its gate, in the order in which nodes asked for it.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

/// The longest node id, in bytes: that of a host name's label.
pub const NODE_ID_BYTES_MAX: usize = 63;

/// The name of a node, as `-node-id` gives it: 1 to 63 ASCII letters, digits, `-`, `_` and `.`, beginning
/// with a letter or a digit.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct NodeId(Arc<str>);

impl NodeId {
    /// The name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// A node id that is none.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "{0:?} is no node id: it takes 1 to {NODE_ID_BYTES_MAX} ASCII letters, digits, '-', '_' and '.', \
     beginning with a letter or a digit"
)]
pub struct BadNodeId(String);

impl FromStr for NodeId {
    type Err = BadNodeId;

    fn from_str(text: &str) -> Result<Self, BadNodeId> {
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
        let begins_well = text.bytes().next().is_some_and(|byte| byte.is_ascii_alphanumeric());
        if begins_well && text.len() <= NODE_ID_BYTES_MAX && text.bytes().all(plain) {
            Ok(Self(text.into()))
        } else {
            Err(BadNodeId(text.chars().take(NODE_ID_BYTES_MAX + 1).collect()))
        }
    }
}

impl TryFrom<String> for NodeId {
    type Error = BadNodeId;

    fn try_from(text: String) -> Result<Self, BadNodeId> {
        text.parse()
    }
}

impl From<NodeId> for String {
    fn from(node: NodeId) -> Self {
        node.as_str().into()
    }
}

impl fmt::Display for NodeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

/// A term of a pair: a counter, and the node that took it. Terms are ordered by counter, then by node, so
/// that no two nodes ever have the same one. As text and in JSON: `7.node-a`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Term {
    /// Rises with every promotion.
    pub counter: u64,
    /// The node that promotes, or was promoted, in this term.
    pub node: NodeId,
}

/// Text that names no term.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is no term: it is a counter, a dot and a node id, like 7.node-a")]
pub struct BadTerm(String);

impl FromStr for Term {
    type Err = BadTerm;

    fn from_str(text: &str) -> Result<Self, BadTerm> {
        let bad = || BadTerm(text.chars().take(NODE_ID_BYTES_MAX + 22).collect());
        let (counter, node) = text.split_once('.').ok_or_else(bad)?;
        if counter.is_empty() || !counter.bytes().all(|byte| byte.is_ascii_digit()) {
            return Err(bad());
        }
        Ok(Self { counter: counter.parse().map_err(|_| bad())?, node: node.parse().map_err(|_| bad())? })
    }
}

impl TryFrom<String> for Term {
    type Error = BadTerm;

    fn try_from(text: String) -> Result<Self, BadTerm> {
        text.parse()
    }
}

impl From<Term> for String {
    fn from(term: Term) -> Self {
        term.to_string()
    }
}

impl fmt::Display for Term {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.counter, self.node)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn terms_are_ordered_by_counter_and_then_by_node() {
        let term = |text: &str| text.parse::<Term>().unwrap();
        assert!(term("2.a") > term("1.b"));
        assert!(term("1.b") > term("1.a"));
        assert!(term("10.a") > term("9.b"));
        assert_eq!(term("10.a.example").to_string(), "10.a.example");
    }

    #[test]
    fn a_node_id_or_a_term_that_is_none_is_refused() {
        for bad in ["", "-a", ".a", "a b", "ä", &"a".repeat(64)] {
            assert!(bad.parse::<NodeId>().is_err(), "{bad:?}");
        }
        for bad in ["", "1", "1.", ".a", "+1.a", "99999999999999999999.a", "1.a b"] {
            assert!(bad.parse::<Term>().is_err(), "{bad:?}");
        }
    }
}
