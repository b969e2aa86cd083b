//! Rows of claims, volumes, classes and the CSI kinds.

use super::{AGE, Column, NAME, age, at, at_or, boolean, deleting, flag, list, name, text, wide};
use jiff::Timestamp;
use serde_json::{Value, json};

pub(super) const VOLUME: &[Column] = &[
    NAME,
    text("Capacity"),
    text("Access Modes"),
    text("Reclaim Policy"),
    text("Status"),
    text("Claim"),
    text("StorageClass"),
    text("VolumeAttributesClass"),
    text("Reason"),
    AGE,
    wide("VolumeMode"),
];

pub(super) fn volume(volume: &Value, now: Timestamp) -> Vec<Value> {
    let claim = match volume.pointer("/spec/claimRef") {
        Some(claim) => format!("{}/{}", at(claim, "/namespace"), at(claim, "/name")),
        None => String::new(),
    };
    vec![
        name(volume),
        quantity(volume, "/spec/capacity/storage").into(),
        access_modes(volume, "/spec/accessModes").into(),
        at(volume, "/spec/persistentVolumeReclaimPolicy").into(),
        phase(volume).into(),
        claim.into(),
        class_of(volume).into(),
        at_or(volume, "/spec/volumeAttributesClassName", "<unset>").into(),
        at(volume, "/status/reason").into(),
        age::of(volume, now),
        at_or(volume, "/spec/volumeMode", "<unset>").into(),
    ]
}

pub(super) const CLAIM: &[Column] = &[
    NAME,
    text("Status"),
    text("Volume"),
    text("Capacity"),
    text("Access Modes"),
    text("StorageClass"),
    text("VolumeAttributesClass"),
    AGE,
    wide("VolumeMode"),
];

pub(super) fn claim(claim: &Value, now: Timestamp) -> Vec<Value> {
    let volume = at(claim, "/spec/volumeName");
    // Until a volume is named there is nothing to say of its size and modes.
    let (capacity, modes) = match volume {
        "" => (String::new(), String::new()),
        _ => (
            quantity(claim, "/status/capacity/storage"),
            access_modes(claim, "/status/accessModes"),
        ),
    };
    vec![
        name(claim),
        phase(claim).into(),
        volume.into(),
        capacity.into(),
        modes.into(),
        class_of(claim).into(),
        at_or(claim, "/spec/volumeAttributesClassName", "<unset>").into(),
        age::of(claim, now),
        at_or(claim, "/spec/volumeMode", "<unset>").into(),
    ]
}

pub(super) const CLASS: &[Column] = &[
    NAME,
    text("Provisioner"),
    text("ReclaimPolicy"),
    text("VolumeBindingMode"),
    text("AllowVolumeExpansion"),
    AGE,
];

pub(super) fn class(class: &Value, now: Timestamp) -> Vec<Value> {
    const DEFAULT: [&str; 2] = [
        "/metadata/annotations/storageclass.kubernetes.io~1is-default-class",
        "/metadata/annotations/storageclass.beta.kubernetes.io~1is-default-class",
    ];
    let default = DEFAULT.iter().any(|path| at(class, path) == "true");
    let marked = at(class, "/metadata/name").to_owned() + if default { " (default)" } else { "" };
    vec![
        marked.into(),
        at(class, "/provisioner").into(),
        at_or(class, "/reclaimPolicy", "Delete").into(),
        at_or(class, "/volumeBindingMode", "Immediate").into(),
        flag(class, "/allowVolumeExpansion").unwrap_or(false).into(),
        age::of(class, now),
    ]
}

pub(super) const ATTRIBUTES_CLASS: &[Column] = &[NAME, text("DriverName"), AGE];

pub(super) fn attributes_class(class: &Value, now: Timestamp) -> Vec<Value> {
    vec![
        name(class),
        at(class, "/driverName").into(),
        age::of(class, now),
    ]
}

pub(super) const ATTACHMENT: &[Column] = &[
    NAME,
    Column {
        format: "name",
        ..text("Attacher")
    },
    text("PV"),
    text("Node"),
    boolean("Attached"),
    AGE,
];

pub(super) fn attachment(attachment: &Value, now: Timestamp) -> Vec<Value> {
    vec![
        name(attachment),
        at(attachment, "/spec/attacher").into(),
        at(attachment, "/spec/source/persistentVolumeName").into(),
        at(attachment, "/spec/nodeName").into(),
        flag(attachment, "/status/attached").unwrap_or(false).into(),
        age::of(attachment, now),
    ]
}

pub(super) const DRIVER: &[Column] = &[
    NAME,
    boolean("AttachRequired"),
    boolean("PodInfoOnMount"),
    boolean("StorageCapacity"),
    text("TokenRequests"),
    boolean("RequiresRepublish"),
    text("Modes"),
    AGE,
];

pub(super) fn driver(driver: &Value, now: Timestamp) -> Vec<Value> {
    let join = |values: &mut dyn Iterator<Item = &str>| values.collect::<Vec<_>>().join(",");
    let tokens = match driver.pointer("/spec/tokenRequests") {
        None | Some(Value::Null) => "<unset>".to_owned(),
        Some(_) => join(
            &mut list(driver, "/spec/tokenRequests")
                .iter()
                .map(|t| at(t, "/audience")),
        ),
    };
    let modes = join(
        &mut list(driver, "/spec/volumeLifecycleModes")
            .iter()
            .filter_map(Value::as_str),
    );
    vec![
        name(driver),
        flag(driver, "/spec/attachRequired").unwrap_or(true).into(),
        flag(driver, "/spec/podInfoOnMount").unwrap_or(false).into(),
        flag(driver, "/spec/storageCapacity")
            .unwrap_or(false)
            .into(),
        tokens.into(),
        flag(driver, "/spec/requiresRepublish")
            .unwrap_or(false)
            .into(),
        if modes.is_empty() {
            "<none>".into()
        } else {
            modes.into()
        },
        age::of(driver, now),
    ]
}

pub(super) const CSI_NODE: &[Column] = &[
    NAME,
    Column {
        kind: "integer",
        ..text("Drivers")
    },
    AGE,
];

pub(super) fn csi_node(node: &Value, now: Timestamp) -> Vec<Value> {
    let drivers = list(node, "/spec/drivers").len();
    vec![name(node), json!(drivers), age::of(node, now)]
}

pub(super) const CAPACITY: &[Column] = &[NAME, text("StorageClassName"), text("Capacity")];

pub(super) fn capacity(capacity: &Value, _: Timestamp) -> Vec<Value> {
    let size = match capacity.get("capacity") {
        Some(Value::String(size)) => size.clone(),
        Some(Value::Number(size)) => size.to_string(),
        _ => "<unset>".to_owned(),
    };
    vec![
        name(capacity),
        at(capacity, "/storageClassName").into(),
        size.into(),
    ]
}

fn phase(object: &Value) -> &str {
    if deleting(object) {
        "Terminating"
    } else {
        at(object, "/status/phase")
    }
}

/// The old annotation wins over the field, as everywhere in Kubernetes.
fn class_of(object: &Value) -> &str {
    const BETA: &str = "/metadata/annotations/volume.beta.kubernetes.io~1storage-class";
    match object.pointer(BETA).and_then(Value::as_str) {
        Some(class) => class,
        None => at(object, "/spec/storageClassName"),
    }
}

/// Absent quantities are zero.
fn quantity(object: &Value, path: &str) -> String {
    match object.pointer(path) {
        Some(Value::String(size)) => size.clone(),
        Some(Value::Number(size)) => size.to_string(),
        _ => "0".to_owned(),
    }
}

fn access_modes(object: &Value, path: &str) -> String {
    const SHORT: [(&str, &str); 4] = [
        ("ReadWriteOnce", "RWO"),
        ("ReadOnlyMany", "ROX"),
        ("ReadWriteMany", "RWX"),
        ("ReadWriteOncePod", "RWOP"),
    ];
    let modes = list(object, path);
    let has = |mode: &str| modes.iter().any(|m| m == mode);
    let short: Vec<&str> = SHORT
        .iter()
        .filter(|(mode, _)| has(mode))
        .map(|(_, short)| *short)
        .collect();
    short.join(",")
}
