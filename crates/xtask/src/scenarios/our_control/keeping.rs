//! What is kept while it is used, what is to grow, and claims that are made for pods. The node is
//! an object only, and the pods on it never run.

use anyhow::Result;
use serde_json::json;

use super::{Telling, attaching::Nodes};
use crate::stage::{ATTRIBUTES_CLASS, CLAIM, CLASS, VOLUME, claim, pod};

pub(super) async fn lead(telling: &mut Telling<'_>) -> Result<()> {
    let nodes = Nodes::make(telling, &["keeper"]).await?;
    used(telling, &nodes).await?;
    growing(telling).await?;
    ephemeral(telling, &nodes).await?;
    attributes(telling).await?;
    nodes.remove(telling).await
}

/// Claim and volume stay while a pod has them, also one that isn't running.
async fn used(telling: &mut Telling<'_>, nodes: &Nodes) -> Result<()> {
    let stage = telling.stage;
    let disk = telling.disk("held", "by-hand", "1Gi");
    telling.pair(disk, claim("held", "by-hand", "1Gi")).await?;
    let mut waiting = pod("waiting", "held", "exit");
    waiting["spec"]["nodeSelector"] = json!({"nowhere": "at-all"});
    telling
        .apply([waiting, nodes.pod("user", "held", "keeper")])
        .await?;
    stage.delete(CLAIM, "held").await?;
    stage.delete(VOLUME, &telling.name("held")).await?;
    telling
        .stop("claim and volume are deleted while used")
        .await?;
    // Who waits for a node doesn't use it.
    stage.end_pod("user").await?;
    stage.gone(CLAIM, "held").await?;
    stage.gone(VOLUME, &telling.name("held")).await?;
    telling.stop("the last pod on a node is gone").await?;
    stage.end_pod("waiting").await
}

/// Who makes a volume larger is told at its claim.
async fn growing(telling: &mut Telling<'_>) -> Result<()> {
    let stage = telling.stage;
    let class = telling.name("growing");
    let mut disk = telling.disk("grown", &class, "1Gi");
    if let Some(spec) = disk["spec"].as_object_mut() {
        spec.remove("hostPath");
    }
    disk["spec"]["csi"] = json!({"driver": "nobody.csi.orlop.dev", "volumeHandle": "grown"});
    telling
        .apply([
            json!({
                "apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": {"name": class},
                "provisioner": "nobody.csi.orlop.dev", "allowVolumeExpansion": true,
            }),
            disk,
            telling.pointing("grows", &class, "grown"),
        ])
        .await?;
    stage.bound("grows").await?;
    let larger = json!({"spec": {"resources": {"requests": {"storage": "2Gi"}}}});
    stage.merge(CLAIM, "grows", &larger).await?;
    telling.told("grows", "ExternalExpanding").await?;
    telling.stop("a claim is to grow").await?;
    telling.clear(&["grows"], &["grown"]).await?;
    stage.remove(CLASS, &[&class]).await
}

/// A claim is made for a pod; another's of its name is not given to it.
async fn ephemeral(telling: &mut Telling<'_>, nodes: &Nodes) -> Result<()> {
    let stage = telling.stage;
    telling
        .apply([claim("mine-scratch", "by-hand", "1Gi")])
        .await?;
    for name in ["mine", "yours"] {
        let mut pod = nodes.pod(name, "", "keeper");
        pod["spec"]["volumes"] = json!([{"name": "scratch", "ephemeral": {"volumeClaimTemplate": {
            "metadata": {"labels": {"made": "for-the-pod"}, "annotations": {"a": "b"}},
            "spec": claim("", "by-hand", "1Gi")["spec"],
        }}}]);
        pod["spec"]["containers"][0]["volumeMounts"][0]["name"] = json!("scratch");
        telling.apply([pod]).await?;
    }
    telling.told("mine", "FailedBinding").await?;
    stage
        .until(CLAIM, "yours-scratch", "made", |_| true)
        .await?;
    telling.stop("claims for pods").await?;
    stage.end_pod("mine").await?;
    stage.end_pod("yours").await?;
    stage.gone(CLAIM, "yours-scratch").await?;
    telling.stop("a claim went with its pod").await?;
    stage.remove(CLAIM, &["mine-scratch"]).await
}

/// A class of attributes stays while a claim or a volume names it.
async fn attributes(telling: &mut Telling<'_>) -> Result<()> {
    let stage = telling.stage;
    let name = telling.name("gold");
    let mut disk = telling.disk("golden", "by-hand", "1Gi");
    if let Some(spec) = disk["spec"].as_object_mut() {
        spec.remove("hostPath");
    }
    disk["spec"]["csi"] = json!({"driver": "nobody.csi.orlop.dev", "volumeHandle": "golden"});
    disk["spec"]["volumeAttributesClassName"] = json!(name);
    let mut wants = claim("wants", "by-hand", "1Gi");
    wants["spec"]["volumeAttributesClassName"] = json!(name);
    let plain = claim("plain", "by-hand", "1Gi");
    telling
        .apply([json!({
            "apiVersion": "storage.k8s.io/v1", "kind": "VolumeAttributesClass",
            "metadata": {"name": name}, "driverName": "nobody.csi.orlop.dev",
            "parameters": {"iops": "1000"},
        })])
        .await?;
    telling.pair(disk, wants).await?;
    // Only who wants the class gets a volume that has it.
    telling.apply([plain]).await?;
    telling.told("plain", "ProvisioningFailed").await?;
    stage.delete(ATTRIBUTES_CLASS, &name).await?;
    telling
        .stop("a class of attributes is deleted while named")
        .await?;
    stage.remove(CLAIM, &["wants", "plain"]).await?;
    telling.stop("only a volume names it").await?;
    stage.remove(VOLUME, &[&telling.name("golden")]).await?;
    stage.gone(ATTRIBUTES_CLASS, &name).await
}
