//! Attaching to nodes that are objects only. The attacher's part is played here: an attachment is
//! attached when this says so, and gone as soon as it is deleted.

use anyhow::Result;
use serde_json::{Value, json};

use super::Telling;
use crate::stage::{ATTACHMENT, CSI_DRIVER, CSI_NODE, NODE, Stage, claim, pod};

const DRIVER: &str = "by-hand.csi.orlop.dev";

/// Nodes without a kubelet.
pub(super) struct Nodes(Vec<String>);

impl Nodes {
    pub(super) async fn make(telling: &Telling<'_>, names: &[&str]) -> Result<Self> {
        let managed = json!({"volumes.kubernetes.io/controller-managed-attach-detach": "true"});
        for name in names {
            let drivers = json!([{"name": DRIVER, "nodeID": name, "topologyKeys": null}]);
            telling
                .apply([
                    json!({
                        "apiVersion": "v1", "kind": "Node",
                        "metadata": {"name": name, "annotations": managed},
                    }),
                    json!({
                        "apiVersion": "storage.k8s.io/v1", "kind": "CSINode",
                        "metadata": {"name": name}, "spec": {"drivers": drivers},
                    }),
                ])
                .await?;
            let ready = json!({"status": {"conditions": [{
                "type": "Ready", "status": "True", "reason": "Said", "message": "said so",
            }]}});
            telling.stage.merge_status(NODE, name, &ready).await?;
        }
        Ok(Self(names.iter().map(|name| (*name).to_owned()).collect()))
    }

    /// A pod that is placed, and never runs.
    #[allow(clippy::unused_self, reason = "there is none without a node")]
    pub(super) fn pod(&self, name: &str, claim: &str, node: &str) -> Value {
        let mut placed = pod(name, claim, "exit");
        placed["spec"]["nodeName"] = json!(node);
        placed["spec"]["tolerations"] = json!([{"operator": "Exists"}]);
        placed
    }

    pub(super) async fn remove(&self, telling: &Telling<'_>) -> Result<()> {
        let names: Vec<&str> = self.0.iter().map(String::as_str).collect();
        telling.stage.remove(CSI_NODE, &names).await?;
        telling.stage.remove(NODE, &names).await
    }
}

pub(super) async fn lead(telling: &mut Telling<'_>) -> Result<()> {
    let stage = telling.stage;
    let nodes = Nodes::make(telling, &["port", "starboard"]).await?;
    telling
        .apply([json!({
            "apiVersion": "storage.k8s.io/v1", "kind": "CSIDriver", "metadata": {"name": DRIVER},
            "spec": {"attachRequired": true, "podInfoOnMount": false},
        })])
        .await?;
    let mut disk = telling.disk("cargo", "by-hand", "1Gi");
    if let Some(spec) = disk["spec"].as_object_mut() {
        spec.remove("hostPath");
    }
    disk["spec"]["csi"] = json!({"driver": DRIVER, "volumeHandle": "cargo"});
    telling.pair(disk, claim("cargo", "by-hand", "1Gi")).await?;

    telling.apply([nodes.pod("first", "cargo", "port")]).await?;
    let attachment = attachment(stage, "port").await?;
    telling.stop("an attachment is asked for").await?;
    attached(stage, &attachment).await?;
    telling.told("first", "SuccessfulAttachVolume").await?;
    // The node has it mounted.
    let used = json!({"status": {"volumesInUse": [format!("kubernetes.io/csi/{DRIVER}^cargo")]}});
    stage.merge_status(NODE, "port", &used).await?;
    telling.stop("a volume is attached").await?;

    telling
        .apply([nodes.pod("second", "cargo", "starboard")])
        .await?;
    telling.told("second", "FailedAttachVolume").await?;
    telling.stop("another node wants it").await?;
    stage.end_pod("first").await?;
    telling
        .stop("its pod is gone, and its node has it mounted")
        .await?;

    let taint =
        json!({"key": "node.kubernetes.io/out-of-service", "value": "off", "effect": "NoExecute"});
    stage
        .merge(NODE, "port", &json!({"spec": {"taints": [taint]}}))
        .await?;
    stage.gone(ATTACHMENT, &attachment).await?;
    let attachment = self::attachment(stage, "starboard").await?;
    attached(stage, &attachment).await?;
    telling.told("second", "SuccessfulAttachVolume").await?;
    telling.stop("its node is out of service").await?;

    stage.remove(CSI_NODE, &["starboard"]).await?;
    stage.remove(NODE, &["starboard"]).await?;
    stage.end_pod("second").await?;
    stage.gone(ATTACHMENT, &attachment).await?;
    telling.stop("its node and its pod are gone").await?;
    telling.clear(&["cargo"], &["cargo"]).await?;
    nodes.remove(telling).await?;
    stage.remove(CSI_DRIVER, &[DRIVER]).await
}

/// The attachment to a node, once it is asked for.
async fn attachment(stage: &Stage, node: &str) -> Result<String> {
    stage
        .bounded(&format!("an attachment to {node}"), async {
            loop {
                let all = stage.list(ATTACHMENT).await?;
                let found = all.iter().find(|one| one["spec"]["nodeName"] == *node);
                if let Some(name) = found.and_then(|one| one["metadata"]["name"].as_str()) {
                    return Ok(name.to_owned());
                }
                tokio::time::sleep(std::time::Duration::from_millis(100)).await;
            }
        })
        .await
}

async fn attached(stage: &Stage, attachment: &str) -> Result<()> {
    let done = json!({"status": {"attached": true}});
    stage.merge_status(ATTACHMENT, attachment, &done).await
}
