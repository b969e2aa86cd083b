//! Claims and volumes that lose each other: lost, released, given again, scrubbed.

use anyhow::{Result, ensure};
use serde_json::json;

use super::{Telling, life};
use crate::{
    kube,
    stage::{CLAIM, NODE, POD, VOLUME, claim},
};

const CLASS: &str = "by-hand";

pub(super) async fn lead(telling: &mut Telling<'_>) -> Result<()> {
    lost(telling).await?;
    released(telling).await?;
    recycled(telling).await
}

/// A volume goes under its claim, against all protection.
async fn lost(telling: &mut Telling<'_>) -> Result<()> {
    let stage = telling.stage;
    let volume = telling.name("fleeting");
    let disk = telling.disk("fleeting", CLASS, "1Gi");
    telling.pair(disk, claim("loser", CLASS, "1Gi")).await?;
    stage.delete(VOLUME, &volume).await?;
    telling.stop("a bound volume is deleted").await?;
    stage
        .merge(VOLUME, &volume, &json!({"metadata": {"finalizers": null}}))
        .await?;
    telling.phase(CLAIM, "loser", "Lost").await?;
    telling.told("loser", "ClaimLost").await?;
    telling.stop("a claim lost its volume").await?;
    // Another of that name doesn't bring it back.
    telling
        .apply([telling.disk("fleeting", CLASS, "1Gi")])
        .await?;
    telling.stop("another volume of its name came").await?;
    telling.clear(&["loser"], &["fleeting"]).await
}

/// A released volume is given to nobody until a person says so.
async fn released(telling: &mut Telling<'_>) -> Result<()> {
    let stage = telling.stage;
    let volume = telling.name("precious");
    let disk = telling.disk("precious", CLASS, "1Gi");
    telling.pair(disk, claim("first", CLASS, "1Gi")).await?;
    stage.remove(CLAIM, &["first"]).await?;
    telling.phase(VOLUME, &volume, "Released").await?;
    telling.apply([claim("first", CLASS, "1Gi")]).await?;
    telling.told("first", "ProvisioningFailed").await?;
    telling
        .stop("another claim of the old one's name gets nothing")
        .await?;
    let free = json!({"spec": {"claimRef": null}});
    stage.merge(VOLUME, &volume, &free).await?;
    stage.bound("first").await?;
    telling.stop("the volume was freed by hand").await?;
    telling.clear(&["first"], &["precious"]).await
}

/// A released folder is scrubbed by a pod, and given to who asks next.
async fn recycled(telling: &mut Telling<'_>) -> Result<()> {
    let stage = telling.stage;
    let (volume, folder) = (telling.name("reused"), stage.folder().join("reused"));
    std::fs::create_dir_all(folder.join("deep"))?;
    std::fs::write(folder.join("deep/secret"), "of the first owner")?;
    let mut reused = telling.disk("reused", CLASS, "1Gi");
    reused["spec"]["persistentVolumeReclaimPolicy"] = json!("Recycle");
    telling.pair(reused, claim("owner", CLASS, "1Gi")).await?;
    // Nothing starts meanwhile, so that there is time to look.
    let cordon = |closed: bool| json!({"spec": {"unschedulable": closed}});
    stage.merge(NODE, kube::NODE, &cordon(true)).await?;
    stage.remove(CLAIM, &["owner"]).await?;
    telling.phase(VOLUME, &volume, "Released").await?;
    let pod = format!("recycler-for-{volume}");
    let open = |pod: &serde_json::Value| pod["spec"]["schedulingGates"].is_null();
    stage.until_in("default", POD, &pod, "made", open).await?;
    telling.stop("a pod is to scrub a volume").await?;
    stage.merge(NODE, kube::NODE, &cordon(false)).await?;
    telling.phase(VOLUME, &volume, "Available").await?;
    telling.told(&volume, "VolumeRecycled").await?;
    ensure!(
        std::fs::read_dir(&folder)?.next().is_none(),
        "the volume was not scrubbed"
    );
    telling.apply([claim("heir", CLASS, "1Gi")]).await?;
    stage.bound("heir").await?;
    stage
        .bounded("the scrubber is gone", async {
            while !life::scrubbers(stage).await?.is_empty() {
                tokio::time::sleep(std::time::Duration::from_millis(200)).await;
            }
            Ok(())
        })
        .await?;
    telling.stop("a scrubbed volume has another owner").await?;
    // Nobody waits for another scrub.
    let keep = json!({"spec": {"persistentVolumeReclaimPolicy": "Retain"}});
    stage.merge(VOLUME, &volume, &keep).await?;
    telling.clear(&["heir"], &["reused"]).await
}
