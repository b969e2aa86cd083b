//! What classes do to claims: the default that comes late, and waiting for a node.

use anyhow::Result;
use serde_json::{Value, json};

use super::Telling;
use crate::{
    kube,
    stage::{CLAIM, CLASS, VOLUME, claim},
};

const NOBODY: &str = "kubernetes.io/no-provisioner";

pub(super) async fn lead(telling: &mut Telling<'_>) -> Result<()> {
    late_default(telling).await?;
    waiting(telling).await
}

fn class(name: &str, provisioner: &str, mode: &str) -> Value {
    json!({
        "apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": {"name": name},
        "provisioner": provisioner, "volumeBindingMode": mode, "allowVolumeExpansion": true,
    })
}

/// Claims without a class get the default that comes after them; those that want none don't.
async fn late_default(telling: &mut Telling<'_>) -> Result<()> {
    let stage = telling.stage;
    let name = telling.name("default");
    let mut open = claim("open", "", "1Gi");
    open["spec"]["storageClassName"].take();
    if let Some(spec) = open["spec"].as_object_mut() {
        spec.remove("storageClassName");
    }
    telling.apply([open, claim("none", "", "1Gi")]).await?;
    telling.told("open", "FailedBinding").await?;
    telling.told("none", "FailedBinding").await?;
    telling
        .stop("claims before there is a default class")
        .await?;
    let mut default = class(&name, NOBODY, "Immediate");
    default["metadata"]["annotations"] =
        json!({"storageclass.kubernetes.io/is-default-class": "true"});
    telling.apply([default]).await?;
    let given = |claim: &Value| claim["spec"]["storageClassName"] == *name;
    stage
        .until(CLAIM, "open", "of the default class", given)
        .await?;
    telling.told("open", "ProvisioningFailed").await?;
    telling.stop("the default class came").await?;
    telling.apply([telling.disk("late", &name, "1Gi")]).await?;
    stage.bound("open").await?;
    telling.stop("a volume of the default class came").await?;
    telling.clear(&["open", "none"], &["late"]).await?;
    stage.remove(CLASS, &[&name]).await
}

/// A claim waits for its pod's node; the scheduler's part is played here.
async fn waiting(telling: &mut Telling<'_>) -> Result<()> {
    let stage = telling.stage;
    let (local, driven) = (telling.name("local"), telling.name("driven"));
    let nowhere = format!("nobody.{}", stage.driver_name());
    telling
        .apply([
            class(&local, NOBODY, "WaitForFirstConsumer"),
            class(&driven, &nowhere, "WaitForFirstConsumer"),
        ])
        .await?;
    let mut there = telling.disk("there", &local, "1Gi");
    there["spec"]["nodeAffinity"] = json!({"required": {"nodeSelectorTerms": [
        {"matchExpressions": [
            {"key": "kubernetes.io/hostname", "operator": "In", "values": [kube::NODE]},
        ]},
    ]}});
    telling
        .apply([
            there,
            claim("placed", &local, "1Gi"),
            claim("made-there", &driven, "1Gi"),
        ])
        .await?;
    let volume = telling.name("there");
    telling.phase(VOLUME, &volume, "Available").await?;
    telling.told("placed", "WaitForFirstConsumer").await?;
    telling.told("made-there", "WaitForFirstConsumer").await?;
    telling.stop("claims wait for a node").await?;

    let chosen = stage.get(CLAIM, "placed").await?.unwrap_or_default();
    let owner = json!({
        "apiVersion": "v1", "kind": "PersistentVolumeClaim", "name": "placed",
        "namespace": stage.namespace(), "uid": chosen["metadata"]["uid"],
    });
    let reserved = json!({
        "metadata": {"annotations": {"pv.kubernetes.io/bound-by-controller": "yes"}},
        "spec": {"claimRef": owner},
    });
    stage.merge(VOLUME, &volume, &reserved).await?;
    let selected = json!({"metadata": {"annotations": {
        "volume.kubernetes.io/selected-node": kube::NODE,
    }}});
    stage.merge(CLAIM, "made-there", &selected).await?;
    stage.bound("placed").await?;
    let asked = |claim: &Value| {
        let annotations = &claim["metadata"]["annotations"];
        annotations["volume.kubernetes.io/storage-provisioner"] == *nowhere
    };
    stage
        .until(CLAIM, "made-there", "its provisioner's", asked)
        .await?;
    telling.stop("a node was chosen").await?;
    telling.clear(&["placed", "made-there"], &["there"]).await?;
    stage.remove(CLASS, &[&local, &driven]).await
}
