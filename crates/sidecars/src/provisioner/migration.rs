//! Classes of plugins that were once part of Kubernetes, in the words of the drivers that took
//! their place. Pure.

use std::{borrow::Cow, collections::BTreeMap};

use orlop_model::{
    StorageClass,
    class::{TopologyRequirement, TopologySelectorTerm},
};

use super::parameters::ParameterError;

const FS_TYPE: &str = "csi.storage.k8s.io/fstype";

/// The labels by which such classes name zones.
const ZONES: [&str; 2] = [
    "topology.kubernetes.io/zone",
    "failure-domain.beta.kubernetes.io/zone",
];

/// Who took a plugin's place, and how its parameters are told.
struct Successor {
    plugin: &'static str,
    driver: &'static str,
    /// The driver's label for zones, if it has them.
    zone: Option<&'static str>,
    told: Told,
}

/// What becomes of a parameter.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Told {
    /// `fstype` is Kubernetes' own, the rest is the driver's.
    Most,
    /// All of it is the driver's.
    All,
    /// Each has another name.
    Renamed,
    /// Secrets are named once for all purposes.
    Secrets,
}

const fn zoned(
    plugin: &'static str,
    driver: &'static str,
    zone: &'static str,
    told: Told,
) -> Successor {
    Successor {
        plugin,
        driver,
        zone: Some(zone),
        told,
    }
}

const SUCCESSORS: [Successor; 7] = [
    zoned(
        "kubernetes.io/aws-ebs",
        "ebs.csi.aws.com",
        "topology.ebs.csi.aws.com/zone",
        Told::Most,
    ),
    zoned(
        "kubernetes.io/gce-pd",
        "pd.csi.storage.gke.io",
        "topology.gke.io/zone",
        Told::Most,
    ),
    zoned(
        "kubernetes.io/azure-disk",
        "disk.csi.azure.com",
        "topology.disk.csi.azure.com/zone",
        Told::All,
    ),
    zoned(
        "kubernetes.io/cinder",
        "cinder.csi.openstack.org",
        "topology.cinder.csi.openstack.org/zone",
        Told::Most,
    ),
    Successor {
        plugin: "kubernetes.io/azure-file",
        driver: "file.csi.azure.com",
        zone: None,
        told: Told::All,
    },
    Successor {
        plugin: "kubernetes.io/vsphere-volume",
        driver: "csi.vsphere.vmware.com",
        zone: None,
        told: Told::Renamed,
    },
    Successor {
        plugin: "kubernetes.io/portworx-volume",
        driver: "pxd.portworx.com",
        zone: None,
        told: Told::Secrets,
    },
];

/// The class as the driver understands it; as it is, unless it is that of the driver's
/// forerunner.
pub(super) fn translate<'a>(
    class: &'a StorageClass,
    driver: &str,
) -> Result<Cow<'a, StorageClass>, ParameterError> {
    let successor = SUCCESSORS
        .iter()
        .find(|one| one.plugin == class.provisioner && one.driver == driver);
    let Some(successor) = successor else {
        return Ok(Cow::Borrowed(class));
    };
    let mut new = class.clone();
    driver.clone_into(&mut new.provisioner);
    new.parameters = BTreeMap::new();
    let mut zones = None;
    for (key, value) in &class.parameters {
        match (key.to_lowercase().as_str(), successor.zone) {
            ("zone" | "zones", Some(_)) => {
                if zones.replace((key, value)).is_some() {
                    return Err(ParameterError::Twice("zone".into(), "zones".into()));
                }
            }
            _ => new.parameters.extend(told(successor.told, key, value)),
        }
    }
    if successor.told == Told::Renamed {
        // The driver takes the old names only with this.
        new.parameters.insert("csimigration".into(), "true".into());
    }
    let Some(label) = successor.zone else {
        return Ok(Cow::Owned(new));
    };
    if let Some((key, zones)) = zones {
        if !class.allowed_topologies.is_empty() {
            let other = "allowedTopologies".to_owned();
            return Err(ParameterError::Twice(key.clone(), other));
        }
        let values = zones.split(',').map(|zone| zone.trim().to_owned());
        new.allowed_topologies = vec![TopologySelectorTerm {
            match_label_expressions: vec![TopologyRequirement {
                key: label.to_owned(),
                values: values.collect(),
            }],
        }];
    }
    for term in &mut new.allowed_topologies {
        for requirement in &mut term.match_label_expressions {
            if ZONES.contains(&requirement.key.as_str()) {
                label.clone_into(&mut requirement.key);
            }
        }
    }
    Ok(Cow::Owned(new))
}

/// One parameter, in the driver's words.
fn told(how: Told, key: &str, value: &str) -> Vec<(String, String)> {
    let one = |key: &str| vec![(key.to_owned(), value.to_owned())];
    match (how, key.to_lowercase().as_str()) {
        (Told::Most | Told::Renamed, "fstype") => one(FS_TYPE),
        (Told::Renamed, "storagepolicyname") => one("storagepolicyname"),
        (
            Told::Renamed,
            known @ ("datastore"
            | "diskformat"
            | "hostfailurestotolerate"
            | "forceprovisioning"
            | "cachereservation"
            | "diskstripes"
            | "objectspacereservation"
            | "iopslimit"),
        ) => one(&format!("{known}-migrationparam")),
        (Told::Secrets, "openstorage.io/auth-secret-name") => secrets("name", value),
        (Told::Secrets, "openstorage.io/auth-secret-namespace") => secrets("namespace", value),
        // Others had no effect there either.
        (Told::Renamed, _) => Vec::new(),
        (Told::Most | Told::All | Told::Secrets, _) => one(key),
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
        let key = format!("csi.storage.k8s.io/{purpose}-secret-{end}");
        (key, value.to_owned())
    })
    .into()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn class(plugin: &str, parameters: &[(&str, &str)]) -> StorageClass {
        let own = |(key, value): &(&str, &str)| ((*key).to_owned(), (*value).to_owned());
        StorageClass {
            provisioner: plugin.into(),
            parameters: parameters.iter().map(own).collect(),
            ..StorageClass::default()
        }
    }

    /// The parameters and zones of a class of this plugin, for this driver.
    fn of(plugin: &str, driver: &str, parameters: &[(&str, &str)]) -> (Vec<String>, Vec<String>) {
        let class = class(plugin, parameters);
        let new = translate(&class, driver).expect("it is clear");
        assert_eq!(new.provisioner, driver);
        let told = new.parameters.iter().map(|(k, v)| format!("{k}={v}"));
        let places = new
            .allowed_topologies
            .iter()
            .flat_map(|term| &term.match_label_expressions)
            .map(|one| format!("{} in {}", one.key, one.values.join(" ")));
        (told.collect(), places.collect())
    }

    #[test]
    fn parameters_of_plugins_are_told_in_their_drivers_words() {
        let fs = "csi.storage.k8s.io/fstype=xfs";
        for (plugin, driver, given, parameters, places) in [
            (
                "kubernetes.io/aws-ebs",
                "ebs.csi.aws.com",
                &[("fsType", "xfs"), ("type", "gp3"), ("zones", "a, b")][..],
                &[fs, "type=gp3"][..],
                &["topology.ebs.csi.aws.com/zone in a b"][..],
            ),
            (
                "kubernetes.io/gce-pd",
                "pd.csi.storage.gke.io",
                &[
                    ("fstype", "xfs"),
                    ("zone", "a"),
                    ("replication-type", "none"),
                ],
                &[fs, "replication-type=none"],
                &["topology.gke.io/zone in a"],
            ),
            (
                "kubernetes.io/azure-disk",
                "disk.csi.azure.com",
                &[("fsType", "xfs"), ("skuName", "Premium_LRS")],
                &["fsType=xfs", "skuName=Premium_LRS"],
                &[],
            ),
            (
                "kubernetes.io/cinder",
                "cinder.csi.openstack.org",
                &[("fsType", "xfs"), ("availability", "nova")],
                &["availability=nova", fs],
                &[],
            ),
            (
                "kubernetes.io/vsphere-volume",
                "csi.vsphere.vmware.com",
                &[("fstype", "xfs"), ("Datastore", "d"), ("unknown", "x")],
                &[fs, "csimigration=true", "datastore-migrationparam=d"],
                &[],
            ),
        ] {
            let (told, where_) = of(plugin, driver, given);
            assert_eq!(told, parameters, "{plugin}");
            assert_eq!(where_, places, "{plugin}");
        }
        let (told, _) = of(
            "kubernetes.io/portworx-volume",
            "pxd.portworx.com",
            &[("openstorage.io/auth-secret-name", "s"), ("repl", "2")],
        );
        assert_eq!(told.len(), 7, "{told:?}");
    }

    #[test]
    fn other_classes_stay_as_they_are() {
        let own = class("ebs.csi.aws.com", &[("zone", "a"), ("fstype", "xfs")]);
        let same = translate(&own, "ebs.csi.aws.com");
        assert!(matches!(same, Ok(Cow::Borrowed(_))));
        let foreign = class("kubernetes.io/aws-ebs", &[("zone", "a")]);
        let same = translate(&foreign, "another.driver");
        assert!(matches!(same, Ok(Cow::Borrowed(_))));
    }

    #[test]
    fn zones_are_named_once_and_by_the_drivers_label() {
        let mut class = class("kubernetes.io/aws-ebs", &[]);
        class.allowed_topologies = vec![TopologySelectorTerm {
            match_label_expressions: vec![TopologyRequirement {
                key: ZONES[1].into(),
                values: vec!["a".into()],
            }],
        }];
        let new = translate(&class, "ebs.csi.aws.com").expect("it is clear");
        let term = &new.allowed_topologies[0].match_label_expressions[0];
        assert_eq!(term.key, "topology.ebs.csi.aws.com/zone");
        class.parameters.insert("zone".into(), "b".into());
        let both = translate(&class, "ebs.csi.aws.com");
        assert!(matches!(both, Err(ParameterError::Twice(..))), "{both:?}");
    }
}
