//! What would have helped: said after the original's sentence, for whoever reads the event.

use std::collections::{BTreeMap, BTreeSet};

use orlop_model::{Claim, Quantity, well_known};

use crate::{
    assign::View,
    reason::Reason,
    volume_binding::{ClaimFacts, Sorted},
};

/// How many nodes are named before the rest is counted.
const NAMED: usize = 3;

/// What is told of a pod's volumes that no node would do for.
pub fn hints(
    view: &View,
    sorted: &Sorted<'_>,
    reasons: &BTreeMap<String, Vec<Reason>>,
) -> Vec<String> {
    let told: BTreeSet<&Reason> = reasons.values().flatten().collect();
    let mut hints = Vec::new();
    if told.contains(&Reason::VolumeAffinity) {
        hints.extend(
            sorted
                .bound
                .iter()
                .filter_map(|(facts, _)| reach(view, facts)),
        );
    }
    if told.contains(&Reason::NoVolume) {
        hints.extend(
            sorted
                .late
                .iter()
                .filter_map(|(facts, claim)| fitting(facts, claim)),
        );
    }
    if told.contains(&Reason::NoSpace) {
        let room = |(facts, claim): &(&ClaimFacts, &Claim)| roomiest(view, facts, claim);
        hints.extend(sorted.late.iter().filter_map(room));
    }
    hints
}

/// From where a bound volume can be reached.
fn reach(view: &View, facts: &ClaimFacts) -> Option<String> {
    let volume = facts.volume.as_ref()?;
    let reaches = |labels, name| volume.reachable_from(name, labels);
    let nodes = view.nodes.iter().map(|facts| &facts.node.metadata);
    let (near, far): (Vec<_>, Vec<_>) = nodes.partition(|node| reaches(&node.labels, &node.name));
    if far.is_empty() {
        return None;
    }
    let claim = &facts.key.name;
    let volume = &volume.metadata.name;
    let near: Vec<&str> = near.iter().map(|node| node.name.as_str()).collect();
    Some(match near.len() {
        0 => format!(
            "claim \"{claim}\" has the volume \"{volume}\", which no node of this cluster can reach"
        ),
        1..=NAMED => format!(
            "claim \"{claim}\" has the volume \"{volume}\", which only {} can reach",
            near.join(", ")
        ),
        more => format!(
            "claim \"{claim}\" has the volume \"{volume}\", which {more} nodes can reach, {} among \
             them",
            near[..NAMED].join(", ")
        ),
    })
}

/// What there is for a claim of a class whose volumes are made by hand.
fn fitting(facts: &ClaimFacts, claim: &Claim) -> Option<String> {
    let class = facts.class.as_ref()?;
    if !matches!(class.provisioner.as_str(), "" | well_known::NO_PROVISIONER) {
        return None;
    }
    let (name, class) = (&facts.key.name, &class.metadata.name);
    let wanted = Quantity::bytes(claim.requested_bytes());
    let free = facts.candidates.iter();
    let largest = free.max_by_key(|volume| volume.capacity_bytes());
    Some(match largest {
        None => format!(
            "claim \"{name}\" asks for {wanted} of class \"{class}\", which has no free volume and \
             makes none by itself"
        ),
        Some(volume) if volume.capacity_bytes() < claim.requested_bytes() => format!(
            "claim \"{name}\" asks for {wanted}; the largest free volume of class \"{class}\" is \
             \"{}\" with {}",
            volume.metadata.name,
            Quantity::bytes(volume.capacity_bytes()),
        ),
        Some(_) => return None,
    })
}

/// The most that a class can give, and where.
fn roomiest(view: &View, facts: &ClaimFacts, claim: &Claim) -> Option<String> {
    let class = facts.class.as_ref()?;
    let (name, class) = (&facts.key.name, &class.metadata.name);
    let wanted = Quantity::bytes(claim.requested_bytes());
    let rooms = view.nodes.iter().filter_map(|node| {
        let room = facts.room().largest(&node.node, 0)?;
        Some((room.max(0), &node.node.metadata.name))
    });
    Some(match rooms.max() {
        None => format!(
            "claim \"{name}\" asks for {wanted} of class \"{class}\", whose driver tells no capacity"
        ),
        Some((room, _)) if room >= claim.requested_bytes() => return None,
        Some((room, node)) => format!(
            "claim \"{name}\" asks for {wanted}; the most that class \"{class}\" can give is {} on \
             {node}",
            Quantity::bytes(room),
        ),
    })
}
