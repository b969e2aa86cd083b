//! What one node is told, and what is given back from it.

use std::sync::Arc;

use orlop_model::{Node, VolumeAttachment, node::AttachedVolume};

use super::super::{actual, flex};
use crate::Evidence;

/// Everything that a decision about a node's attachments looks at.
#[derive(Debug, Clone)]
pub struct NodeView {
    /// The node; `None` if it is gone.
    pub node: Option<Arc<Node>>,
    /// The attachments to it that this controller made.
    pub attachments: Vec<Standing>,
    /// Whether further attachments to it are being asked for.
    pub asking: bool,
    /// Where the node was read.
    pub evidence: Evidence,
}

impl NodeView {
    /// Whether a name in the node's list is one of ours to keep. Of FlexVolumes those are that are on
    /// record.
    fn serves(&self, name: &str) -> bool {
        let mut standings = self.attachments.iter();
        actual::is_served(name) || standings.any(|s| s.unique_name.as_deref() == Some(name))
    }

    /// The attachments that stand and that the node hasn't been told of.
    pub fn untold(&self) -> Vec<&str> {
        let told = self
            .node
            .iter()
            .flat_map(|node| &node.status.volumes_attached);
        let told: Vec<&String> = told.map(|volume| &volume.name).collect();
        let standing = self
            .attachments
            .iter()
            .filter(|s| s.attachment.status.attached);
        standing
            .filter(|s| {
                s.unique_name
                    .as_ref()
                    .is_some_and(|name| !told.contains(&name))
            })
            .map(|s| &*s.attachment.metadata.name)
            .collect()
    }
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
    /// Whether nobody has wanted it for longer than a node that isn't well is waited for.
    pub overdue: bool,
}

/// What shall be done for a node.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct NodeDecision {
    /// What the node must be told is attached, if it isn't what it was told.
    pub tell: Option<Vec<AttachedVolume>>,
    /// Whether that can wait a moment: nothing leaves the list, and more is about to come onto it.
    pub more_to_come: bool,
    /// The attachments to give back, once the node was told and the API server confirms
    /// that the node doesn't use them.
    pub detach: Vec<Release>,
}

/// An attachment to give back.
#[derive(Debug, Clone, PartialEq)]
pub struct Release {
    /// The attachment.
    pub attachment: Arc<VolumeAttachment>,
    /// Why it isn't waited for the node's word, if it isn't.
    pub force: Option<Force>,
}

/// Why a node's word isn't waited for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Force {
    /// An administrator says that it is off.
    OutOfService,
    /// It isn't ready, and was waited for long enough.
    Timeout,
}

/// Decides what a node is told, and what is given back.
pub fn decide_node(view: &NodeView) -> NodeDecision {
    let mut decision = NodeDecision::default();
    let node = view.node.as_deref();
    if node.is_some_and(|node| !actual::is_managed(node)) {
        return decision;
    }
    let listed = |standing: &Standing| {
        let told = node.iter().flat_map(|node| &node.status.volumes_attached);
        let mut told = told.map(|volume| &volume.name);
        told.any(|name| Some(name) == standing.unique_name.as_ref())
    };
    let mut attached: Vec<AttachedVolume> = Vec::new();
    let mut coming = view.asking;
    for standing in &view.attachments {
        if standing.leaving {
            continue;
        }
        let fate = match standing.wanted {
            true => Fate::Stays,
            false => fate(node, standing),
        };
        match fate {
            Fate::Stays => {
                attached.extend(told(standing));
                coming |= standing.wanted && is_on_its_way(&standing.attachment);
            }
            // First the node is told; what is given back is decided on its answer.
            Fate::Goes(_) if view.evidence == Evidence::Live && listed(standing) => {}
            Fate::Goes(force) => decision.detach.push(Release {
                attachment: standing.attachment.clone(),
                force,
            }),
        }
    }
    let Some(node) = node else {
        return decision;
    };
    let told = &node.status.volumes_attached;
    let others = told.iter().filter(|v| !view.serves(&v.name));
    attached.extend(others.cloned());
    attached.sort();
    attached.dedup();
    let mut sorted = told.clone();
    sorted.sort();
    if attached != sorted {
        decision.more_to_come = coming && sorted.iter().all(|volume| attached.contains(volume));
        decision.tell = Some(attached);
    }
    decision
}

fn is_on_its_way(attachment: &VolumeAttachment) -> bool {
    !attachment.status.attached && attachment.status.attach_error.is_none()
}

enum Fate {
    Stays,
    Goes(Option<Force>),
}

/// What becomes of an attachment that nobody wants. A node that is gone uses nothing; what one
/// says that is off doesn't count.
fn fate(node: Option<&Node>, standing: &Standing) -> Fate {
    let Some(node) = node else {
        return Fate::Goes(None);
    };
    if actual::is_off(node) {
        return Fate::Goes(Some(Force::OutOfService));
    }
    let name = standing.unique_name.as_ref();
    match name.is_some_and(|name| node.status.volumes_in_use.contains(name)) {
        false => Fate::Goes(None),
        true if standing.overdue && !node.is_ready() => Fate::Goes(Some(Force::Timeout)),
        true => Fate::Stays,
    }
}

fn told(standing: &Standing) -> Option<AttachedVolume> {
    let attached = standing.attachment.status.attached;
    let name = standing.unique_name.clone().filter(|_| attached)?;
    Some(AttachedVolume {
        name,
        device_path: flex::device(&standing.attachment),
    })
}
