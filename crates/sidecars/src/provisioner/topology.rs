//! Where a driver is asked to make a volume.
//!
//! Pure: nodes and what drivers say about them come in, a requirement goes out, the same
//! for the same input. Terms are sorted before they are rotated, so that a repeated call
//! carries the same request.

use std::collections::{BTreeMap, BTreeSet};

use orlop_csi::proto;
use orlop_model::{CsiNode, Node, StorageClass};

/// A place: topology keys and their values.
pub(crate) type Segment = BTreeMap<String, String>;

/// How far the choice of place is the driver's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Spread {
    /// The selected node's place comes first; others are allowed.
    #[default]
    Preferred,
    /// Only the selected node's place will do.
    Strict,
}

/// Whether claims that bind immediately are told where nodes are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Immediate {
    /// All places where the driver runs are named.
    #[default]
    EverywhereTheDriverIs,
    /// Only what the class allows is named.
    AsTheClassSays,
}

/// Where the volume shall be usable first.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Start<'a> {
    /// At the node that the scheduler chose.
    At(Segment),
    /// Anywhere; claims of one StatefulSet are spread by their names.
    ByName(&'a str),
}

/// Why no place can be named.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TopologyError {
    /// The node is gone: another must be chosen.
    #[error("node {0} does not exist any more")]
    NoNode(String),
    /// The driver isn't there, or not yet.
    #[error("driver {driver} is not registered on node {node}")]
    NoDriver {
        /// The driver.
        driver: String,
        /// The node.
        node: String,
    },
    /// Registration writes the labels; they are missing.
    #[error("node {node} lacks the topology label {key:?}")]
    NoLabel {
        /// The node.
        node: String,
        /// The label.
        key: String,
    },
    /// The class forbids the place that the scheduler chose.
    #[error("the selected node is outside of the class's allowed topologies")]
    NotAllowed,
}

/// The place of a node, as the driver sees it; `None` if the driver knows no places.
pub(super) fn segment_of(
    driver: &str,
    name: &str,
    node: Option<&Node>,
    csi_node: Option<&CsiNode>,
) -> Result<Option<Segment>, TopologyError> {
    let node = node.ok_or_else(|| TopologyError::NoNode(name.to_owned()))?;
    let entry = csi_node
        .and_then(|n| n.driver(driver))
        .ok_or_else(|| TopologyError::NoDriver {
            driver: driver.to_owned(),
            node: name.to_owned(),
        })?;
    let mut segment = Segment::new();
    for key in &entry.topology_keys {
        let value = node
            .metadata
            .labels
            .get(key)
            .ok_or_else(|| TopologyError::NoLabel {
                node: name.to_owned(),
                key: key.clone(),
            })?;
        segment.insert(key.clone(), value.clone());
    }
    Ok(Some(segment).filter(|s| !s.is_empty()))
}

/// All places where the driver runs, each once, in order.
pub(crate) fn segments<'a>(
    driver: &str,
    nodes: impl IntoIterator<Item = (&'a Node, Option<&'a CsiNode>)>,
) -> Vec<Segment> {
    let found: BTreeSet<Segment> = nodes
        .into_iter()
        .filter_map(|(node, csi)| segment_of(driver, &node.metadata.name, Some(node), csi).ok()?)
        .collect();
    found.into_iter().collect()
}

/// The class's allowed topologies, multiplied out.
pub(super) fn allowed(class: &StorageClass) -> Vec<Segment> {
    let mut all = BTreeSet::new();
    for term in &class.allowed_topologies {
        let mut products = vec![Segment::new()];
        for requirement in &term.match_label_expressions {
            products = products
                .iter()
                .flat_map(|partial| {
                    requirement.values.iter().map(|value| {
                        let mut longer = partial.clone();
                        longer.insert(requirement.key.clone(), value.clone());
                        longer
                    })
                })
                .collect();
        }
        all.extend(products.into_iter().filter(|s| !s.is_empty()));
    }
    all.into_iter().collect()
}

/// The requirement: `requisite` in order, and from which of them to begin.
pub(super) fn requirement(
    requisite: Vec<Segment>,
    start: &Start<'_>,
    spread: Spread,
) -> Result<Option<proto::TopologyRequirement>, TopologyError> {
    let (requisite, first) = match start {
        Start::At(place) => {
            // A class may name fewer keys than the driver has.
            let within = |s: &Segment| s.iter().all(|(k, v)| place.get(k) == Some(v));
            let found = requisite.iter().position(within);
            match (spread, found) {
                (_, None) if !requisite.is_empty() => return Err(TopologyError::NotAllowed),
                (Spread::Strict, _) | (_, None) => (vec![place.clone()], 0),
                (Spread::Preferred, Some(first)) => (requisite, first),
            }
        }
        Start::ByName(_) if requisite.is_empty() => return Ok(None),
        Start::ByName(name) => {
            let (hash, ordinal) = spreading(name);
            let first = hash.wrapping_add(ordinal) as usize % requisite.len();
            (requisite, first)
        }
    };
    let mut preferred = requisite.clone();
    preferred.rotate_left(first);
    let terms = |segments: Vec<Segment>| {
        segments
            .into_iter()
            .map(|segments| proto::Topology { segments })
            .collect()
    };
    Ok(Some(proto::TopologyRequirement {
        requisite: terms(requisite),
        preferred: terms(preferred),
    }))
}

/// Hash and ordinal of a claim's name. A StatefulSet's claim `x-y-3` hashes `y`, so that
/// all claims of its pod 3 begin in the same place, and those of pod 4 in the next.
fn spreading(name: &str) -> (u32, u32) {
    let numbered = name
        .rsplit_once('-')
        .and_then(|(stem, number)| Some((stem, number.parse::<u32>().ok()?)));
    match numbered {
        Some((stem, ordinal)) => {
            let set = stem.rsplit_once('-').map_or(stem, |(_, set)| set);
            (fnv1(set), ordinal)
        }
        None => (fnv1(name), 0),
    }
}

/// FNV-1, 32 bits, as the original spreads by.
fn fnv1(text: &str) -> u32 {
    text.bytes().fold(0x811c_9dc5, |hash: u32, byte| {
        hash.wrapping_mul(0x0100_0193) ^ u32::from(byte)
    })
}

#[cfg(test)]
mod tests;
