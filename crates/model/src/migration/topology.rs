//! Where volumes are: the labels of Kubernetes, by which plugins told it, and those of drivers.

use std::collections::BTreeSet;

use super::{EBS, GCE, Places, Successor, Untranslatable, regions};
use crate::{
    selector::{NodeSelectorTerm, Requirement},
    volume::Volume,
};

pub(super) const ZONE: &str = "topology.kubernetes.io/zone";
pub(super) const BETA_ZONE: &str = "failure-domain.beta.kubernetes.io/zone";
const REGION: &str = "topology.kubernetes.io/region";
const BETA_REGION: &str = "failure-domain.beta.kubernetes.io/region";

/// Between the zones of one label.
const BETWEEN: &str = "__";

/// The zones of a label.
pub(super) fn listed(label: &str) -> Vec<String> {
    label.split(BETWEEN).map(str::to_owned).collect()
}

/// The labels by which Kubernetes knows the volume's zone and region.
fn kubernetes_labels(volume: &Volume) -> (&'static str, &'static str) {
    let in_affinity = |key: &str| requirements(volume).any(|one| one.key == key);
    let in_labels = |key: &str| volume.metadata.labels.contains_key(key);
    let beta = !in_affinity(ZONE)
        && (in_affinity(BETA_ZONE) || (!in_labels(ZONE) && in_labels(BETA_ZONE)));
    match beta {
        true => (BETA_ZONE, BETA_REGION),
        false => (ZONE, REGION),
    }
}

fn terms(volume: &Volume) -> &[NodeSelectorTerm] {
    let affinity = volume.spec.node_affinity.as_ref();
    let required = affinity.and_then(|affinity| affinity.required.as_ref());
    required.map_or(&[], |required| &required.node_selector_terms)
}

fn requirements(volume: &Volume) -> impl Iterator<Item = &Requirement> {
    terms(volume)
        .iter()
        .flat_map(|term| &term.match_expressions)
}

/// All values of a key, in order.
fn values(volume: &Volume, key: &str) -> Vec<String> {
    let of_key = requirements(volume).filter(|one| one.key == key);
    let values: BTreeSet<&String> = of_key.flat_map(|one| &one.values).collect();
    values.into_iter().cloned().collect()
}

fn terms_mut(volume: &mut Volume) -> impl Iterator<Item = &mut NodeSelectorTerm> {
    let affinity = volume.spec.node_affinity.as_mut();
    let required = affinity.and_then(|affinity| affinity.required.as_mut());
    required
        .into_iter()
        .flat_map(|required| &mut required.node_selector_terms)
}

fn rename(volume: &mut Volume, old: &str, new: &str) {
    for term in terms_mut(volume) {
        for requirement in &mut term.match_expressions {
            if requirement.key == old {
                new.clone_into(&mut requirement.key);
            }
        }
    }
}

/// Demands one of the values in every term; in one of its own if there is none.
fn demand(volume: &mut Volume, key: &str, values: &[String]) {
    let values = values.iter().map(|value| value.trim());
    let values: BTreeSet<&str> = values.filter(|value| !value.is_empty()).collect();
    if values.is_empty() {
        return;
    }
    let requirement = Requirement {
        key: key.to_owned(),
        operator: "In".to_owned(),
        values: values.into_iter().map(str::to_owned).collect(),
    };
    let affinity = volume.spec.node_affinity.get_or_insert_default();
    let required = affinity.required.get_or_insert_default();
    if required.node_selector_terms.is_empty() {
        required
            .node_selector_terms
            .push(NodeSelectorTerm::default());
    }
    for term in &mut required.node_selector_terms {
        term.match_expressions.push(requirement.clone());
    }
}

/// The driver's labels in place of Kubernetes'.
pub(super) fn over(volume: &mut Volume, successor: &Successor) {
    let (zone, region) = kubernetes_labels(volume);
    match successor.places {
        Places::Unknown => {}
        Places::Zones(key) => {
            to_driver(volume, zone, key, listed);
            // Nodes have only the newer label by now.
            if region == BETA_REGION {
                rename(volume, BETA_REGION, REGION);
            }
        }
        Places::ZonesAndRegions(zone_key, region_key) => {
            let whole = |label: &str| vec![label.to_owned()];
            to_driver(volume, zone, zone_key, whole);
            to_driver(volume, region, region_key, whole);
        }
    }
}

/// A place by the driver's key, from where the volume can be reached or else from its label.
fn to_driver(volume: &mut Volume, ours: &str, theirs: &str, split: fn(&str) -> Vec<String>) {
    if !values(volume, ours).is_empty() {
        rename(volume, ours, theirs);
    } else if let Some(label) = volume.metadata.labels.get(ours) {
        demand(volume, theirs, &split(label));
    }
}

/// Kubernetes' labels in place of the driver's.
pub(super) fn back(volume: &mut Volume, successor: &Successor) -> Result<(), Untranslatable> {
    let (zone, region) = kubernetes_labels(volume);
    match successor.places {
        Places::Unknown => {}
        Places::Zones(key) => {
            rename(volume, key, zone);
            let parse = match successor.driver {
                driver if driver == EBS.driver => Some(regions::aws as RegionOf),
                driver if driver == GCE.driver => Some(regions::gce as RegionOf),
                // Cinder's zones don't tell their region.
                _ => None,
            };
            if let Some(parse) = parse {
                tell_regions(volume, (zone, region), parse)?;
            }
            label(volume, zone, |zones| Some(zones.join(BETWEEN)));
        }
        Places::ZonesAndRegions(zone_key, region_key) => {
            rename(volume, zone_key, zone);
            rename(volume, region_key, region);
            label(volume, zone, |zones| zones.first().cloned());
            label(volume, region, |regions| regions.first().cloned());
        }
    }
    Ok(())
}

type RegionOf = fn(&[String]) -> Result<String, Untranslatable>;

/// Tells the region in every term that doesn't, by its zones.
fn tell_regions(
    volume: &mut Volume,
    (zone, region): (&str, &str),
    parse: RegionOf,
) -> Result<(), Untranslatable> {
    for term in terms_mut(volume) {
        let told = &term.match_expressions;
        if told.iter().any(|one| one.key == region) {
            continue;
        }
        let of_zone = told.iter().filter(|one| one.key == zone);
        let zones: Vec<String> = of_zone.flat_map(|one| one.values.clone()).collect();
        let requirement = Requirement {
            key: region.to_owned(),
            operator: "In".to_owned(),
            values: vec![parse(&zones)?],
        };
        term.match_expressions.push(requirement);
    }
    label(volume, region, |regions| match regions {
        [one] => Some(one.clone()),
        _ => None,
    });
    Ok(())
}

/// Labels the volume with a place, unless it is labelled.
fn label(volume: &mut Volume, key: &str, tell: impl Fn(&[String]) -> Option<String>) {
    let values = values(volume, key);
    if values.is_empty() || volume.metadata.labels.contains_key(key) {
        return;
    }
    if let Some(value) = tell(&values) {
        volume.metadata.labels.insert(key.to_owned(), value);
    }
}
