//! Which node a pod gets, and what is still missing before it can be placed there.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use orlop_model::{Claim, CsiNode, Node, Pod, Volume};

use crate::{
    NAME,
    filter::{self, Tally},
    hints,
    ledger::Promise,
    limits::{self, Attached},
    reason::{Reason, Refusal},
    restrictions, score,
    volume_binding::{self, ClaimFacts, Plan, Sorted, Supply},
};

/// Everything that placing a pod looks at.
#[derive(Debug, Clone)]
pub struct View {
    /// The pod.
    pub pod: Arc<Pod>,
    /// Its claims.
    pub claims: Vec<ClaimFacts>,
    /// All nodes.
    pub nodes: Vec<NodeFacts>,
    /// What the pod was promised before.
    pub promise: Option<Promise>,
    /// Whether that has waited for its volumes for longer than they may take.
    pub overdue: bool,
    /// Drivers that want pods with their volumes only where they are registered.
    pub demanding: BTreeSet<String>,
}

/// A node, and what placing must know of it.
#[derive(Debug, Clone, Default)]
pub struct NodeFacts {
    /// The node.
    pub node: Arc<Node>,
    /// Its drivers.
    pub csi_node: Option<Arc<CsiNode>>,
    /// What is taken.
    pub tally: Tally,
    /// Which volumes it has.
    pub attached: Attached,
    /// The pods there and those that were promised to it, where the pod names disks itself.
    pub neighbours: Vec<Arc<Pod>>,
}

/// What shall be done about a pod.
#[derive(Debug, Clone, PartialEq)]
pub enum Decision {
    /// It is none of our business, or everything is done.
    Leave,
    /// Promise it this node; the next look tells the steps.
    Promise {
        /// The node.
        node: String,
        /// What its late claims get there.
        plan: Plan,
    },
    /// Write these, then wait for its claims.
    Prepare {
        /// The node.
        node: String,
        /// In this order; none if everything is written.
        steps: Vec<Step>,
    },
    /// Place it.
    Place {
        /// The node.
        node: String,
    },
    /// What was promised can't be had any more: start again, not at once.
    Reconsider,
    /// Its volumes can't be had there: say so, and start again, not at once.
    GiveUp(Setback),
    /// No node will do.
    Refuse(Refusal),
}

/// Why a promise came to nothing, in the original's words.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Setback {
    /// The volumes took too long.
    #[error(
        "running PreBind plugin \"VolumeBinding\": binding volumes: context deadline exceeded. \
         Note: claims {} are not bound for node {node} yet; their own events tell why",
        claims.join(", ")
    )]
    Overdue {
        /// The node that the pod was promised.
        node: String,
        /// The claims that aren't bound.
        claims: Vec<String>,
    },
    /// The provisioner wants another node.
    #[error(
        "running PreBind plugin \"VolumeBinding\": binding volumes: provisioning failed for PVC \
         \"{claim}\". Note: its volume could not be made on {node}; \"kubectl describe pvc {claim}\" \
         tells why"
    )]
    NotMade {
        /// The node that the pod was promised.
        node: String,
        /// The claim.
        claim: String,
    },
}

/// A write that a claim's binding starts with.
#[derive(Debug, Clone, PartialEq)]
pub enum Step {
    /// The volume names the claim.
    ReserveVolume {
        /// The claim.
        claim: Arc<Claim>,
        /// The volume.
        volume: Arc<Volume>,
    },
    /// The claim names the node, for the provisioner.
    SelectNode {
        /// The claim.
        claim: Arc<Claim>,
    },
}

/// Whether a pod waits for this scheduler.
pub fn is_ours(pod: &Pod) -> bool {
    !pod.is_placed()
        && !pod.is_finished()
        && !pod.metadata.is_deleting()
        && pod.spec.scheduling_gates.is_empty()
        && matches!(pod.spec.scheduler_name.as_str(), "" | NAME)
}

/// Decides about a pod.
pub fn decide(view: &View) -> Decision {
    if !is_ours(&view.pod) {
        return Decision::Leave;
    }
    let sorted = match volume_binding::sort(&view.pod, &view.claims) {
        Ok(sorted) => sorted,
        Err(_) if view.promise.is_some() => return Decision::Reconsider,
        Err(unready) => return Decision::Refuse(Refusal::Claims(unready)),
    };
    match &view.promise {
        Some(promise) if promise.placed => Decision::Leave,
        Some(promise) => keep(view, &sorted, promise),
        None => choose(view, &sorted),
    }
}

/// Of the nodes that will do, the best.
fn choose(view: &View, sorted: &Sorted<'_>) -> Decision {
    let brought = limits::brought(&view.pod, sorted);
    let mut reasons = BTreeMap::new();
    let mut best: Option<((Reverse<i64>, &str), Plan)> = None;
    for facts in &view.nodes {
        let name = facts.node.metadata.name.as_str();
        match fit(view, sorted, &brought, facts) {
            Ok(plan) => {
                let rank = (Reverse(score::score(facts, sorted, &plan)), name);
                if best.as_ref().is_none_or(|(least, _)| rank < *least) {
                    best = Some((rank, plan));
                }
            }
            Err(why) => {
                reasons.insert(name.to_owned(), why);
            }
        }
    }
    match best {
        Some(((_, node), plan)) => Decision::Promise {
            node: node.to_owned(),
            plan,
        },
        None => Decision::Refuse(Refusal::Nodes {
            hints: hints::hints(view, sorted, &reasons),
            reasons,
        }),
    }
}

fn fit(
    view: &View,
    sorted: &Sorted<'_>,
    brought: &Attached,
    facts: &NodeFacts,
) -> Result<Plan, Vec<Reason>> {
    let reasons = filter::check(&view.pod, &facts.node, &facts.tally);
    if !reasons.is_empty() {
        return Err(reasons);
    }
    // In the original's order; the first that fails is the one that is told.
    let one = |reason| vec![reason];
    let csi_node = facts.csi_node.as_deref();
    let conflict = |there: &Arc<Pod>| restrictions::conflict(&view.pod, there);
    if facts.neighbours.iter().any(conflict) {
        return Err(one(Reason::DiskConflict));
    }
    volume_binding::unshared(sorted).map_err(one)?;
    limits::installed(brought, &view.demanding, csi_node).map_err(one)?;
    limits::check(brought, &facts.attached, csi_node).map_err(one)?;
    let plan = volume_binding::plan(sorted, &facts.node, csi_node)?;
    volume_binding::in_zone(sorted, &facts.node).map_err(one)?;
    Ok(plan)
}

/// What is missing of a promise.
fn keep(view: &View, sorted: &Sorted<'_>, promise: &Promise) -> Decision {
    let node = view
        .nodes
        .iter()
        .find(|facts| facts.node.metadata.name == promise.node);
    let Some(facts) = node.filter(|facts| facts.node.is_ready()) else {
        return Decision::Reconsider;
    };
    let labels = &facts.node.metadata.labels;
    let promised = |facts: &ClaimFacts| promise.plan.iter().any(|(key, _)| *key == facts.key);
    let names = |facts: &ClaimFacts, volume: &Volume| {
        let claim = facts.claim.as_deref();
        claim.is_some_and(|claim| exactly_reserved(volume, claim))
    };
    let mut unseen = Vec::new();
    for (facts, _) in &sorted.bound {
        match &facts.volume {
            Some(volume) if !volume.reachable_from(&promise.node, labels) => {
                return Decision::Reconsider;
            }
            // The claim is bound, and its volume forgot it: the binder sees to that. Only what was
            // promised is waited for, as in the original.
            Some(volume) if promised(facts) && !names(facts, volume) => {
                unseen.push(facts.key.name.clone());
            }
            Some(_) => {}
            // News of claims may come before news of volumes. One that is truly gone makes the
            // binder call its claim lost.
            None => unseen.push(facts.key.name.clone()),
        }
    }
    if sorted.late.is_empty() && unseen.is_empty() {
        return Decision::Place {
            node: promise.node.clone(),
        };
    }
    let mut steps = Vec::new();
    for (facts, _) in &sorted.late {
        match missing(facts, promise) {
            Ok(step) => steps.extend(step),
            Err(Broken::Changed) => return Decision::Reconsider,
            Err(Broken::NotMade) => {
                return Decision::GiveUp(Setback::NotMade {
                    node: promise.node.clone(),
                    claim: facts.key.name.clone(),
                });
            }
        }
    }
    if view.overdue {
        let late = sorted.late.iter().map(|(facts, _)| facts.key.name.clone());
        return Decision::GiveUp(Setback::Overdue {
            node: promise.node.clone(),
            claims: late.chain(unseen).collect(),
        });
    }
    // Volumes first: a claim that is told its node can't be taken back so easily.
    steps.sort_by_key(|step| matches!(step, Step::SelectNode { .. }));
    Decision::Prepare {
        node: promise.node.clone(),
        steps,
    }
}

/// A promise that can't be kept.
enum Broken {
    /// What it was made on isn't so any more.
    Changed,
    /// The provisioner gave up.
    NotMade,
}

fn missing(facts: &ClaimFacts, promise: &Promise) -> Result<Option<Step>, Broken> {
    let claim = facts.claim.clone().ok_or(Broken::Changed)?;
    let planned = promise.plan.iter().find(|(key, _)| *key == facts.key);
    let (_, supply) = planned.ok_or(Broken::Changed)?;
    match supply {
        Supply::Reserve(planned) => {
            let name = &planned.metadata.name;
            let mut now = facts.candidates.iter();
            let volume = now.find(|v| v.metadata.name == *name);
            let volume = volume.ok_or(Broken::Changed)?;
            if exactly_reserved(volume, &claim) {
                return Ok(None);
            }
            let volume = volume.clone();
            Ok(Some(Step::ReserveVolume { claim, volume }))
        }
        Supply::Provision => match claim.selected_node() {
            Some(node) if node == promise.node => Ok(None),
            None if !promise.told.contains(&facts.key) => Ok(Some(Step::SelectNode { claim })),
            // Told once and not any more: the provisioner wants another node.
            None => Err(Broken::NotMade),
            Some(_) => Err(Broken::Changed),
        },
    }
}

/// Whether the volume names the very claim, uid included.
fn exactly_reserved(volume: &Volume, claim: &Claim) -> bool {
    let owner = volume.spec.claim_ref.as_ref();
    volume.is_reserved_for(claim) && owner.is_some_and(|o| o.uid == claim.metadata.uid)
}
