//! How many volumes of a driver a node can bear.

use std::collections::{BTreeMap, BTreeSet};

use orlop_model::CsiNode;

use crate::{reason::Reason, volume_binding::Sorted};

/// The volumes of each driver that are on a node or on their way to it. A volume that
/// doesn't exist yet stands there under its claim's key.
pub type Attached = BTreeMap<String, BTreeSet<String>>;

/// The volumes that a pod would bring to a node.
pub fn brought(sorted: &Sorted<'_>) -> Attached {
    let mut brought = Attached::new();
    for (facts, _) in &sorted.bound {
        if let Some(csi) = facts.volume.as_ref().and_then(|v| v.spec.csi.as_ref()) {
            brought
                .entry(csi.driver.clone())
                .or_default()
                .insert(csi.volume_handle.clone());
        }
    }
    for (facts, _) in &sorted.late {
        if let Some(class) = &facts.class {
            brought
                .entry(class.provisioner.clone())
                .or_default()
                .insert(facts.key.to_string());
        }
    }
    brought
}

/// Whether the node can bear what a pod would bring.
///
/// # Errors
/// It can't.
pub fn check(
    brought: &Attached,
    attached: &Attached,
    node: Option<&CsiNode>,
) -> Result<(), Reason> {
    for (driver, new) in brought {
        let limit = node
            .and_then(|n| n.driver(driver))
            .and_then(|d| d.allocatable.as_ref())
            .and_then(|a| a.count);
        let Some(limit) = limit.and_then(|l| usize::try_from(l).ok()) else {
            continue;
        };
        let none = BTreeSet::new();
        let there = attached.get(driver).unwrap_or(&none);
        let more = new.difference(there).count();
        if more > 0 && there.len() + more > limit {
            return Err(Reason::VolumeCount);
        }
    }
    Ok(())
}
