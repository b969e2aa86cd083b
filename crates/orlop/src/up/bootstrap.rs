//! The objects that a user finds on the first start: the driver's traits and its default classes.

use anyhow::{Context, Result};
use orlop_csi::{
    DriverInfo,
    client::{ControllerCapability, GroupCapability, NodeCapability},
};
use orlop_model::{
    CsiDriver, StorageClass, VolumeGroupSnapshotClass, VolumeSnapshotClass, well_known,
};
use orlop_runtime::{ApiError, Cluster};
use serde_json::{Value, json};

/// Writes what isn't there yet; what a user has changed stays as it is.
pub(crate) async fn objects(cluster: &Cluster, class: &str, driver: &DriverInfo) -> Result<()> {
    keep(cluster.create_json::<CsiDriver>(&traits(driver)).await)
        .context("could not write the driver's CSIDriver object")?;
    keep(
        cluster
            .create_json::<StorageClass>(&default_class(class, driver))
            .await,
    )
    .context("could not write the default StorageClass")?;
    if driver.can(ControllerCapability::CreateDeleteSnapshot) {
        let class = cutting(class, driver, well_known::IS_DEFAULT_SNAPSHOT_CLASS);
        keep(cluster.create_json::<VolumeSnapshotClass>(&class).await)
            .context("could not write the default VolumeSnapshotClass")?;
    }
    let groups = GroupCapability::CreateDeleteGetVolumeGroupSnapshot;
    if driver.group.contains(&groups) {
        let class = cutting(class, driver, well_known::IS_DEFAULT_GROUP_SNAPSHOT_CLASS);
        keep(
            cluster
                .create_json::<VolumeGroupSnapshotClass>(&class)
                .await,
        )
        .context("could not write the default VolumeGroupSnapshotClass")?;
    }
    Ok(())
}

/// What can be snapshotted, in words.
pub(crate) fn snapshots(class: &str, driver: &DriverInfo) -> String {
    let single = driver.can(ControllerCapability::CreateDeleteSnapshot);
    let groups = GroupCapability::CreateDeleteGetVolumeGroupSnapshot;
    match (single, driver.group.contains(&groups)) {
        (true, true) => {
            format!("VolumeSnapshots and VolumeGroupSnapshots of class {class} (default)")
        }
        (true, false) => format!("VolumeSnapshots of class {class} (default)"),
        (false, _) => format!("none: {} takes no snapshots", driver.name),
    }
}

/// A class of snapshots, or of groups of them, that is the driver's default.
fn cutting(name: &str, driver: &DriverInfo, is_default: &str) -> Value {
    json!({
        "metadata": {"name": name, "annotations": {is_default: "true"}},
        "driver": driver.name,
        "deletionPolicy": "Delete",
    })
}

fn keep<T>(created: Result<T, ApiError>) -> Result<(), ApiError> {
    match created {
        Ok(_) => Ok(()),
        Err(error) if error.is_already_exists() => Ok(()),
        Err(error) => Err(error),
    }
}

fn traits(driver: &DriverInfo) -> Value {
    // No driver tells whether it has volumes that live with a pod, or files that can be given to
    // a group whatever the volume's type; of the built-in one it is known.
    let (lifetimes, group): (&[&str], _) = if driver.name == orlop_drivers::local::DRIVER_NAME {
        (&["Persistent", "Ephemeral"], "File")
    } else {
        (&["Persistent"], "ReadWriteOnceWithFSType")
    };
    json!({
        "metadata": {"name": driver.name},
        "spec": {
            "attachRequired": driver.can(ControllerCapability::PublishUnpublishVolume),
            "podInfoOnMount": true,
            "fsGroupPolicy": group,
            "volumeLifecycleModes": lifetimes,
        },
    })
}

fn default_class(name: &str, driver: &DriverInfo) -> Value {
    json!({
        "metadata": {
            "name": name,
            "annotations": {well_known::IS_DEFAULT_CLASS: "true"},
        },
        "provisioner": driver.name,
        "reclaimPolicy": "Delete",
        // Local volumes are made where the pod is; for others it does no harm.
        "volumeBindingMode": "WaitForFirstConsumer",
        // A driver that can't grow volumes: let the API server say so at once.
        "allowVolumeExpansion": driver.can(ControllerCapability::ExpandVolume)
            || driver.node_can(NodeCapability::ExpandVolume),
    })
}
