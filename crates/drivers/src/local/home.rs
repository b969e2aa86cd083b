//! Where a volume is: a node, and one of the pools there.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::volume::NodeName;

/// The name of a pool on its node: what the class parameter `pool` says.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct PoolName(String);

impl PoolName {
    /// The pool of a node that has only one and was given no name for it.
    pub const DEFAULT: &'static str = "default";

    const LONGEST: usize = 63;

    /// Recognises a name: letters, digits, `-`, `_` and `.`, beginning with a letter or a digit.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let inner = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
        let first = text.bytes().next()?;
        let fine =
            first.is_ascii_alphanumeric() && text.len() <= Self::LONGEST && text.bytes().all(inner);
        fine.then(|| Self(text.to_owned()))
    }

    /// Its text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl Default for PoolName {
    fn default() -> Self {
        Self(Self::DEFAULT.to_owned())
    }
}

impl fmt::Display for PoolName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// One pool of one node.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Home {
    /// The node.
    pub node: NodeName,
    /// Its pool.
    pub pool: PoolName,
}

impl fmt::Display for Home {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "pool {} of node {}", self.pool, self.node)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pool_has_a_plain_name() {
        for name in ["default", "nvme0", "Fast_1.a-b"] {
            assert!(PoolName::parse(name).is_some(), "{name}");
        }
        let long = "x".repeat(64);
        for name in ["", ".", "..", "-a", "a/b", "a b", "a=b", "ä", &long] {
            assert_eq!(PoolName::parse(name), None, "{name}");
        }
    }
}
