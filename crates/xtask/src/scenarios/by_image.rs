//! A driver as its maker deploys it for the Go sidecars, with their rights and their flags, where
//! only the images have changed: they are those of our binary, entered by the old names.

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};

use crate::{
    kube::{ADDRESS, KUBELET_ROOT, NODE, ORLOP},
    stage::{
        CLAIM, LEASE, POD, SNAPSHOT_CONTENT, SNAPSHOTS, Stage, VOLUME, VOLUME_SNAPSHOT, claim,
        reader, writer,
    },
};

const MANIFEST: &str = include_str!("by_image/driver.yaml");

pub(super) async fn run(stage: &Stage) -> Result<()> {
    stage.snapshot_kinds().await?;
    stage.our_images().await?;
    let pool = stage.folder().join("pool");
    std::fs::create_dir_all(&pool)?;
    let manifest = MANIFEST
        .replace("NAMESPACE", stage.namespace())
        .replace("DRIVER", &stage.driver_name())
        .replace("KUBELET", KUBELET_ROOT)
        .replace("IMAGE", ORLOP)
        .replace("NODE", NODE)
        .replace("POOL", &pool.display().to_string())
        // This cluster has no service network.
        .replace("ADDRESS", ADDRESS);
    stage.apply(&manifest).await?;
    stage.registered().await?;
    led_by_the_old_leases(stage).await?;
    life(stage).await?;
    stage.remove(POD, &["csi"]).await
}

/// Each sidecar leads by the lease that the original of it would take.
async fn led_by_the_old_leases(stage: &Stage) -> Result<()> {
    let driver = stage.driver_name().replace('.', "-");
    for lease in [
        driver.clone(),
        format!("external-attacher-leader-{driver}"),
        format!("external-resizer-{driver}"),
        format!("external-snapshotter-leader-{driver}"),
        "snapshot-controller-leader".to_owned(),
    ] {
        // The provisioner's holder is a name of its own, as the original's: time, chance and driver.
        let led = |lease: &Value| {
            let holder = lease["spec"]["holderIdentity"].as_str().unwrap_or_default();
            holder == "csi" || holder.ends_with(&format!("-{driver}"))
        };
        stage.until(LEASE, &lease, "held by the pod", led).await?;
    }
    Ok(())
}

async fn life(stage: &Stage) -> Result<()> {
    let class = stage.namespace();
    stage.apply_value(claim("data", class, "64Mi")).await?;
    stage.apply_value(writer("writer", "data", "ahoy")).await?;
    let volume = stage.bound("data").await?;
    stage.succeeded("writer").await?;
    stage
        .apply_value(json!({
            "apiVersion": format!("{SNAPSHOTS}/v1"), "kind": "VolumeSnapshot", "metadata": {"name": "cut"},
            "spec": {"volumeSnapshotClassName": class, "source": {"persistentVolumeClaimName": "data"}},
        }))
        .await?;
    let ready = |snapshot: &Value| snapshot["status"]["readyToUse"] == true;
    let cut = stage.until(VOLUME_SNAPSHOT, "cut", "ready", ready).await?;
    let content = cut["status"]["boundVolumeSnapshotContentName"].as_str();
    let content = content.context("a ready snapshot has no content")?;
    let mut restored = claim("restored", class, "64Mi");
    restored["spec"]["dataSource"] =
        json!({"apiGroup": SNAPSHOTS, "kind": "VolumeSnapshot", "name": "cut"});
    stage.apply_value(restored).await?;
    stage
        .apply_value(reader("reader", "restored", "ahoy"))
        .await?;
    let again = stage.bound("restored").await?;
    stage.succeeded("reader").await?;
    well(stage).await?;

    stage.remove(POD, &["writer", "reader"]).await?;
    stage.remove(VOLUME_SNAPSHOT, &["cut"]).await?;
    stage.gone(SNAPSHOT_CONTENT, content).await?;
    stage.remove(CLAIM, &["data", "restored"]).await?;
    for volume in [volume, again] {
        stage.gone(VOLUME, &volume).await?;
    }
    Ok(())
}

/// No container of the driver's pod had to be started again.
async fn well(stage: &Stage) -> Result<()> {
    let pod = stage.get(POD, "csi").await?.unwrap_or_default();
    let containers = pod["status"]["containerStatuses"].as_array();
    for container in containers.context("the pod has no containers")? {
        ensure!(
            container["restartCount"] == 0 && container["ready"] == true,
            "{} did not run all the time: {container:#}",
            container["name"]
        );
    }
    Ok(())
}
