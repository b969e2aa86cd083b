//! Whether a pod's volumes can be where a node is, and what that takes.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use orlop_model::{
    AccessMode, Claim, ClaimPhase, CsiDriver, CsiNode, CsiStorageCapacity, Key, Kind, Node, Pod,
    StorageClass, Volume,
    matching::{self, Place, Timing},
    well_known,
};

use crate::{
    reason::{Reason, Unready},
    room::{Draw, Room},
    zone,
};

/// A claim of a pod, and everything that placing the pod must know of it.
#[derive(Debug, Clone, Default)]
pub struct ClaimFacts {
    /// Its key.
    pub key: Key,
    /// Whether it is made for the pod.
    pub ephemeral: bool,
    /// The claim, if it exists.
    pub claim: Option<Arc<Claim>>,
    /// The volume that it names, if that exists.
    pub volume: Option<Arc<Volume>>,
    /// Its class, if that exists.
    pub class: Option<Arc<StorageClass>>,
    /// The class's driver, if it is one and says so.
    pub driver: Option<Arc<CsiDriver>>,
    /// Volumes that it could get: free ones of its class that nobody was promised, and
    /// those that name it.
    pub candidates: Vec<Arc<Volume>>,
    /// What is left of its class, place by place.
    pub capacities: Vec<Arc<CsiStorageCapacity>>,
    /// What of that others were promised.
    pub draws: Vec<Draw>,
    /// Whether another pod uses it or was promised to.
    pub used_by_another: bool,
    /// One who does, and where.
    pub user: Option<String>,
    /// Where, and how, another pod was promised that it will be bound.
    pub promised: Option<(String, Supply)>,
}

impl ClaimFacts {
    /// The room for a new volume of its class.
    pub fn room(&self) -> Room<'_> {
        Room {
            capacities: &self.capacities,
            draws: &self.draws,
        }
    }
}

/// A pod's claims, by what placing must do about them.
#[derive(Debug, Default)]
pub struct Sorted<'a> {
    /// Bound, with the volume if that still exists.
    pub bound: Vec<(&'a ClaimFacts, &'a Claim)>,
    /// To be bound where the pod goes, smallest first.
    pub late: Vec<(&'a ClaimFacts, &'a Claim)>,
}

/// Sorts a pod's claims.
///
/// # Errors
/// What keeps the pod from every node.
pub fn sort<'a>(pod: &Pod, claims: &'a [ClaimFacts]) -> Result<Sorted<'a>, Unready> {
    let mut sorted = Sorted::default();
    for facts in claims {
        let name = facts.key.name.clone();
        let Some(claim) = facts.claim.as_deref() else {
            return Err(match facts.ephemeral {
                true => Unready::NotMade(name),
                false => Unready::Missing(name),
            });
        };
        let owner = claim.metadata.controller();
        if facts.ephemeral && owner.is_none_or(|o| o.uid != pod.metadata.uid) {
            return Err(Unready::NotOurs {
                claim: facts.key.to_string(),
                pod: pod.key().to_string(),
            });
        }
        if claim.phase() == ClaimPhase::Lost {
            return Err(Unready::Lost {
                claim: name,
                volume: claim.spec.volume_name.clone(),
            });
        }
        if claim.metadata.is_deleting() {
            return Err(Unready::Deleting(name));
        }
        let late = facts.class.as_ref().is_some_and(|c| c.waits_for_consumer());
        if claim.is_fully_bound() {
            sorted.bound.push((facts, claim));
        } else if late && claim.spec.volume_name.is_empty() {
            sorted.late.push((facts, claim));
        } else {
            return Err(Unready::Unbound);
        }
    }
    // The smallest claim takes the smallest volume, so that the larger ones find theirs.
    sorted
        .late
        .sort_by_key(|(facts, claim)| (claim.requested_bytes(), facts.key.clone()));
    Ok(sorted)
}

/// What a claim gets if the pod goes to a certain node.
#[derive(Debug, Clone, PartialEq)]
pub enum Supply {
    /// A volume that is there.
    Reserve(Arc<Volume>),
    /// A volume that is made there.
    Provision,
}

/// What every late claim of a pod gets.
pub type Plan = Vec<(Key, Supply)>;

/// Whether the pod may use its claims at all, wherever it goes.
///
/// # Errors
/// Somebody else has one that is for one pod only.
pub fn unshared(sorted: &Sorted<'_>) -> Result<(), Reason> {
    let alone = |claim: &Claim| {
        let modes = &claim.spec.access_modes;
        modes.contains(&AccessMode::ReadWriteOncePod)
    };
    let mut all = sorted.bound.iter().chain(&sorted.late);
    match all.any(|(facts, claim)| facts.used_by_another && alone(claim)) {
        true => Err(Reason::ClaimInUse),
        false => Ok(()),
    }
}

/// Whether the pod's bound volumes are in the node's zone.
///
/// # Errors
/// One isn't.
pub fn in_zone(sorted: &Sorted<'_>, node: &Node) -> Result<(), Reason> {
    let mut volumes = sorted.bound.iter().filter_map(|(f, _)| f.volume.as_deref());
    match volumes.all(|volume| zone::allows(volume, &node.metadata.labels)) {
        true => Ok(()),
        false => Err(Reason::Zone),
    }
}

/// Plans a pod's volumes for a node.
///
/// # Errors
/// Why the node won't do.
pub fn plan(
    sorted: &Sorted<'_>,
    node: &Node,
    csi_node: Option<&CsiNode>,
) -> Result<Plan, Vec<Reason>> {
    let mut reasons = BTreeSet::new();
    let (name, labels) = (&node.metadata.name, &node.metadata.labels);
    for (facts, _) in &sorted.bound {
        match &facts.volume {
            None => reasons.insert(Reason::VolumeGone),
            Some(volume) if !volume.reachable_from(name, labels) => {
                reasons.insert(Reason::VolumeAffinity)
            }
            Some(_) => false,
        };
    }
    let mut own = Own::told(sorted, name);
    let mut plan = Plan::new();
    for (facts, claim) in &sorted.late {
        match supply(facts, claim, (node, csi_node), &own) {
            Ok(supply) => {
                own.take(facts, claim, &supply);
                plan.push((facts.key.clone(), supply));
            }
            Err(reason) => {
                reasons.insert(reason);
            }
        }
    }
    if reasons.is_empty() {
        Ok(plan)
    } else {
        Err(reasons.into_iter().collect())
    }
}

/// What the pod's other claims take on the node.
#[derive(Default)]
struct Own<'a> {
    volumes: BTreeSet<String>,
    bytes: BTreeMap<&'a str, i64>,
}

impl<'a> Own<'a> {
    /// With those that were told the node already: they are made first.
    fn told(sorted: &Sorted<'a>, node: &str) -> Self {
        let mut own = Self::default();
        for (facts, claim) in &sorted.late {
            if claim.selected_node() == Some(node) {
                own.draw(facts, claim);
            }
        }
        own
    }

    fn take(&mut self, facts: &'a ClaimFacts, claim: &Claim, supply: &Supply) {
        match supply {
            Supply::Reserve(volume) => {
                self.volumes.insert(volume.metadata.name.clone());
            }
            Supply::Provision if claim.selected_node().is_none() => self.draw(facts, claim),
            Supply::Provision => {}
        }
    }

    fn draw(&mut self, facts: &'a ClaimFacts, claim: &Claim) {
        if let Some(class) = &facts.class {
            let bytes = self.bytes.entry(&class.metadata.name).or_default();
            *bytes = bytes.saturating_add(claim.requested_bytes());
        }
    }
}

/// What a claim would get on a node if it were the pod's only one.
///
/// # Errors
/// Why the node won't do for it.
pub fn alone(
    facts: &ClaimFacts,
    claim: &Claim,
    node: &Node,
    csi_node: Option<&CsiNode>,
) -> Result<Supply, Reason> {
    supply(facts, claim, (node, csi_node), &Own::default())
}

fn supply(
    facts: &ClaimFacts,
    claim: &Claim,
    (node, csi_node): (&Node, Option<&CsiNode>),
    own: &Own<'_>,
) -> Result<Supply, Reason> {
    if let Some((promised, supply)) = &facts.promised {
        return match *promised == node.metadata.name {
            true => Ok(supply.clone()),
            false => Err(Reason::NoVolume),
        };
    }
    match claim.selected_node() {
        Some(selected) if selected != node.metadata.name => return Err(Reason::NoVolume),
        // The provisioner was asked already, here: room for it was looked at then.
        Some(_) => return Ok(Supply::Provision),
        None => {}
    }
    let place = Place::Node {
        name: &node.metadata.name,
        labels: &node.metadata.labels,
    };
    let free = facts.candidates.iter();
    let free: Vec<&Arc<Volume>> = free
        .filter(|v| !own.volumes.contains(&v.metadata.name))
        .collect();
    let found = matching::best(claim, free.iter().map(|v| &***v), place, Timing::Now);
    if let Some(found) = found {
        let found = free
            .iter()
            .find(|v| v.metadata.name == found.metadata.name)
            .map(|v| Arc::clone(v));
        return found.map(Supply::Reserve).ok_or(Reason::NoVolume);
    }
    // A volume that names the claim is the only one that it may get.
    if free.iter().any(|v| v.is_reserved_for(claim)) {
        return Err(Reason::VolumeAffinity);
    }
    provisionable(facts, claim, (node, csi_node), own).map(|()| Supply::Provision)
}

fn provisionable(
    facts: &ClaimFacts,
    claim: &Claim,
    (node, csi_node): (&Node, Option<&CsiNode>),
    own: &Own<'_>,
) -> Result<(), Reason> {
    let class = facts.class.as_deref().ok_or(Reason::NoVolume)?;
    let labels = &node.metadata.labels;
    let by_hand = matches!(class.provisioner.as_str(), "" | well_known::NO_PROVISIONER);
    if by_hand || !class.allows_topology(labels) {
        return Err(Reason::NoVolume);
    }
    let Some(driver) = &facts.driver else {
        // Not a CSI driver that we know of: it needs nothing on the node.
        return Ok(());
    };
    if csi_node.is_none_or(|n| n.driver(&class.provisioner).is_none()) {
        return Err(Reason::NoDriver(class.provisioner.clone()));
    }
    if driver.spec.storage_capacity != Some(true) {
        return Ok(());
    }
    let own = own.bytes.get(class.metadata.name.as_str());
    let largest = facts.room().largest(node, own.copied().unwrap_or(0));
    match largest.is_some_and(|largest| largest >= claim.requested_bytes()) {
        true => Ok(()),
        false => Err(Reason::NoSpace),
    }
}
