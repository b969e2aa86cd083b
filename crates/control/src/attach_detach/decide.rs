//! The difference between wanted and standing, as steps.

use std::{collections::BTreeSet, sync::Arc};

use orlop_model::{
    Kind, Node, Pod, Volume, VolumeAttachment, access, meta::Key, node::AttachedVolume,
};

use super::{actual, desired::Wishes};
use crate::Evidence;

/// Everything that a decision about a volume looks at.
#[derive(Debug, Clone)]
pub struct VolumeView {
    /// The volume.
    pub volume: Arc<Volume>,
    /// Whether its driver wants it attached at all.
    pub attachable: bool,
    /// Who wants it where; only nodes that exist.
    pub wishes: Wishes,
    /// Its attachments, whoever made them and however far they are.
    pub attachments: Vec<Arc<VolumeAttachment>>,
}

/// What a volume's pods on one node have to expect.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// The attachment stands, or is on its way.
    Held,
    /// The attachment must be made.
    Attach,
    /// An older attachment to the same node must first be gone.
    Leaving,
    /// Another node has it, and only one may.
    Elsewhere {
        /// The pods there that want it.
        users: Vec<Key>,
    },
    /// The driver refused; the attacher tries again.
    Refused(String),
}

/// Decides for each node where a volume is wanted.
pub fn decide_volume(view: &VolumeView) -> Vec<(String, Verdict)> {
    if !view.attachable {
        return Vec::new();
    }
    let exclusive = !access::allows_many_nodes(&view.volume.spec.access_modes);
    let mut nodes: Vec<&String> = view.wishes.keys().collect();
    // Of several nodes, the one whose pod has waited longest.
    nodes.sort_by_key(|node| (view.wishes[*node].iter().map(age).min(), (*node).clone()));
    let mut holders: BTreeSet<&str> = view
        .attachments
        .iter()
        .map(|a| a.spec.node_name.as_str())
        .collect();
    let mut verdicts = Vec::new();
    for node in nodes {
        let mine = view.attachments.iter().find(|a| a.spec.node_name == *node);
        let others: Vec<&str> = holders.iter().copied().filter(|h| h != node).collect();
        let verdict = match mine {
            Some(a) if a.metadata.is_deleting() => Verdict::Leaving,
            Some(a) => match (&a.status.attach_error, a.status.attached) {
                (Some(error), false) => Verdict::Refused(error.message.clone()),
                _ => Verdict::Held,
            },
            None if exclusive && !others.is_empty() => Verdict::Elsewhere {
                users: users_on(&view.wishes, &others),
            },
            None => {
                holders.insert(node);
                Verdict::Attach
            }
        };
        verdicts.push((node.clone(), verdict));
    }
    verdicts
}

fn age(pod: &Arc<Pod>) -> (Option<jiff::Timestamp>, Key) {
    (pod.metadata.creation_timestamp, pod.key())
}

fn users_on(wishes: &Wishes, nodes: &[&str]) -> Vec<Key> {
    let on = nodes.iter().filter_map(|node| wishes.get(*node)).flatten();
    on.map(|pod| pod.key()).collect()
}

impl Verdict {
    /// What a pod that waits is told.
    pub fn news(&self, volume: &str, pod: &Pod) -> Option<String> {
        let why = match self {
            Self::Held | Self::Attach | Self::Leaving => return None,
            Self::Refused(message) => {
                return Some(format!(
                    "AttachVolume.Attach failed for volume \"{volume}\" : {message}"
                ));
            }
            Self::Elsewhere { users } => {
                let (near, far): (Vec<&Key>, Vec<&Key>) = users
                    .iter()
                    .partition(|user| user.namespace == pod.metadata.namespace);
                let names: Vec<&str> = near.iter().map(|key| key.name.as_str()).collect();
                match (names.is_empty(), far.len()) {
                    (true, 0) => "Volume is already exclusively attached to one node, waiting \
                                  on detach before it can be attached to another node"
                        .to_owned(),
                    (true, far) => {
                        format!("Volume is already used by {far} pod(s) in different namespaces")
                    }
                    (false, 0) => {
                        format!("Volume is already used by pod(s) {}", names.join(", "))
                    }
                    (false, far) => format!(
                        "Volume is already used by pod(s) {} and {far} pod(s) in different \
                         namespaces",
                        names.join(", ")
                    ),
                }
            }
        };
        Some(format!("Waiting for detach for volume \"{volume}\" {why}"))
    }
}

/// Everything that a decision about a node's attachments looks at.
#[derive(Debug, Clone)]
pub struct NodeView {
    /// The node; `None` if it is gone.
    pub node: Option<Arc<Node>>,
    /// The attachments to it that this controller made.
    pub attachments: Vec<Standing>,
    /// Where the node was read.
    pub evidence: Evidence,
}

/// One attachment to a node.
#[derive(Debug, Clone)]
pub struct Standing {
    /// The attachment.
    pub attachment: Arc<VolumeAttachment>,
    /// The node's name for the volume, where it has or can have one.
    pub unique_name: Option<String>,
    /// Whether a pod on the node wants it.
    pub wanted: bool,
    /// Whether it is being given back, as far as we know or must fear.
    pub leaving: bool,
}

/// What shall be done for a node.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct NodeDecision {
    /// What the node must be told is attached, if it isn't what it was told.
    pub tell: Option<Vec<AttachedVolume>>,
    /// The attachments to give back, once the node was told and the API server confirms
    /// that the node doesn't use them.
    pub detach: Vec<Arc<VolumeAttachment>>,
}

/// Decides what a node is told, and what is given back.
pub fn decide_node(view: &NodeView) -> NodeDecision {
    let mut decision = NodeDecision::default();
    let mut attached: Vec<AttachedVolume> = Vec::new();
    for standing in &view.attachments {
        if standing.leaving {
            continue;
        }
        if standing.wanted || in_use(view, standing) {
            if let (true, Some(name)) = (
                standing.attachment.status.attached,
                standing.unique_name.clone(),
            ) {
                attached.push(AttachedVolume {
                    name,
                    device_path: String::new(),
                });
            }
        } else {
            decision.detach.push(standing.attachment.clone());
        }
    }
    let Some(node) = &view.node else {
        return decision;
    };
    let told = &node.status.volumes_attached;
    attached.extend(told.iter().filter(|v| !actual::is_csi(&v.name)).cloned());
    attached.sort();
    attached.dedup();
    let mut sorted = told.clone();
    sorted.sort();
    if attached != sorted {
        decision.tell = Some(attached);
        // First the node is told; what is given back is decided on its answer.
        if view.evidence == Evidence::Live {
            decision.detach.clear();
        }
    }
    decision
}

/// Whether the node says that it uses the volume. One that is gone or off uses nothing.
fn in_use(view: &NodeView, standing: &Standing) -> bool {
    view.node
        .as_ref()
        .filter(|node| !actual::is_off(node))
        .is_some_and(|node| {
            let name = standing.unique_name.as_ref();
            name.is_some_and(|name| node.status.volumes_in_use.contains(name))
        })
}
