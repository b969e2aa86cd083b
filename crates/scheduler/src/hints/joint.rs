//! What the claims of one pod can't have together, though each could be served alone.

use std::collections::{BTreeMap, BTreeSet};

use orlop_model::{Claim, Quantity};

use super::{list, reachable};
use crate::{
    assign::{NodeFacts, View},
    reason::Reason,
    volume_binding::{self, ClaimFacts, Sorted, Supply},
};

/// Where a claim's volume is or could be.
struct Want<'a> {
    what: String,
    nodes: Vec<&'a str>,
}

/// Which claims want the pod on different nodes.
pub(super) fn apart(view: &View, sorted: &Sorted<'_>) -> Option<String> {
    let bound = sorted.bound.iter().filter_map(|(facts, _)| {
        let volume = facts.volume.as_ref()?;
        let (claim, name) = (&facts.key.name, &volume.metadata.name);
        Some(Want {
            what: format!("claim \"{claim}\" has the volume \"{name}\""),
            nodes: reachable(view, volume),
        })
    });
    let late = sorted.late.iter().map(|late| want(view, late));
    let mut wants: Vec<Want<'_>> = bound.chain(late).collect();
    // A claim that can be everywhere keeps the others from nowhere.
    wants.retain(|want| want.nodes.len() < view.nodes.len());
    let (first, rest) = wants.split_first()?;
    let shared = |node: &&&str| rest.iter().all(|want| want.nodes.contains(node));
    let nowhere = wants.iter().any(|want| want.nodes.is_empty());
    if rest.is_empty() || nowhere || first.nodes.iter().any(|node| shared(&node)) {
        return None;
    }
    let told = wants
        .iter()
        .map(|want| format!("{} on {}", want.what, list(&want.nodes)));
    let told: Vec<String> = told.collect();
    Some(format!(
        "no node has volumes for all claims of this pod: {}",
        told.join("; ")
    ))
}

fn want<'a>(view: &'a View, (facts, claim): &(&ClaimFacts, &Claim)) -> Want<'a> {
    let mut nodes = Vec::new();
    let mut volumes = BTreeSet::new();
    for node in &view.nodes {
        if let Ok(supply) = alone(facts, claim, node) {
            nodes.push(node.node.metadata.name.as_str());
            volumes.insert(match supply {
                Supply::Reserve(volume) => Some(volume.metadata.name.clone()),
                Supply::Provision => None,
            });
        }
    }
    let name = &facts.key.name;
    let settled = facts.promised.is_some() || claim.selected_node().is_some();
    let volume = match volumes.pop_first() {
        Some(Some(volume)) if volumes.is_empty() => format!("the volume \"{volume}\""),
        _ => "a volume".to_owned(),
    };
    let what = match settled {
        true => format!("claim \"{name}\" was already promised {volume}"),
        false => format!("claim \"{name}\" could have {volume}"),
    };
    Want { what, nodes }
}

fn alone(facts: &ClaimFacts, claim: &Claim, node: &NodeFacts) -> Result<Supply, Reason> {
    volume_binding::alone(facts, claim, &node.node, node.csi_node.as_deref())
}

/// Which claims want the same volume, on a node that would do otherwise.
pub(super) fn rivals(
    view: &View,
    sorted: &Sorted<'_>,
    reasons: &BTreeMap<String, Vec<Reason>>,
) -> Option<String> {
    let node = view.nodes.iter().find(|node| {
        let reasons = reasons.get(&node.node.metadata.name);
        let lacks = reasons.is_some_and(|all| all.as_slice() == [Reason::NoVolume]);
        let mut late = sorted.late.iter();
        lacks && late.all(|(facts, claim)| alone(facts, claim, node).is_ok())
    })?;
    let names: Vec<String> = sorted.late.iter().map(|(facts, _)| quoted(facts)).collect();
    Some(format!(
        "on {} there is a volume for each of the claims {} alone, but not for all of them at once",
        node.node.metadata.name,
        names.join(", ")
    ))
}

/// How much the claims of one class ask for together, if no node has room for that.
pub(super) fn together(view: &View, sorted: &Sorted<'_>) -> Vec<String> {
    let mut classes: BTreeMap<&str, Vec<(&ClaimFacts, &Claim)>> = BTreeMap::new();
    for (facts, claim) in &sorted.late {
        if let Some(class) = &facts.class {
            let claims = classes.entry(&class.metadata.name).or_default();
            claims.push((facts, claim));
        }
    }
    let all = classes.into_iter();
    all.filter_map(|(class, claims)| too_much(view, class, &claims))
        .collect()
}

fn too_much(view: &View, class: &str, claims: &[(&ClaimFacts, &Claim)]) -> Option<String> {
    let (facts, _) = claims.first().filter(|_| claims.len() > 1)?;
    let asked = claims.iter().fold(0_i64, |sum, (_, claim)| {
        sum.saturating_add(claim.requested_bytes())
    });
    let rooms = view.nodes.iter().filter_map(|node| {
        let makes = |(facts, claim): &(&ClaimFacts, &Claim)| {
            matches!(alone(facts, claim, node), Ok(Supply::Provision))
        };
        let room = facts.room().total(&node.node)?;
        // Where there is no room for one alone, that one is told.
        claims
            .iter()
            .all(makes)
            .then_some((room, &node.node.metadata.name))
    });
    let (room, node) = rooms.max().filter(|(room, _)| *room < asked)?;
    let names: Vec<String> = claims.iter().map(|(facts, _)| quoted(facts)).collect();
    Some(format!(
        "claims {} together ask for {} of class \"{class}\"; the most that it can give is {} on \
         {node}",
        names.join(", "),
        Quantity::bytes(asked),
        Quantity::bytes(room.max(0)),
    ))
}

fn quoted(facts: &ClaimFacts) -> String {
    format!("\"{}\"", facts.key.name)
}
