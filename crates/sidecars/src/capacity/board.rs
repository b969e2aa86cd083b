//! What is told of a driver's room, and what should be. Pure.

use std::collections::{BTreeMap, BTreeSet};

use orlop_model::{
    CsiStorageCapacity, Meta, OwnerReference, Quantity,
    selector::LabelSelector,
    well_known::{CAPACITY_DRIVER, CAPACITY_MANAGER},
};

use crate::provisioner::{Deployment, topology::Segment};

/// The longest value of a label.
const LABEL: usize = 63;

/// A class at a place.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Spot {
    pub(super) class: String,
    pub(super) segment: Segment,
}

impl Spot {
    /// What an object speaks of.
    fn of(object: &CsiStorageCapacity) -> Self {
        let place = object.node_topology.as_ref();
        Self {
            class: object.storage_class_name.clone(),
            segment: place.map(|p| p.match_labels.clone()).unwrap_or_default(),
        }
    }
}

/// How much room there is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Room {
    pub(super) free: i64,
    pub(super) largest: Option<i64>,
}

impl Room {
    /// As a driver tells it. Less than none is none, and a largest volume of less than none says
    /// nothing: the API server takes neither.
    pub(super) fn told(free: i64, largest: Option<i64>) -> Self {
        Self {
            free: free.max(0),
            largest: largest.filter(|largest| *largest >= 0),
        }
    }

    pub(super) fn of(object: &CsiStorageCapacity) -> Self {
        Self {
            free: object.capacity.as_ref().map_or(0, Quantity::value),
            largest: object.maximum_volume_size.as_ref().map(Quantity::value),
        }
    }

    /// Whether something may fit here that didn't fit there.
    pub(super) fn is_more_than(&self, other: &Self) -> bool {
        let largest = |room: &Self| room.largest.unwrap_or(i64::MAX);
        self.free > other.free || largest(self) > largest(other)
    }

    pub(super) fn free_quantity(&self) -> Quantity {
        Quantity::bytes(self.free)
    }

    pub(super) fn largest_quantity(&self) -> Option<Quantity> {
        self.largest.map(Quantity::bytes)
    }
}

/// Who tells: whose labels objects carry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Manager {
    labels: BTreeMap<String, String>,
}

impl Manager {
    pub(super) fn of(driver: &str, deployment: &Deployment) -> Self {
        let name = match deployment {
            Deployment::Central => "external-provisioner".to_owned(),
            Deployment::Node { name, .. } => short(format!("external-provisioner-{name}")),
        };
        let labels = [
            (CAPACITY_DRIVER, driver.to_owned()),
            (CAPACITY_MANAGER, name),
        ];
        Self {
            labels: labels.map(|(key, value)| (key.to_owned(), value)).into(),
        }
    }

    fn manages(&self, object: &CsiStorageCapacity) -> bool {
        let labels = &object.metadata.labels;
        self.labels
            .iter()
            .all(|(key, value)| labels.get(key) == Some(value))
    }

    /// A new object.
    pub(super) fn object(
        &self,
        namespace: &str,
        owner: Option<&OwnerReference>,
        spot: &Spot,
        room: &Room,
    ) -> CsiStorageCapacity {
        CsiStorageCapacity {
            metadata: Meta {
                generate_name: "csisc-".to_owned(),
                namespace: namespace.to_owned(),
                labels: self.labels.clone(),
                owner_references: owner.cloned().into_iter().collect(),
                ..Meta::default()
            },
            storage_class_name: spot.class.clone(),
            node_topology: Some(LabelSelector {
                match_labels: spot.segment.clone(),
                ..LabelSelector::default()
            }),
            capacity: Some(room.free_quantity()),
            maximum_volume_size: room.largest_quantity(),
        }
    }
}

/// A name that fits into a label: a long one ends with a number made from all of it.
fn short(name: String) -> String {
    if name.len() <= LABEL {
        return name;
    }
    let hash = name.bytes().fold(0x811c_9dc5_u32, |hash, byte| {
        (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193)
    });
    let kept: String = name.chars().take(LABEL - 9).collect();
    format!("{kept}-{hash:08x}")
}

/// Every spot with what is told of it, and what is told of no spot.
#[derive(Debug)]
pub(super) struct Board {
    spots: BTreeMap<Spot, Option<CsiStorageCapacity>>,
    obsolete: Vec<CsiStorageCapacity>,
}

impl Board {
    pub(super) fn new(
        manager: &Manager,
        wanted: BTreeSet<Spot>,
        mut told: Vec<CsiStorageCapacity>,
    ) -> Self {
        let mut spots: BTreeMap<_, _> = wanted.into_iter().map(|spot| (spot, None)).collect();
        let mut obsolete = Vec::new();
        // The oldest of several about one spot stays, whoever looks.
        told.sort_by(|a, b| {
            let age =
                |o: &CsiStorageCapacity| (o.metadata.creation_timestamp, o.metadata.name.clone());
            age(a).cmp(&age(b))
        });
        for object in told.into_iter().filter(|object| manager.manages(object)) {
            match spots.get_mut(&Spot::of(&object)) {
                Some(told @ None) => *told = Some(object),
                Some(Some(_)) | None => obsolete.push(object),
            }
        }
        Self { spots, obsolete }
    }

    pub(super) fn spots(&self) -> impl Iterator<Item = (&Spot, Option<&CsiStorageCapacity>)> {
        self.spots.iter().map(|(spot, told)| (spot, told.as_ref()))
    }

    /// Told, but about nothing that exists, or twice.
    pub(super) fn obsolete(&self) -> &[CsiStorageCapacity] {
        &self.obsolete
    }

    /// How many spots there are.
    pub(super) fn wanted(&self) -> usize {
        self.spots.len()
    }

    /// How many of them are told of.
    pub(super) fn told(&self) -> usize {
        self.spots.values().flatten().count()
    }
}

#[cfg(test)]
mod tests;
