//! What would have helped: said after the original's sentence, for whoever reads the event.

use std::collections::{BTreeMap, BTreeSet};

use orlop_model::{AccessMode, Claim, Quantity, Volume};

use crate::{
    assign::{NodeFacts, View},
    limits,
    reason::{Reason, Unready},
    volume_binding::{ClaimFacts, Sorted},
    zone,
};

mod fitting;
mod joint;

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
    let of_volumes = told.iter().any(|reason| reason.is_of_volumes());
    let apart = of_volumes.then(|| joint::apart(view, sorted)).flatten();
    let each = apart.is_none();
    hints.extend(apart);
    if each && told.contains(&Reason::VolumeAffinity) {
        let bound = sorted.bound.iter();
        hints.extend(bound.filter_map(|(facts, _)| reach(view, facts)));
        let late = sorted.late.iter();
        hints.extend(late.filter_map(|late| fitting::reserved(view, late)));
    }
    if told.contains(&Reason::ClaimInUse) {
        let all = sorted.bound.iter().chain(&sorted.late);
        let cure = match within_reach(view, sorted, reasons) {
            true => "; end that one, or use a claim with ReadWriteOnce",
            false => "",
        };
        hints.extend(all.filter_map(|(facts, _)| Some(format!("{}{cure}", user(facts)?))));
        // Ending the other would only bring out this.
        if cure.is_empty() && !told.contains(&Reason::VolumeAffinity) {
            let bound = sorted.bound.iter();
            hints.extend(bound.filter_map(|(facts, _)| reach(view, facts)));
        }
    }
    if told.contains(&Reason::VolumeCount) {
        hints.extend(fullest(view, sorted));
    }
    if told.contains(&Reason::Zone) {
        let bound = sorted.bound.iter();
        hints.extend(bound.filter_map(|(facts, _)| zones(facts)));
    }
    if each && told.contains(&Reason::NoVolume) {
        let late = sorted.late.iter();
        hints.extend(late.filter_map(|late| fitting::fitting(view, late, reasons)));
        hints.extend(joint::rivals(view, sorted, reasons));
    }
    if each && told.contains(&Reason::NoSpace) {
        let room = |(facts, claim): &(&ClaimFacts, &Claim)| roomiest(view, facts, claim);
        hints.extend(sorted.late.iter().filter_map(room));
        hints.extend(joint::together(view, sorted));
    }
    hints
}

/// The nodes from where a volume can be reached.
fn reachable<'a>(view: &'a View, volume: &Volume) -> Vec<&'a str> {
    let nodes = view.nodes.iter().map(|facts| &facts.node.metadata);
    let near = nodes.filter(|node| volume.reachable_from(&node.name, &node.labels));
    near.map(|node| node.name.as_str()).collect()
}

/// Some nodes by name, the rest by number.
fn list(nodes: &[&str]) -> String {
    let named = nodes[..nodes.len().min(NAMED)].join(", ");
    match nodes.len().saturating_sub(NAMED) {
        0 => named,
        more => format!("{named} and {more} more"),
    }
}

/// From where a bound volume can be reached.
fn reach(view: &View, facts: &ClaimFacts) -> Option<String> {
    let volume = facts.volume.as_ref()?;
    let near = reachable(view, volume);
    if near.len() == view.nodes.len() {
        return None;
    }
    let claim = &facts.key.name;
    let volume = &volume.metadata.name;
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

/// Whether the pod's bound volumes are where nothing but another pod's use of a claim keeps it from.
fn within_reach(view: &View, sorted: &Sorted<'_>, reasons: &BTreeMap<String, Vec<Reason>>) -> bool {
    let mut nodes = view.nodes.iter().map(|facts| &*facts.node);
    nodes.any(|node| {
        let (name, labels) = (&node.metadata.name, &node.metadata.labels);
        let mut volumes = sorted.bound.iter().filter_map(|(f, _)| f.volume.as_deref());
        reasons
            .get(name)
            .is_some_and(|all| **all == [Reason::ClaimInUse])
            && volumes.all(|v| v.reachable_from(name, labels) && zone::allows(v, labels))
    })
}

/// Who has a claim that is for one pod.
fn user(facts: &ClaimFacts) -> Option<String> {
    let (claim, user) = (facts.claim.as_ref()?, facts.user.as_ref()?);
    let alone = claim
        .spec
        .access_modes
        .contains(&AccessMode::ReadWriteOncePod);
    let name = &facts.key.name;
    alone.then(|| format!("claim \"{name}\" is for one pod at a time, and {user} has it"))
}

/// Of the nodes that would have too many volumes, the one that lacks the fewest places.
fn fullest(view: &View, sorted: &Sorted<'_>) -> Option<String> {
    let brought = limits::brought(&view.pod, sorted);
    let excess = |node: &NodeFacts| {
        let csi_node = node.csi_node.as_deref();
        let excess = limits::excess(&brought, &node.attached, csi_node)?;
        let lacks = (excess.there + excess.more).saturating_sub(excess.limit);
        Some((lacks, node.node.metadata.name.clone(), excess))
    };
    let all = view.nodes.iter().filter_map(excess);
    let (_, node, excess) = all.min_by(|one, other| (one.0, &one.1).cmp(&(other.0, &other.1)))?;
    let limits::Excess {
        driver,
        limit,
        there,
        more,
    } = excess;
    Some(format!(
        "{node} can have {limit} volumes of driver \"{driver}\" and has {there}; this pod would bring \
         {more} more"
    ))
}

/// Where a bound volume's labels say that it is.
fn zones(facts: &ClaimFacts) -> Option<String> {
    let volume = facts.volume.as_ref()?;
    let places = zone::places(volume);
    let (claim, volume) = (&facts.key.name, &volume.metadata.name);
    (!places.is_empty()).then(|| {
        let places = places.join(", ");
        format!("claim \"{claim}\" has the volume \"{volume}\", which is in {places}")
    })
}

/// Which claims a pod waits for that bind without its help.
pub fn of_claims(claims: &[ClaimFacts], unready: &Unready) -> Option<String> {
    if *unready != Unready::Unbound {
        return None;
    }
    let unbound = |facts: &&ClaimFacts| {
        let waits = facts.class.as_ref().is_some_and(|c| c.waits_for_consumer());
        let named = |claim: &Claim| !claim.spec.volume_name.is_empty();
        let claim = facts.claim.as_deref();
        claim.is_some_and(|claim| !claim.is_fully_bound() && (!waits || named(claim)))
    };
    let names: Vec<&str> = claims
        .iter()
        .filter(unbound)
        .map(|facts| facts.key.name.as_str())
        .collect();
    (!names.is_empty()).then(|| {
        let names = names.join(", ");
        format!(" Note: not bound: {names}; \"kubectl describe pvc\" tells why.")
    })
}

/// Which claims a pod waits for that was promised a node.
pub fn awaited(claims: &[ClaimFacts], node: &str) -> Option<String> {
    let unbound = |facts: &&ClaimFacts| {
        let claim = facts.claim.as_deref();
        claim.is_some_and(|claim| !claim.is_fully_bound())
    };
    let unbound = claims.iter().filter(unbound);
    let names: Vec<&str> = unbound.map(|facts| facts.key.name.as_str()).collect();
    (!names.is_empty()).then(|| {
        let names = names.join(", ");
        format!(
            "it shall run on {node}, once its volumes are bound; not bound: {names}; \"kubectl describe \
             pvc\" tells why"
        )
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
