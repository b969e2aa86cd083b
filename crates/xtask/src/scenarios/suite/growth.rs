//! A volume grows under the pod that uses it, and its attributes change.

use anyhow::Result;
use serde_json::{Value, json};

use super::{Driver, growing};
use crate::stage::{CLAIM, POD, Stage, VOLUME, claim, pod};

/// Less than this xfs can't be.
const SMALL: &str = "320Mi";
const LARGE: &str = "640Mi";

pub(super) async fn grown_and_changed(stage: &Stage, driver: Driver) -> Result<()> {
    stage
        .apply_value(claim("grows", &growing(stage), SMALL))
        .await?;
    // It ends well once the file system in it is larger than the small one could be. A folder of the
    // machine's disk, as the host-path driver has it, is as large as the disk.
    let larger = match driver {
        Driver::Local => {
            "until [ $(df -k /data | awk 'END {print $2}') -gt 500000 ]; do sleep 0.2; done"
        }
        Driver::HostPath => "until [ -e /data/grown ]; do sleep 0.2; done",
    };
    let script = format!("trap exit TERM; {larger}");
    stage.apply_value(pod("grower", "grows", &script)).await?;
    let volume = stage.bound("grows").await?;
    let running = |pod: &Value| pod["status"]["phase"] == "Running";
    stage.until(POD, "grower", "running", running).await?;

    let wish = json!({"spec": {"resources": {"requests": {"storage": LARGE}}}});
    stage.merge(CLAIM, "grows", &wish).await?;
    let grown = |claim: &Value| {
        let conditions = claim["status"]["conditions"].as_array();
        let pending = conditions.is_some_and(|all| {
            all.iter()
                .any(|one| one["type"].as_str().is_some_and(|it| it.contains("Resiz")))
        });
        claim["status"]["capacity"]["storage"] == LARGE && !pending
    };
    stage
        .until(CLAIM, "grows", "grown, with nothing left to do", grown)
        .await?;
    let as_large = |volume: &Value| volume["spec"]["capacity"]["storage"] == LARGE;
    stage.until(VOLUME, &volume, "as large", as_large).await?;
    if driver == Driver::Local {
        stage.succeeded("grower").await?;
    }
    changed(stage, driver, &volume).await?;
    stage.remove(POD, &["grower"]).await?;
    stage.remove(CLAIM, &["grows"]).await?;
    stage.gone(VOLUME, &volume).await
}

async fn changed(stage: &Stage, driver: Driver, volume: &str) -> Result<()> {
    let name = format!("{}-fast", stage.namespace());
    let parameters = match driver {
        Driver::Local => json!({"readAheadKiB": "256"}),
        Driver::HostPath => json!({"speed": "fast"}),
    };
    stage
        .apply_value(json!({
            "apiVersion": "storage.k8s.io/v1", "kind": "VolumeAttributesClass",
            "metadata": {"name": name}, "driverName": stage.driver_name(), "parameters": parameters,
        }))
        .await?;
    let wish = json!({"spec": {"volumeAttributesClassName": name}});
    stage.merge(CLAIM, "grows", &wish).await?;
    let changed = |claim: &Value| {
        let status = &claim["status"];
        status["currentVolumeAttributesClassName"] == *name
            && status["modifyVolumeStatus"].is_null()
    };
    stage
        .until(CLAIM, "grows", "changed, with nothing left to do", changed)
        .await?;
    let has = |volume: &Value| volume["spec"]["volumeAttributesClassName"] == *name;
    stage.until(VOLUME, volume, "changed", has).await?;
    Ok(())
}
