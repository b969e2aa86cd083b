//! A FlexVolume driver that attaches, under the real kubelet: with our attach-detach in the place of
//! kube-controller-manager's, driver and node are told the same.

use std::{
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::{Context as _, Result};
use serde_json::{Value, json};

use super::our_control::{MANAGER, THEIRS};
use crate::{
    kube::NODE as NODE_NAME,
    stage::{CLAIM, NODE, POD, Stage, VOLUME, claim, pod},
};

const DRIVER: &str = "orlop/crate";

/// What the driver does: it notes its arguments, and mounts some memory.
const SCRIPT: &str = r#"#!/bin/sh
echo "$*" >>"$(dirname "$0")/calls"
case $1 in
  init) echo '{"status": "Success", "capabilities": {"attach": true}}' ;;
  attach) echo '{"status": "Success", "device": "/dev/crate"}' ;;
  waitforattach) echo "{\"status\": \"Success\", \"device\": \"$2\"}" ;;
  isattached) echo '{"status": "Success", "attached": true}' ;;
  mountdevice) mkdir -p "$2" && mount -t tmpfs crate "$2" && echo '{"status": "Success"}' ;;
  unmountdevice) umount "$2" && echo '{"status": "Success"}' ;;
  detach) echo '{"status": "Success"}' ;;
  *) echo '{"status": "Not supported"}' ;;
esac
"#;

pub(super) async fn run(stage: &Stage) -> Result<()> {
    let folder = install(stage)?;
    let compared = compare(stage, &folder).await;
    stage.restart_component(MANAGER, &[]).await?;
    stage.restart_component("kubelet", &[]).await?;
    compared
}

/// Makes a folder of drivers; gives the driver's own.
fn install(stage: &Stage) -> Result<PathBuf> {
    let folder = stage.folder().join("drivers/orlop~crate");
    std::fs::create_dir_all(&folder)?;
    let program = folder.join("crate");
    std::fs::write(&program, SCRIPT)?;
    std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755))?;
    Ok(folder)
}

async fn compare(stage: &Stage, folder: &Path) -> Result<()> {
    let drivers = folder.parent().context("the folder has a parent")?;
    let drivers = drivers.display();
    let for_manager = format!("--flex-volume-plugin-dir={drivers}");
    let for_kubelet = format!("--volume-plugin-dir={drivers}");
    stage.restart_component("kubelet", &[&for_kubelet]).await?;
    stage.restart_component(MANAGER, &[&for_manager]).await?;
    let theirs = lead(stage, folder).await?;

    stage.restart_component(MANAGER, &[THEIRS]).await?;
    let kubeconfig = format!("--kubeconfig={}", stage.role("control").await?.display());
    let orlop = stage.binary("orlop");
    let arguments = ["--log=info", "control", &kubeconfig, &for_manager];
    let control = stage.start("control", &orlop, arguments)?;
    let ours = lead(stage, folder).await?;
    control.end().await?;
    anyhow::ensure!(
        theirs == ours,
        "with kube-controller-manager: {theirs:#}\nwith ours: {ours:#}"
    );
    Ok(())
}

/// Leads pods through their lives with volumes of the driver, one of the pod's own and one by a
/// claim; answers with what the node was told, and what the driver.
async fn lead(stage: &Stage, folder: &Path) -> Result<Value> {
    let calls = folder.join("calls");
    std::fs::write(&calls, "")?;
    let source = |options: &str| json!({"driver": DRIVER, "options": {"kind": options}});
    stage
        .apply_value(json!({
            "apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": "flex-hold"},
            "spec": {
                "capacity": {"storage": "1Mi"}, "accessModes": ["ReadWriteOnce"],
                "storageClassName": "flex", "persistentVolumeReclaimPolicy": "Retain",
                "flexVolume": source("claimed"),
            },
        }))
        .await?;
    stage.apply_value(claim("hold", "flex", "1Mi")).await?;
    stage.bound("hold").await?;
    let script = "echo ahoy >/data/word && echo ahoy >/own/word && sleep 600";
    let mut user = pod("user", "hold", script);
    let spec = &mut user["spec"];
    let own = json!({"name": "own", "flexVolume": source("own")});
    spec["volumes"].as_array_mut().context("a list")?.push(own);
    let mounts = spec["containers"][0]["volumeMounts"].as_array_mut();
    let mount = json!({"name": "own", "mountPath": "/own"});
    mounts.context("a list")?.push(mount);
    stage.apply_value(user).await?;
    let ready = |pod: &Value| {
        let mut conditions = pod["status"]["conditions"].as_array().into_iter().flatten();
        conditions.any(|one| one["type"] == "Ready" && one["status"] == "True")
    };
    stage.until(POD, "user", "ready", ready).await?;
    let node = stage
        .until(NODE, NODE_NAME, "told of both", |node| {
            of_driver(node).len() == 2
        })
        .await?;
    let told = of_driver(&node);

    stage.end_pod("user").await?;
    stage.gone(POD, "user").await?;
    stage
        .until(NODE, NODE_NAME, "told of none", |node| {
            of_driver(node).is_empty()
        })
        .await?;
    stage
        .bounded("the driver has detached both", async {
            while attaching(&calls)?
                .iter()
                .filter(|call| call[0] == "detach")
                .count()
                < 2
            {
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
            Ok(())
        })
        .await?;
    stage.remove(CLAIM, &["hold"]).await?;
    stage.remove(VOLUME, &["flex-hold"]).await?;
    Ok(json!({"told": told, "called": attaching(&calls)?}))
}

/// What a node was told of the driver's volumes.
fn of_driver(node: &Value) -> Vec<Value> {
    let all = node["status"]["volumesAttached"].as_array();
    let mut ours: Vec<Value> = all
        .into_iter()
        .flatten()
        .filter(|volume| {
            volume["name"]
                .as_str()
                .is_some_and(|name| name.contains(DRIVER))
        })
        .cloned()
        .collect();
    ours.sort_by_key(|volume| volume["name"].to_string());
    ours
}

/// The calls that attach and detach, each once: who is not sure may ask again.
fn attaching(calls: &Path) -> Result<Vec<Vec<Value>>> {
    let said = std::fs::read_to_string(calls)?;
    let mut found: Vec<Vec<Value>> = said
        .lines()
        .filter_map(|line| line.split_once(' '))
        .filter(|(command, _)| ["attach", "detach"].contains(command))
        .map(|(command, rest)| {
            let (first, node) = rest.rsplit_once(' ').unwrap_or((rest, ""));
            let first = serde_json::from_str(first).unwrap_or_else(|_| json!(first));
            vec![json!(command), first, json!(node)]
        })
        .collect();
    found.sort_by_key(|call| format!("{call:?}"));
    found.dedup();
    Ok(found)
}
