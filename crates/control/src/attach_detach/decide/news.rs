//! What pods that wait for a volume are told: what kube-controller-manager would say, then who
//! has it, and what to do.

use orlop_model::{Pod, meta::Key, well_known};

use super::{Elsewhere, Verdict};

impl Verdict {
    /// What a pod that waits is told.
    pub fn news(&self, volume: &str, pod: &Pod) -> Option<String> {
        let node = &pod.spec.node_name;
        let failed = |why: &str| {
            Some(format!(
                "AttachVolume.Attach failed for volume \"{volume}\" : {why}"
            ))
        };
        match self {
            Self::Held | Self::Attach | Self::Leaving { trouble: None } => None,
            Self::Leaving {
                trouble: Some(trouble),
            } => Some(format!(
                "Waiting for detach for volume \"{volume}\" It was attached to node {node} before, \
                 and the last try to detach it failed: {trouble}"
            )),
            Self::Refused(message) => failed(message),
            Self::Full(limit) => failed(&format!(
                "node {node} has as many volumes of this driver as it can bear ({limit}, as CSINode \
                 {node} says); end a pod with such a volume there, or place this one elsewhere"
            )),
            Self::NoDriver => failed(&format!(
                "the driver is not registered on node {node} (CSINode {node} does not name it); see \
                 that its node plugin runs there"
            )),
            Self::Elsewhere(elsewhere) => Some(format!(
                "Waiting for detach for volume \"{volume}\" {}",
                elsewhere.told_to(pod)
            )),
        }
    }
}

impl Elsewhere {
    /// Names of pods are for their own namespace only.
    fn told_to(&self, pod: &Pod) -> String {
        let (near, far): (Vec<&Key>, Vec<&Key>) = self
            .users
            .iter()
            .partition(|user| user.namespace == pod.metadata.namespace);
        let names: Vec<&str> = near.iter().map(|key| key.name.as_str()).collect();
        let mut text = match (names.is_empty(), far.len()) {
            (true, 0) => "Volume is already exclusively attached to one node, waiting on detach \
                          before it can be attached to another node"
                .to_owned(),
            (true, far) => {
                format!("Volume is already used by {far} pod(s) in different namespaces")
            }
            (false, 0) => format!("Volume is already used by pod(s) {}", names.join(", ")),
            (false, far) => format!(
                "Volume is already used by pod(s) {} and {far} pod(s) in different namespaces",
                names.join(", ")
            ),
        };
        let on = self.nodes.join(", ");
        let advice = match (self.users.is_empty(), &self.trouble) {
            (_, Some(trouble)) => format!("the last try to detach it failed: {trouble}"),
            (false, None) => "its access modes are for one node: end those pods, place this one \
                              there as well, or use a volume with ReadWriteMany"
                .to_owned(),
            (true, None) => format!(
                "it comes off as soon as that node has unmounted it; if the node is off for good, \
                 delete its object or taint it {}",
                well_known::OUT_OF_SERVICE
            ),
        };
        text.push_str(&format!(". It is attached to {on}; {advice}"));
        text
    }
}
