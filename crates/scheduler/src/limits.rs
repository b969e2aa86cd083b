//! How many volumes of a driver a node can bear.

use std::collections::{BTreeMap, BTreeSet};

use orlop_model::{CsiNode, Pod, migration};

use crate::{reason::Reason, volume_binding::Sorted};

/// The volumes of each driver that are on a node or on their way to it. A volume that
/// doesn't exist yet stands there under its claim's key.
pub type Attached = BTreeMap<String, BTreeSet<String>>;

/// The driver that makes the volumes of a class: its provisioner, or who took a plugin's place.
pub fn driver_of(provisioner: &str) -> &str {
    migration::driver_of(provisioner).unwrap_or(provisioner)
}

/// The volumes that a pod names itself by the plugins of old, as their drivers know them.
pub fn named(pod: &Pod) -> impl Iterator<Item = (String, String)> {
    let namespace = &pod.metadata.namespace;
    let old = pod.spec.volumes.iter();
    old.filter_map(move |volume| {
        let csi = migration::inline(volume, namespace).ok()??.spec.csi?;
        Some((csi.driver, csi.volume_handle))
    })
}

/// The volumes that a pod would bring to a node. Those of plugins of old count as their drivers':
/// there is nothing else left that could attach them.
pub fn brought(pod: &Pod, sorted: &Sorted<'_>) -> Attached {
    let mut brought = Attached::new();
    for (facts, _) in &sorted.bound {
        if let Some(csi) = facts.volume.as_deref().and_then(migration::source) {
            brought
                .entry(csi.driver.clone())
                .or_default()
                .insert(csi.volume_handle.clone());
        }
    }
    for (facts, _) in &sorted.late {
        if let Some(class) = &facts.class {
            brought
                .entry(driver_of(&class.provisioner).to_owned())
                .or_default()
                .insert(facts.key.to_string());
        }
    }
    for (driver, handle) in named(pod) {
        brought.entry(driver).or_default().insert(handle);
    }
    brought
}

/// Whether those of a pod's drivers are on the node that demand it.
///
/// # Errors
/// One isn't.
pub fn installed(
    brought: &Attached,
    demanding: &BTreeSet<String>,
    node: Option<&CsiNode>,
) -> Result<(), Reason> {
    let is_there = |driver: &str| node.is_some_and(|node| node.driver(driver).is_some());
    let mut missing = brought.keys().filter(|driver| demanding.contains(*driver));
    match missing.find(|driver| !is_there(driver)) {
        Some(driver) => Err(Reason::NoDriver(driver.clone())),
        None => Ok(()),
    }
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
    match excess(brought, attached, node) {
        Some(_) => Err(Reason::VolumeCount),
        None => Ok(()),
    }
}

/// A driver of which a node would have more volumes than it can bear.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Excess {
    /// The driver.
    pub driver: String,
    /// How many the node can bear.
    pub limit: usize,
    /// How many it has.
    pub there: usize,
    /// How many would come.
    pub more: usize,
}

/// What a pod would bring that the node can't bear.
pub fn excess(brought: &Attached, attached: &Attached, node: Option<&CsiNode>) -> Option<Excess> {
    brought.iter().find_map(|(driver, new)| {
        let resources = node?.driver(driver)?.allocatable.as_ref()?;
        let limit = usize::try_from(resources.count?).ok()?;
        let none = BTreeSet::new();
        let there = attached.get(driver).unwrap_or(&none);
        let more = new.difference(there).count();
        (more > 0 && there.len() + more > limit).then(|| Excess {
            driver: driver.clone(),
            limit,
            there: there.len(),
            more,
        })
    })
}
