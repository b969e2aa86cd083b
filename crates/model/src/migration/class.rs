//! Classes of plugins, in their drivers' words.

use std::{borrow::Cow, collections::BTreeMap};

use super::{AZURE_DISK, CINDER, EBS, GCE, PORTWORX, SUCCESSORS, Successor, VSPHERE, topology};
use crate::{
    class::{StorageClass, TopologyRequirement, TopologySelectorTerm},
    well_known::{CSI_PARAMETER_PREFIX, PORTWORX_SECRET_NAME, PORTWORX_SECRET_NAMESPACE},
};

/// The labels by which such classes name zones.
const ZONES: [&str; 2] = [topology::ZONE, topology::BETA_ZONE];

/// Two places of a class that say the same.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} and {1:?} say the same; keep one of them")]
pub struct Twice(pub String, pub String);

/// Whose place the driver took, if it was this plugin's.
fn successor(plugin: &str, driver: &str) -> Option<&'static Successor> {
    let mut all = SUCCESSORS.into_iter();
    all.find(|one| one.plugin == plugin && one.driver == driver)
}

/// The class as the driver understands it; as it is, unless it is that of the driver's
/// forerunner.
///
/// # Errors
/// If it names its zones twice.
pub fn class<'a>(class: &'a StorageClass, driver: &str) -> Result<Cow<'a, StorageClass>, Twice> {
    let Some(successor) = successor(&class.provisioner, driver) else {
        return Ok(Cow::Borrowed(class));
    };
    let mut new = class.clone();
    driver.clone_into(&mut new.provisioner);
    new.parameters = BTreeMap::new();
    let mut zones = None;
    for (key, value) in &class.parameters {
        match key.to_lowercase().as_str() {
            "zone" | "zones" if [&EBS, &GCE, &AZURE_DISK].contains(&successor) => {
                if zones.replace((key, value)).is_some() {
                    return Err(Twice("zone".into(), "zones".into()));
                }
            }
            _ => new.parameters.extend(told(successor, key, value)),
        }
    }
    if *successor == VSPHERE {
        // The driver takes the old names only with this.
        new.parameters.insert("csimigration".into(), "true".into());
    }
    if let Some(label) = successor.zone {
        places(&mut new, label, zones)?;
    }
    if *successor == AZURE_DISK {
        unzoned(&mut new);
    }
    Ok(Cow::Owned(new))
}

/// One parameter, in the driver's words.
fn told(successor: &Successor, key: &str, value: &str) -> Vec<(String, String)> {
    let one = |key: &str| vec![(key.to_owned(), value.to_owned())];
    let lower = key.to_lowercase();
    let file_system = || one(&format!("{CSI_PARAMETER_PREFIX}fstype"));
    match lower.as_str() {
        "fstype" if [&EBS, &GCE, &CINDER, &VSPHERE].contains(&successor) => file_system(),
        // The plugin raised what was too low for the size; the driver does so if it is told to.
        "iopspergb" if *successor == EBS => {
            let raise = "allowautoiopspergbincrease".to_owned();
            [one(key), vec![(raise, "true".to_owned())]].concat()
        }
        "storagepolicyname" if *successor == VSPHERE => one(&lower),
        "datastore"
        | "diskformat"
        | "hostfailurestotolerate"
        | "forceprovisioning"
        | "cachereservation"
        | "diskstripes"
        | "objectspacereservation"
        | "iopslimit"
            if *successor == VSPHERE =>
        {
            one(&format!("{lower}-migrationparam"))
        }
        // Others had no effect there either.
        _ if *successor == VSPHERE => Vec::new(),
        PORTWORX_SECRET_NAME if *successor == PORTWORX => secrets("name", value),
        PORTWORX_SECRET_NAMESPACE if *successor == PORTWORX => secrets("namespace", value),
        _ => one(key),
    }
}

fn secrets(end: &str, value: &str) -> Vec<(String, String)> {
    [
        "provisioner",
        "controller-publish",
        "node-publish",
        "node-stage",
        "controller-expand",
        "node-expand",
    ]
    .map(|purpose| {
        let key = format!("{CSI_PARAMETER_PREFIX}{purpose}-secret-{end}");
        (key, value.to_owned())
    })
    .into()
}

/// Zones by the driver's label, wherever the class told them.
fn places(
    class: &mut StorageClass,
    label: &str,
    zones: Option<(&String, &String)>,
) -> Result<(), Twice> {
    if let Some((key, zones)) = zones {
        if !class.allowed_topologies.is_empty() {
            let other = "allowedTopologies".to_owned();
            return Err(Twice(key.clone(), other));
        }
        let values = zones.split(',').map(|zone| zone.trim().to_owned());
        class.allowed_topologies = vec![TopologySelectorTerm {
            match_label_expressions: vec![TopologyRequirement {
                key: label.to_owned(),
                values: values.collect(),
            }],
        }];
    }
    for term in &mut class.allowed_topologies {
        for requirement in &mut term.match_label_expressions {
            if ZONES.contains(&requirement.key.as_str()) {
                label.clone_into(&mut requirement.key);
            }
        }
    }
    Ok(())
}

/// Regions of Azure without zones have numbers in their place; the driver has nothing.
fn unzoned(class: &mut StorageClass) {
    let terms = class.allowed_topologies.iter_mut();
    let requirements = terms.flat_map(|term| &mut term.match_label_expressions);
    for requirement in requirements.filter(|one| Some(one.key.as_str()) == AZURE_DISK.zone) {
        for value in &mut requirement.values {
            if !value.is_empty() && value.bytes().all(|byte| byte.is_ascii_digit()) {
                value.clear();
            }
        }
    }
}
