//! What there is for one claim that a pod's place shall decide about.

use std::collections::BTreeMap;

use orlop_model::{
    Claim, Quantity, StorageClass, Volume,
    class::TopologySelectorTerm,
    matching::{self, Place, Timing},
    well_known,
};

use super::{list, reachable};
use crate::{
    assign::View,
    reason::Reason,
    volume_binding::{self, ClaimFacts, Supply},
};

/// What keeps the class's volumes from the claim, or where they would be had.
pub(super) fn fitting(
    view: &View,
    (facts, claim): &(&ClaimFacts, &Claim),
    reasons: &BTreeMap<String, Vec<Reason>>,
) -> Option<String> {
    let class = facts.class.as_ref()?;
    match class.provisioner.as_str() {
        "" | well_known::NO_PROVISIONER => by_hand(view, facts, claim, reasons),
        _ => topology(view, facts, class),
    }
}

/// What there is for a claim of a class whose volumes are made by hand.
fn by_hand(
    view: &View,
    facts: &ClaimFacts,
    claim: &Claim,
    reasons: &BTreeMap<String, Vec<Reason>>,
) -> Option<String> {
    let (name, class) = (&facts.key.name, facts.class.as_ref()?);
    let class = &class.metadata.name;
    let free = || {
        let all = facts.candidates.iter().map(|volume| &**volume);
        all.filter(|volume| volume.spec.claim_ref.is_none())
    };
    if free().next().is_none() {
        let wanted = Quantity::bytes(claim.requested_bytes());
        return Some(format!(
            "claim \"{name}\" asks for {wanted} of class \"{class}\", which has no free volume and \
             makes none by itself"
        ));
    }
    let of_class = matching::of_class(class);
    let largest = match matching::shortage(claim, free(), &of_class) {
        Err(shortage) => return Some(format!("claim \"{name}\": {shortage}")),
        Ok(largest) => largest,
    };
    let Some(fits) = matching::best(claim, free(), Place::Anywhere, Timing::Now) else {
        return unselected(name, claim, largest, &of_class);
    };
    let on = |node: &crate::assign::NodeFacts| {
        let csi_node = node.csi_node.as_deref();
        match volume_binding::alone(facts, claim, &node.node, csi_node) {
            Ok(Supply::Reserve(volume)) => Some((
                volume.metadata.name.clone(),
                node.node.metadata.name.clone(),
            )),
            Ok(Supply::Provision) | Err(_) => None,
        }
    };
    let all: Vec<(String, String)> = view.nodes.iter().filter_map(on).collect();
    if all.is_empty() {
        let volume = &fits.metadata.name;
        return match reachable(view, fits) {
            near if near.is_empty() => Some(format!(
                "claim \"{name}\" could have the volume \"{volume}\", which no node of this cluster \
                 can reach"
            )),
            _ => None,
        };
    }
    // Where only volumes keep the pod away it is another claim that lacks one.
    let kept_away = |node: &String| {
        let reasons = reasons.get(node);
        reasons.is_some_and(|all| !all.iter().any(Reason::is_of_volumes))
    };
    if !all.iter().all(|(_, node)| kept_away(node)) {
        return None;
    }
    let (volume, node) = all.first()?;
    Some(format!(
        "claim \"{name}\" could have the volume \"{volume}\" on {node}, where this pod can't be"
    ))
}

/// What the claim selects by and the volume hasn't.
fn unselected(name: &str, claim: &Claim, volume: &Volume, of_class: &str) -> Option<String> {
    let selector = claim.spec.selector.as_ref()?;
    let labels = &volume.metadata.labels;
    let mut requirements = selector.requirements();
    let missing = requirements.find(|requirement| !requirement.matches(labels))?;
    let volume = &volume.metadata.name;
    Some(format!(
        "claim \"{name}\": volume \"{volume}\" would fit otherwise, but doesn't satisfy \
         \"{missing}\"; no free volume {of_class} that is large enough satisfies all that the \
         claim's selector asks for"
    ))
}

/// Where a class allows volumes, if no node is there.
fn topology(view: &View, facts: &ClaimFacts, class: &StorageClass) -> Option<String> {
    let allowed =
        |node: &crate::assign::NodeFacts| class.allows_topology(&node.node.metadata.labels);
    if view.nodes.iter().any(allowed) {
        return None;
    }
    let term = |term: &TopologySelectorTerm| {
        let all = term.match_label_expressions.iter();
        let all = all.map(|r| format!("{} in ({})", r.key, r.values.join(",")));
        all.collect::<Vec<_>>().join(" and ")
    };
    let places: Vec<String> = class.allowed_topologies.iter().map(term).collect();
    let (name, class, places) = (&facts.key.name, &class.metadata.name, places.join(" or "));
    Some(format!(
        "claim \"{name}\": class \"{class}\" allows volumes only where {places}, and no node has such \
         labels"
    ))
}

/// What keeps the claim from the volume that names it: it gets no other.
pub(super) fn reserved(view: &View, (facts, claim): &(&ClaimFacts, &Claim)) -> Option<String> {
    let mut all = facts.candidates.iter();
    let volume = all.find(|volume| volume.is_reserved_for(claim))?;
    let (name, reserved) = (&facts.key.name, &volume.metadata.name);
    if let Err(why) = matching::check_but_class(claim, volume) {
        let sides = why.sides(claim, volume);
        let sides = sides.map_or(String::new(), |sides| format!(" ({sides})"));
        return Some(format!(
            "volume \"{reserved}\" is reserved for claim \"{name}\", but {why}{sides}"
        ));
    }
    let near = reachable(view, volume);
    if near.len() == view.nodes.len() {
        return None;
    }
    let who = match near.is_empty() {
        true => "no node of this cluster".to_owned(),
        false => format!("only {}", list(&near)),
    };
    Some(format!(
        "volume \"{reserved}\" is reserved for claim \"{name}\", and {who} can reach it"
    ))
}
