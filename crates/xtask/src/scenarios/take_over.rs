//! A node's folder changes hands while its pod runs: from our node to the kubelet, and back again.
//! Whoever comes second finds what the first one left, and takes all of it away.

mod folder;

use std::{sync::Arc, time::Duration};

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};

use self::folder::{Folder, Names};
use crate::{
    kube::{BUSYBOX, KUBELET_ROOT, NODE},
    stage::{ATTACHMENT, CLAIM, NODE as NODE_KIND, POD, Program, Stage, claim},
};

const KUBELET: &str = "kubelet";
/// How long the second one is watched leaving everything in its place.
const WATCHED: Duration = Duration::from_secs(4);

/// Who has the node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Holder {
    Ours,
    Kubelet,
}

pub(super) async fn run(stage: &Stage) -> Result<()> {
    stage.local_driver().await?;
    stage.our_controller().await?;
    stage.our_registrar().await?;
    let mut left = Vec::new();
    for (first, second) in [
        (Holder::Kubelet, Holder::Ours),
        (Holder::Ours, Holder::Kubelet),
    ] {
        left.push(life(stage, first, second).await?);
    }
    // The kubelet's settings are as they were, whoever had the node last.
    let (kubelets, ours) = (&left[0], &left[1]);
    let apart = kubelets.differences(ours);
    ensure!(
        apart.is_empty(),
        "our folder is not the kubelet's:\n{}",
        apart.join("\n")
    );
    Ok(())
}

/// A pod with every kind of volume begins with one holder and ends with the other; answers with what
/// the first one made of the folder.
async fn life(stage: &Stage, first: Holder, second: Holder) -> Result<Folder> {
    let node = seize(stage, first).await?;
    let config = |text: &str| {
        json!({
            "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "settings"},
            "data": {"text": text},
        })
    };
    stage.apply_value(config("before")).await?;
    let files = claim("files", stage.namespace(), "64Mi");
    let mut device = claim("device", stage.namespace(), "64Mi");
    device["spec"]["volumeMode"] = json!("Block");
    for object in [files, device, pod()] {
        stage.apply_value(object).await?;
    }
    let running = |pod: &Value| {
        let ready = &pod["status"]["containerStatuses"][0]["ready"];
        pod["status"]["phase"] == "Running" && *ready == true
    };
    let pod = stage.until(POD, "holder", "running", running).await?;
    let names = Names {
        root: KUBELET_ROOT,
        uid: pod["metadata"]["uid"]
            .as_str()
            .unwrap_or_default()
            .to_owned(),
        driver: stage.driver_name(),
        volumes: vec![
            ("FILES", stage.bound("files").await?),
            ("DEVICE", stage.bound("device").await?),
        ],
    };
    let before = Folder::read(&names)?;
    let mounts = names.mounts()?;
    ensure!(mounts.len() >= 2, "too little is mounted: {mounts:?}");

    give_up(stage, first, node).await?;
    let node = seize(stage, second).await?;
    tokio::time::sleep(WATCHED).await;
    let now = names.mounts()?;
    ensure!(
        mounts.iter().all(|mount| now.contains(mount)),
        "a mount did not outlive the change of hands\nbefore: {mounts:#?}\nafter: {now:#?}"
    );
    stage.apply_value(config("after")).await?;
    let shown = names.pod("volumes/kubernetes.io~configmap/settings/text");
    stage
        .bounded("the second one writes a changed config map", async {
            while std::fs::read_to_string(&shown)? != "after" {
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
            Ok(())
        })
        .await?;
    stage.until(POD, "holder", "running", running).await?;

    stage.remove(POD, &["holder"]).await?;
    stage
        .bounded("the second one leaves nothing of the pod", async {
            while !names.left()?.is_empty() {
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
            Ok(())
        })
        .await
        .with_context(|| format!("left: {:#?}", names.left()))?;
    stage.remove(CLAIM, &["files", "device"]).await?;
    let driver = stage.driver_name();
    stage
        .bounded("nothing is attached any more", async {
            let is_ours = |one: &Value| one["spec"]["attacher"] == *driver;
            while stage.list(ATTACHMENT).await?.iter().any(is_ours) {
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
            Ok(())
        })
        .await?;
    give_up(stage, second, node).await?;
    Ok(before)
}

/// Lets one have the node. The kubelet runs unless it pauses.
async fn seize(stage: &Stage, holder: Holder) -> Result<Option<Arc<Program>>> {
    let node = match holder {
        Holder::Kubelet => None,
        Holder::Ours => {
            stage.pause_component(KUBELET).await?;
            let kubeconfig = stage.role("node").await?;
            let arguments = [
                "--log=info".to_owned(),
                "node".to_owned(),
                format!("--kubeconfig={}", kubeconfig.display()),
                format!("--name={NODE}"),
                format!("--root={KUBELET_ROOT}"),
                format!("--cri=unix://{}", stage.containerd()),
            ];
            Some(stage.start("node", &stage.binary("orlop"), arguments)?)
        }
    };
    let is_holders = |node: &Value| {
        let version = node["status"]["nodeInfo"]["kubeletVersion"].as_str();
        let ours = version.is_some_and(|version| version.contains("orlop"));
        ours == (holder == Holder::Ours)
    };
    let what = format!("{holder:?}'s");
    stage.until(NODE_KIND, NODE, &what, is_holders).await?;
    stage.registered().await?;
    Ok(node)
}

/// Takes the node from one; its pods go on.
async fn give_up(stage: &Stage, holder: Holder, node: Option<Arc<Program>>) -> Result<()> {
    match (holder, node) {
        (Holder::Ours, Some(node)) => {
            node.end().await?;
            stage.resume_component(KUBELET).await
        }
        _ => Ok(()),
    }
}

/// A pod with a volume of every kind that leaves something in a node's folder.
fn pod() -> Value {
    let token = json!({"path": "token", "expirationSeconds": 3600});
    let label = json!({"path": "name", "fieldRef": {"fieldPath": "metadata.name"}});
    let mount = |name: &str| json!({"name": name, "mountPath": format!("/{name}")});
    let mounts = ["files", "scratch", "settings", "all", "pod"].map(mount);
    json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "holder"},
        "spec": {
            "hostNetwork": true, "automountServiceAccountToken": false, "enableServiceLinks": false,
            "terminationGracePeriodSeconds": 2,
            "containers": [{
                "name": "main", "image": BUSYBOX, "imagePullPolicy": "Never",
                "command": ["sh", "-c", "trap 'exit 0' TERM; touch /files/here; sleep 1000000 & wait"],
                "volumeMounts": mounts,
                "volumeDevices": [{"name": "device", "devicePath": "/dev/device"}],
            }],
            "volumes": [
                {"name": "files", "persistentVolumeClaim": {"claimName": "files"}},
                {"name": "device", "persistentVolumeClaim": {"claimName": "device"}},
                {"name": "scratch", "emptyDir": {}},
                {"name": "settings", "configMap": {"name": "settings"}},
                {"name": "pod", "downwardAPI": {"items": [label]}},
                {"name": "all", "projected": {"sources": [
                    {"configMap": {"name": "settings"}}, {"serviceAccountToken": token},
                ]}},
            ],
        },
    })
}
