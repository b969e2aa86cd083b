//! What makes it worth looking again at a pod that no node would do for.
//!
//! Two steps, so that a cluster's everyday changes cost little: of each change it is told once whether it
//! is [`News`] at all, and then, for each pod that was refused, whether it bears on why.

use std::{collections::BTreeSet, sync::Arc};

use orlop_model::{
    CsiDriver, CsiNode, CsiStorageCapacity, Node, Pod, Quantity, StorageClass, Volume, matching,
};

use crate::{
    assign::View,
    limits,
    reason::{Reason, Refusal, Unready},
    restrictions, volume_binding,
};

/// A pod that no node would do for.
#[derive(Debug, Clone)]
pub struct Refused {
    /// The pod.
    pub pod: Arc<Pod>,
    /// Why.
    pub why: Why,
    /// The classes of its claims.
    pub classes: BTreeSet<String>,
    /// The drivers of its volumes.
    pub drivers: BTreeSet<String>,
    /// The volumes that its event names.
    pub named: BTreeSet<String>,
}

/// Why a pod waits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Why {
    /// It is being looked at: what changes meanwhile may not have been seen.
    Looking,
    /// Its claims rule every node out.
    Claims(Unready),
    /// Every node has a reason, and these are all of them.
    Nodes(BTreeSet<Reason>),
}

impl Refused {
    /// A pod that is about to be looked at.
    pub fn looking(pod: Arc<Pod>) -> Self {
        Self {
            pod,
            why: Why::Looking,
            classes: BTreeSet::new(),
            drivers: BTreeSet::new(),
            named: BTreeSet::new(),
        }
    }

    /// A pod that was refused.
    pub fn of(view: &View, refusal: &Refusal) -> Self {
        let claims = view.claims.iter().filter_map(|facts| facts.claim.as_ref());
        let classes = claims.filter_map(|claim| claim.class());
        let drivers = match volume_binding::sort(&view.pod, &view.claims) {
            Ok(sorted) => limits::brought(&view.pod, &sorted).into_keys().collect(),
            Err(_) => BTreeSet::new(),
        };
        Self {
            pod: view.pod.clone(),
            why: match refusal {
                Refusal::Claims(unready) => Why::Claims(unready.clone()),
                Refusal::Nodes { reasons, .. } => {
                    Why::Nodes(reasons.values().flatten().cloned().collect())
                }
            },
            classes: classes.map(str::to_owned).collect(),
            drivers,
            named: named(view, refusal),
        }
    }
}

/// The free volumes that a pod is told of by name.
fn named(view: &View, refusal: &Refusal) -> BTreeSet<String> {
    let Refusal::Nodes { hints, .. } = refusal else {
        return BTreeSet::new();
    };
    let candidates = view.claims.iter().flat_map(|facts| &facts.candidates);
    let names = candidates.map(|volume| &volume.metadata.name);
    let told = |name: &&String| {
        let quoted = format!("\"{name}\"");
        hints.iter().any(|hint| hint.contains(&quoted))
    };
    names.filter(told).cloned().collect()
}

/// A change that may help somebody. What changed of a pod's own claims, and of volumes that name them,
/// always does, and isn't among these.
#[derive(Debug, Clone, PartialEq)]
pub enum News<'n> {
    /// There is another node.
    NodeCame,
    /// A node is not what it was.
    NodeChanged {
        /// Its labels, and with them what it reaches.
        labels: bool,
        /// Whether it takes pods, and how many.
        state: bool,
    },
    /// On some node these drivers are new, or bear more volumes than before.
    Drivers(BTreeSet<&'n str>),
    /// There is a free volume of this class that wasn't, or not so.
    FreeVolume(&'n str),
    /// This volume is gone or going, or somebody's: who was told of it is told something else.
    Went(&'n str),
    /// There is this class, or it allows other places.
    Class(&'n str),
    /// There may be more room for volumes of this class.
    Room(&'n str),
    /// This driver asks for less than it did.
    Eased(&'n str),
    /// A pod has left its node, or gave back what it was promised.
    Left {
        /// The pod.
        pod: &'n Pod,
        /// Classes of volumes or of room that it was promised and didn't use.
        given_back: &'n BTreeSet<String>,
    },
    /// A volume of this driver was detached from a node.
    Detached(&'n str),
}

impl<'n> News<'n> {
    /// What is new of a node. Heartbeats are not.
    pub fn of_node(old: Option<&Node>, new: &Node) -> Option<Self> {
        let Some(old) = old else {
            return Some(Self::NodeCame);
        };
        let labels = old.metadata.labels != new.metadata.labels;
        let state = old.spec != new.spec
            || old.status.allocatable != new.status.allocatable
            || old.is_ready() != new.is_ready();
        (labels || state).then_some(Self::NodeChanged { labels, state })
    }

    /// What is new of a node's drivers.
    pub fn of_csi_node(old: Option<&CsiNode>, new: &'n CsiNode) -> Option<Self> {
        let before = |name: &str| old.and_then(|old| old.driver(name));
        let most = |resources: &orlop_model::driver::CsiNodeDriver| {
            resources.allocatable.as_ref().and_then(|a| a.count)
        };
        let helps = |driver: &&orlop_model::driver::CsiNodeDriver| match before(&driver.name) {
            None => true,
            // Who tells no number has no limit.
            Some(old) => match (most(old), most(driver)) {
                (Some(old), Some(new)) => new > old,
                (Some(_), None) => true,
                (None, _) => false,
            },
        };
        let drivers = new.spec.drivers.iter().filter(helps);
        let drivers: BTreeSet<&str> = drivers.map(|driver| driver.name.as_str()).collect();
        (!drivers.is_empty()).then_some(Self::Drivers(drivers))
    }

    /// What is new of a volume that nobody has or had.
    pub fn of_volume(old: Option<&Volume>, new: &'n Volume) -> Option<Self> {
        if matching::is_offered_anew(old, new) {
            return Some(Self::FreeVolume(new.class()));
        }
        let old = old.filter(|old| old.spec.claim_ref.is_none())?;
        let went = new.spec.claim_ref.is_some()
            || old.metadata.is_deleting() != new.metadata.is_deleting();
        went.then_some(Self::Went(&new.metadata.name))
    }

    /// What is new of a class.
    pub fn of_class(old: Option<&StorageClass>, new: &'n StorageClass) -> Option<Self> {
        let helps = old.is_none_or(|old| {
            // The rest of a class never changes; one of its name that was made anew may be seen as such.
            old.allowed_topologies != new.allowed_topologies
                || old.volume_binding_mode != new.volume_binding_mode
                || old.provisioner != new.provisioner
        });
        helps.then(|| Self::Class(&new.metadata.name))
    }

    /// What is new of the room that a driver tells. `held` says that volumes were made since it last told:
    /// then less may be more, since these are counted no longer.
    pub fn of_capacity(
        old: Option<&CsiStorageCapacity>,
        new: &'n CsiStorageCapacity,
        held: bool,
    ) -> Option<Self> {
        let most = |c: &CsiStorageCapacity| {
            let most = c.maximum_volume_size.as_ref().or(c.capacity.as_ref())?;
            Some(most.value())
        };
        let left = |c: &CsiStorageCapacity| c.capacity.as_ref().map(Quantity::value);
        let helps = old.is_none_or(|old| {
            held || most(new) > most(old)
                || left(new) > left(old)
                || old.storage_class_name != new.storage_class_name
                || old.node_topology != new.node_topology
        });
        helps.then(|| Self::Room(&new.storage_class_name))
    }

    /// What is new of what a driver asks for: its room to be looked at, or itself to be where its volumes go.
    pub fn of_driver(old: Option<&'n CsiDriver>, new: Option<&CsiDriver>) -> Option<Self> {
        let old = old?;
        let counts = |d: &CsiDriver| d.spec.storage_capacity == Some(true);
        let demands = |d: &CsiDriver| d.spec.prevent_pod_scheduling_if_missing == Some(true);
        // Also one that is gone: of a driver that isn't known nothing is asked.
        let eased =
            new.is_none_or(|new| (counts(old) && !counts(new)) || (demands(old) && !demands(new)));
        eased.then(|| Self::Eased(&old.metadata.name))
    }

    /// Whether it is worth looking at the pod again.
    pub fn wakes(&self, refused: &Refused) -> bool {
        if let Self::Went(volume) = self {
            return refused.why == Why::Looking || refused.named.contains(*volume);
        }
        match &refused.why {
            Why::Looking => true,
            // A class that is there by now may tell that a claim waits for its pod.
            Why::Claims(Unready::Unbound) => match self {
                Self::Class(name) => refused.classes.contains(*name),
                _ => false,
            },
            Why::Claims(_) => false,
            Why::Nodes(reasons) if reasons.is_empty() => *self == Self::NodeCame,
            Why::Nodes(reasons) => reasons.iter().any(|reason| self.answers(reason, refused)),
        }
    }

    fn answers(&self, reason: &Reason, refused: &Refused) -> bool {
        use Reason as R;
        match (self, reason) {
            // What one pod may use alone is taken wherever it would go.
            (Self::NodeCame, reason) => *reason != R::ClaimInUse,
            (
                Self::NodeChanged { state, .. },
                R::NotReady | R::Unschedulable | R::Taint | R::Pods | R::Resource(_),
            ) => *state,
            (
                Self::NodeChanged { labels, .. },
                R::Affinity | R::VolumeAffinity | R::Zone | R::NoVolume | R::NoSpace,
            ) => *labels,
            (Self::Drivers(drivers), R::NoDriver(name)) => drivers.contains(name.as_str()),
            (Self::Drivers(drivers), R::VolumeCount) => drivers
                .iter()
                .any(|driver| refused.drivers.contains(*driver)),
            (Self::FreeVolume(class), R::NoVolume | R::NoSpace | R::NoDriver(_))
            | (Self::Class(class), R::NoVolume)
            | (Self::Room(class), R::NoSpace) => refused.classes.contains(*class),
            (Self::Eased(driver), R::NoSpace) | (Self::Detached(driver), R::VolumeCount) => {
                refused.drivers.contains(*driver)
            }
            (Self::Eased(driver), R::NoDriver(name)) => driver == name,
            (Self::Left { .. }, R::Pods | R::Resource(_)) => true,
            (Self::Left { pod, .. }, R::DiskConflict) => restrictions::conflict(&refused.pod, pod),
            (Self::Left { pod, .. }, R::ClaimInUse) => shares_claim(&refused.pod, pod),
            (Self::Left { pod, .. }, R::VolumeCount) => {
                pod.claims().next().is_some() || limits::named(pod).next().is_some()
            }
            (Self::Left { pod, given_back }, R::NoVolume) => {
                // Its claim may have been promised a volume where this one can't be.
                !given_back.is_disjoint(&refused.classes) || shares_claim(&refused.pod, pod)
            }
            (Self::Left { given_back, .. }, R::NoSpace | R::NoDriver(_)) => {
                !given_back.is_disjoint(&refused.classes)
            }
            _ => false,
        }
    }
}

fn shares_claim(one: &Pod, other: &Pod) -> bool {
    one.metadata.namespace == other.metadata.namespace
        && one.metadata.uid != other.metadata.uid
        && one
            .claims()
            .any(|(_, mine)| other.claims().any(|(_, theirs)| mine == theirs))
}
