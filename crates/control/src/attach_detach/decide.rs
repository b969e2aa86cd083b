//! The difference between wanted and standing, as steps.

use std::{collections::BTreeMap, collections::BTreeSet, sync::Arc};

use orlop_model::{Kind, VolumeAttachment, meta::Key};

use super::{
    actual::{self, Room},
    by_word,
    desired::{Wish, Wishes},
};

mod news;
mod node;

pub use node::{Force, NodeDecision, NodeView, Release, Standing, decide_node};

/// Everything that a decision about some storage looks at.
#[derive(Debug, Clone)]
pub struct VolumeView {
    /// Whether only one node at a time may have it.
    pub exclusive: bool,
    /// Whether its driver wants it attached at all.
    pub attachable: bool,
    /// Who wants it where; only nodes that exist and leave attaching to us.
    pub wishes: Wishes,
    /// Its attachments, whoever made them and however far they are.
    pub attachments: Vec<Arc<VolumeAttachment>>,
    /// Whether these nodes can bear one more; those that aren't here can.
    pub rooms: BTreeMap<String, Room>,
}

/// What a volume's pods on one node have to expect.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// The attachment stands, or is on its way.
    Held,
    /// The attachment must be made.
    Attach,
    /// An older attachment to the same node must first be gone.
    Leaving {
        /// Why the last try to detach it failed.
        trouble: Option<String>,
    },
    /// Another node has it, and only one may.
    Elsewhere(Elsewhere),
    /// The driver refused; the attacher tries again.
    Refused(String),
    /// The node has as many volumes of the driver as it can bear.
    Full(usize),
    /// The driver isn't registered on the node.
    NoDriver,
}

/// Who has a volume.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Elsewhere {
    /// The nodes.
    pub nodes: Vec<String>,
    /// The pods there that want it.
    pub users: Vec<Key>,
    /// Why the last try to detach it failed.
    pub trouble: Option<String>,
}

impl Elsewhere {
    /// Whether nobody there wants it any more, so that it may come off at any moment.
    pub fn is_let_go(&self) -> bool {
        self.users.is_empty() && self.trouble.is_none()
    }
}

/// Decides for each node where a volume is wanted.
pub fn decide_volume(view: &VolumeView) -> Vec<(String, Verdict)> {
    if !view.attachable {
        return Vec::new();
    }
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
        let here = view.attachments.iter();
        let here = here.filter(|a| a.spec.node_name == *node);
        let (leaving, staying): (Vec<_>, Vec<_>) = here.partition(|a| a.metadata.is_deleting());
        // Of one that somebody else made the node isn't told: it takes one of ours as well. But whoever's is
        // being detached, ours would go with it.
        let mine = staying.into_iter().find(|a| is_told_of(a));
        let others: Vec<&str> = holders.iter().copied().filter(|h| h != node).collect();
        let verdict = match (mine, leaving.first(), view.rooms.get(node)) {
            (Some(a), _, _) => match (&a.status.attach_error, a.status.attached) {
                (Some(error), false) => Verdict::Refused(error.message.clone()),
                _ => Verdict::Held,
            },
            (None, Some(leaving), _) => Verdict::Leaving {
                trouble: trouble(leaving),
            },
            (None, None, _) if view.exclusive && !others.is_empty() => {
                Verdict::Elsewhere(elsewhere(view, &others))
            }
            (None, None, Some(Room::Full(limit))) => Verdict::Full(*limit),
            (None, None, Some(Room::NoDriver)) => Verdict::NoDriver,
            (None, None, Some(Room::Free) | None) => {
                holders.insert(node);
                Verdict::Attach
            }
        };
        verdicts.push((node.clone(), verdict));
    }
    verdicts
}

/// Whether its node is told of an attachment.
fn is_told_of(attachment: &VolumeAttachment) -> bool {
    by_word::is_standing(attachment) || actual::is_ours(attachment)
}

fn age(wish: &Wish) -> (Option<jiff::Timestamp>, Key) {
    (wish.pod.metadata.creation_timestamp, wish.pod.key())
}

fn trouble(attachment: &VolumeAttachment) -> Option<String> {
    let error = attachment.status.detach_error.as_ref();
    error.map(|error| error.message.clone())
}

fn elsewhere(view: &VolumeView, nodes: &[&str]) -> Elsewhere {
    let wishes = nodes.iter().filter_map(|node| view.wishes.get(*node));
    let leaving = view
        .attachments
        .iter()
        .filter(|a| a.metadata.is_deleting() && nodes.contains(&a.spec.node_name.as_str()));
    Elsewhere {
        nodes: nodes.iter().map(|node| (*node).to_owned()).collect(),
        users: wishes.flatten().map(|wish| wish.pod.key()).collect(),
        trouble: leaving.filter_map(|a| trouble(a)).next(),
    }
}
