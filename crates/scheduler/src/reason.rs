//! Why a node won't do, and why a pod can't be placed, in the original's words.

use std::collections::BTreeMap;

/// Why one node won't do.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, thiserror::Error)]
pub enum Reason {
    /// It doesn't answer, or says so itself.
    #[error("node(s) were not ready")]
    NotReady,
    /// Its administrator wants no new pods.
    #[error("node(s) were unschedulable")]
    Unschedulable,
    /// It has a taint that the pod doesn't bear.
    #[error("node(s) had untolerated taint(s)")]
    Taint,
    /// It isn't among those that the pod wants.
    #[error("node(s) didn't match Pod's node affinity/selector")]
    Affinity,
    /// It is full.
    #[error("Too many pods")]
    Pods,
    /// It has too little of something.
    #[error("Insufficient {0}")]
    Resource(String),
    /// Another pod there has a disk that the pod names.
    #[error("node(s) had no available disk")]
    DiskConflict,
    /// Somebody else uses a claim that only one pod may use.
    #[error(
        "node(s) unavailable due to PersistentVolumeClaim with ReadWriteOncePod access mode \
         already in-use by another pod"
    )]
    ClaimInUse,
    /// Too many volumes would be attached.
    #[error("node(s) exceed max volume count")]
    VolumeCount,
    /// A bound volume's object is gone.
    #[error("node(s) unavailable due to one or more pvc(s) bound to non-existent pv(s)")]
    VolumeGone,
    /// A bound volume can't be reached from it.
    #[error("node(s) didn't match PersistentVolume's node affinity")]
    VolumeAffinity,
    /// No free volume fits there, and none can be made.
    #[error("node(s) didn't find available persistent volumes to bind")]
    NoVolume,
    /// There is too little room for a new volume.
    #[error("node(s) did not have enough free storage")]
    NoSpace,
    /// It isn't in a bound volume's zone.
    #[error("node(s) had no available volume zone")]
    Zone,
    /// The driver of a volume doesn't run there.
    #[error("{0} CSI driver is not installed on the node")]
    NoDriver(String),
}

impl Reason {
    /// Whether the node would do but for where the pod's volumes are or can be had.
    pub fn is_of_volumes(&self) -> bool {
        matches!(self, Self::VolumeAffinity | Self::NoVolume | Self::NoSpace)
    }
}

/// Why a pod's claims rule every node out.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Unready {
    /// There is no such claim.
    #[error("persistentvolumeclaim \"{0}\" not found")]
    Missing(String),
    /// The claim that is made for the pod isn't there yet.
    #[error("waiting for ephemeral volume controller to create the persistentvolumeclaim \"{0}\"")]
    NotMade(String),
    /// The claim of that name wasn't made for the pod.
    #[error("PVC {claim} was not created for pod {pod} (pod is not owner)")]
    NotOurs {
        /// The claim.
        claim: String,
        /// The pod.
        pod: String,
    },
    /// The claim has lost its volume.
    #[error(
        "persistentvolumeclaim \"{claim}\" bound to non-existent persistentvolume \"{volume}\""
    )]
    Lost {
        /// The claim.
        claim: String,
        /// The volume.
        volume: String,
    },
    /// The claim is going.
    #[error("persistentvolumeclaim \"{0}\" is being deleted")]
    Deleting(String),
    /// The claim binds without a pod's help, and hasn't yet.
    #[error("pod has unbound immediate PersistentVolumeClaims")]
    Unbound,
}

/// Why a pod can't be placed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Refusal {
    /// Its claims rule every node out.
    Claims(Unready),
    /// Every node has its reasons.
    Nodes {
        /// By node.
        reasons: BTreeMap<String, Vec<Reason>>,
        /// What would have helped.
        hints: Vec<String>,
    },
}

impl Refusal {
    /// What the pod's user is told.
    pub fn message(&self, nodes: usize) -> String {
        if nodes == 0 {
            return "no nodes available to schedule pods".to_owned();
        }
        let why = match self {
            Self::Claims(unready) => unready.to_string(),
            Self::Nodes { reasons, .. } => {
                let mut counts: BTreeMap<String, usize> = BTreeMap::new();
                for reason in reasons.values().flatten() {
                    *counts.entry(reason.to_string()).or_default() += 1;
                }
                let mut counted: Vec<String> = counts
                    .into_iter()
                    .map(|(reason, count)| format!("{count} {reason}"))
                    .collect();
                counted.sort();
                counted.join(", ")
            }
        };
        let mut message = format!("0/{nodes} nodes are available: {why}.");
        if let Self::Nodes { hints, .. } = self {
            for hint in hints {
                message.push_str(" Note: ");
                message.push_str(hint);
                message.push('.');
            }
        }
        message
    }
}
