//! How much room there is for new volumes, less what others were promised of it.
//!
//! The original looks at one claim at a time: two that fit alone both pass, and one of them
//! fails when it is made. Here what is on its way is taken off: claims that were told their
//! node, claims of promises, and claims that were bound since the driver last told how much
//! is left.

use std::sync::Arc;

use orlop_model::{CsiStorageCapacity, Kind, Node, Quantity};

/// Bytes that somebody was promised.
#[derive(Debug, Clone)]
pub struct Draw {
    /// Where.
    pub node: Arc<Node>,
    /// How many.
    pub bytes: i64,
    /// At which version the volume was there: capacity told after that knows of it.
    pub settled: Option<u64>,
}

/// What is told of the room for a class, and what of it is spoken for.
#[derive(Debug, Clone, Copy)]
pub struct Room<'a> {
    /// Told by the driver, place by place.
    pub capacities: &'a [Arc<CsiStorageCapacity>],
    /// Promised to others.
    pub draws: &'a [Draw],
}

impl Room<'_> {
    /// The largest volume that can be made on a node where `own` bytes go to other claims of
    /// the same pod. None if nobody told.
    pub fn largest(&self, node: &Node, own: i64) -> Option<i64> {
        let here = self.capacities.iter().filter(|c| reaches(c, node));
        here.filter_map(|c| {
            let most = c.maximum_volume_size.as_ref().or(c.capacity.as_ref())?;
            let left = c.capacity.as_ref().map_or(i64::MAX, Quantity::value);
            let left = left.saturating_sub(own).saturating_sub(self.drawn(c));
            Some(most.value().min(left))
        })
        .max()
    }

    /// How many bytes are left for all new volumes together that can be made on a node. None if
    /// nobody told.
    pub fn total(&self, node: &Node) -> Option<i64> {
        let here = self.capacities.iter().filter(|c| reaches(c, node));
        here.filter_map(|c| Some(c.capacity.as_ref()?.value().saturating_sub(self.drawn(c))))
            .max()
    }

    fn drawn(&self, capacity: &CsiStorageCapacity) -> i64 {
        let version = capacity.meta().revision();
        let counts = |draw: &&Draw| {
            reaches(capacity, &draw.node) && draw.settled.is_none_or(|at| version <= at)
        };
        let draws = self.draws.iter().filter(counts);
        draws.fold(0, |sum, draw| sum.saturating_add(draw.bytes))
    }
}

/// Whether the capacity is of a place that the node is in. Without a place, it is of none.
fn reaches(capacity: &CsiStorageCapacity, node: &Node) -> bool {
    let place = capacity.node_topology.as_ref();
    place.is_some_and(|place| place.matches(&node.metadata.labels))
}

#[cfg(test)]
mod tests;
