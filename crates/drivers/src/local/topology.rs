//! Where volumes can be, in the protocol's words: one segment, the node.
//!
//! Pure.

use std::collections::BTreeMap;

use orlop_csi::proto;

use super::volume::NodeName;

/// The key of the segment that names the node, for a driver of this name.
#[must_use]
pub fn key(driver_name: &str) -> String {
    format!("topology.{driver_name}/node")
}

/// The topology of one node.
#[must_use]
pub fn of_node(driver_name: &str, node: &NodeName) -> proto::Topology {
    proto::Topology {
        segments: BTreeMap::from([(key(driver_name), node.0.clone())]),
    }
}

/// Which nodes a request would have its volume on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Wanted {
    /// Any node.
    Anywhere,
    /// One of these, the first that has room. May be empty: places that we know nothing of.
    OneOf(Vec<NodeName>),
}

impl Wanted {
    /// Understands a requirement: preferred places first, then the others.
    #[must_use]
    pub fn parse(requirement: Option<&proto::TopologyRequirement>, driver_name: &str) -> Self {
        let Some(requirement) = requirement else {
            return Self::Anywhere;
        };
        let proto::TopologyRequirement {
            requisite,
            preferred,
        } = requirement;
        if requisite.is_empty() && preferred.is_empty() {
            return Self::Anywhere;
        }
        let key = key(driver_name);
        let mut nodes = Vec::new();
        for place in preferred.iter().chain(requisite) {
            // A place with segments that are not ours is one that we cannot promise to be in.
            if let Some(node) = place.segments.get(&key)
                && place.segments.len() == 1
                && !nodes.iter().any(|known: &NodeName| known.0 == *node)
            {
                nodes.push(NodeName(node.clone()));
            }
        }
        Self::OneOf(nodes)
    }

    /// Whether a volume on this node is what was wanted.
    #[must_use]
    pub fn allows(&self, node: &NodeName) -> bool {
        match self {
            Self::Anywhere => true,
            Self::OneOf(nodes) => nodes.contains(node),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DRIVER: &str = "local.csi.orlop.dev";

    fn place(node: &str) -> proto::Topology {
        of_node(DRIVER, &NodeName::from(node))
    }

    #[test]
    fn no_requirement_means_anywhere() {
        assert_eq!(Wanted::parse(None, DRIVER), Wanted::Anywhere);
        let empty = proto::TopologyRequirement::default();
        assert_eq!(Wanted::parse(Some(&empty), DRIVER), Wanted::Anywhere);
    }

    #[test]
    fn preferred_nodes_come_first_and_once() {
        let requirement = proto::TopologyRequirement {
            requisite: vec![place("a"), place("b"), place("c")],
            preferred: vec![place("c"), place("a")],
        };
        let wanted = Wanted::parse(Some(&requirement), DRIVER);
        assert_eq!(
            wanted,
            Wanted::OneOf(["c", "a", "b"].map(NodeName::from).to_vec())
        );
        assert!(wanted.allows(&NodeName::from("b")));
        assert!(!wanted.allows(&NodeName::from("d")));
    }

    #[test]
    fn a_place_of_another_driver_is_nowhere() {
        let mut both = place("a");
        both.segments.insert("zone".to_owned(), "z".to_owned());
        let foreign = proto::Topology {
            segments: BTreeMap::from([("zone".into(), "z".into())]),
        };
        let requirement = proto::TopologyRequirement {
            requisite: vec![both, foreign],
            preferred: vec![],
        };
        assert_eq!(
            Wanted::parse(Some(&requirement), DRIVER),
            Wanted::OneOf(vec![])
        );
    }
}
