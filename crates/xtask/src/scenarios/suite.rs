//! What the sidecars are for, written once: it is led with either driver before either API server,
//! and must go the same way each time.

mod copies;
mod groups;
mod growth;
mod volumes;

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::{Result, ensure};
use serde_json::{Value, json};

use super::{embedded, host_path};
use crate::{
    kube::KUBELET_ROOT,
    stage::{CAPACITY, CLASS, Stage},
};

/// Where the sidecars tell capacity and hold their leases: where their rights are.
const SYSTEM: &str = "kube-system";

/// Whose volumes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Driver {
    Local,
    HostPath,
}

/// Who keeps the objects, and with it who binds, attaches, schedules and mounts: Kubernetes' own
/// components, or ours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Server {
    Real,
    Embedded,
}

/// Who the sidecars are to the API server.
struct Identities {
    controller: PathBuf,
    snapshot_controller: PathBuf,
}

pub(super) async fn run(stage: &Stage, driver: Driver, server: Server) -> Result<()> {
    match server {
        Server::Real => {
            let identities = Identities {
                controller: stage.role("controller").await?,
                snapshot_controller: stage.role("snapshot-controller").await?,
            };
            stage.snapshot_kinds().await?;
            start_driver(stage, driver, Path::new(KUBELET_ROOT)).await?;
            stage.our_registrar().await?;
            lead(stage, driver, &identities).await
        }
        Server::Embedded => {
            let administrator = embedded::api_server(stage).await?;
            let stage = &stage.facing(&administrator).await?;
            // Sockets are below it, whose paths must be short.
            let root = stage.folder().join("n");
            stage.snapshot_kinds().await?;
            start_driver(stage, driver, &root).await?;
            embedded::ours(stage, "control", &administrator, &[])?;
            embedded::ours(stage, "scheduler", &administrator, &[])?;
            embedded::node(stage, &root, &administrator).await?;
            let identities = Identities {
                controller: administrator.clone(),
                snapshot_controller: administrator,
            };
            lead(stage, driver, &identities).await?;
            stage.close().await
        }
    }
}

/// Starts the sidecars and leads all lives at once.
async fn lead(stage: &Stage, driver: Driver, identities: &Identities) -> Result<()> {
    start_sidecars(stage, identities)?;
    make_classes(stage, driver).await?;
    tokio::try_join!(
        volumes::at_once(stage),
        volumes::kept(stage),
        volumes::late(stage),
        volumes::room(stage),
        growth::grown_and_changed(stage, driver),
        copies::cut_and_copied(stage),
        groups::cut_together(stage),
    )?;
    nothing_leaked(stage, &identities.controller).await?;
    remove_classes(stage).await
}

async fn start_driver(stage: &Stage, driver: Driver, root: &Path) -> Result<()> {
    match driver {
        Driver::Local => stage.local_driver_for(root).await?,
        Driver::HostPath => {
            host_path::start(stage, &["--enable-controller-modify-volume=true"]).await?
        }
    };
    Ok(())
}

/// Starts all sidecars of the driver as one process, and the cluster's snapshot controller. The
/// latter runs for the lease that every other one runs for: a cluster has one that works.
fn start_sidecars(stage: &Stage, identities: &Identities) -> Result<()> {
    let orlop = stage.binary("orlop");
    let namespace = format!("--leader-election-namespace={SYSTEM}");
    let gates = "--feature-gates=CSIVolumeGroupSnapshot=true";
    let kubeconfig = |path: &Path| format!("--kubeconfig={}", path.display());
    stage.start_with(
        "controller",
        &orlop,
        [
            "--log=info",
            "controller",
            &kubeconfig(&identities.controller),
            &format!("--csi-address={}", stage.driver_socket().display()),
            "--leader-election",
            &namespace,
            "--timeout=30s",
            "--extra-create-metadata",
            "--enable-capacity",
            // The objects are nobody's: this process is no pod's.
            "--capacity-ownerref-level=-1",
            "--capacity-poll-interval=10s",
            gates,
        ],
        &[("NAMESPACE", SYSTEM.into())],
    )?;
    stage.start(
        "snapshot-controller",
        &orlop,
        [
            "snapshot-controller",
            &kubeconfig(&identities.snapshot_controller),
            "--leader-election=true",
            &namespace,
            "--leader-election-retry-period=1s",
            gates,
        ],
    )?;
    Ok(())
}

/// The class whose volumes wait for a pod.
fn late(stage: &Stage) -> String {
    stage.namespace().to_owned()
}

/// The class whose volumes are made at once.
fn at_once(stage: &Stage) -> String {
    format!("{}-now", stage.namespace())
}

/// The class whose volumes outlive their claims.
fn keeping(stage: &Stage) -> String {
    format!("{}-keep", stage.namespace())
}

/// The class whose volumes can grow under a pod.
fn growing(stage: &Stage) -> String {
    format!("{}-grow", stage.namespace())
}

async fn make_classes(stage: &Stage, driver: Driver) -> Result<()> {
    stage.class(true, &json!({})).await?;
    let grows = match driver {
        // The one file system of which a machine without all rights can grow a mounted one.
        Driver::Local => json!({"csi.storage.k8s.io/fstype": "xfs"}),
        Driver::HostPath => json!({}),
    };
    for (name, mode, policy, parameters) in [
        (at_once(stage), "Immediate", "Delete", json!({})),
        (keeping(stage), "Immediate", "Retain", json!({})),
        (growing(stage), "WaitForFirstConsumer", "Delete", grows),
    ] {
        stage
            .apply_value(json!({
                "apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": {"name": name},
                "provisioner": stage.driver_name(), "volumeBindingMode": mode,
                "reclaimPolicy": policy, "allowVolumeExpansion": true, "parameters": parameters,
            }))
            .await?;
    }
    Ok(())
}

/// Removes the classes, and waits until nobody tells of room for them any more: those who do so end
/// with the stage.
async fn remove_classes(stage: &Stage) -> Result<()> {
    let classes = [late(stage), at_once(stage), keeping(stage), growing(stage)];
    stage
        .remove(CLASS, &classes.each_ref().map(String::as_str))
        .await?;
    stage
        .bounded("no capacity of the scenario's classes is told", async {
            while !told_rooms(stage, |class| classes.iter().any(|one| one == class))
                .await?
                .is_empty()
            {
                tokio::time::sleep(Duration::from_millis(200)).await;
            }
            Ok(())
        })
        .await
}

/// The capacity that is told of some classes.
async fn told_rooms(stage: &Stage, of: impl Fn(&str) -> bool) -> Result<Vec<Value>> {
    let mut all = stage.list_in(CAPACITY, SYSTEM).await?;
    all.retain(|one| one["storageClassName"].as_str().is_some_and(&of));
    Ok(all)
}

/// Whatever the driver has is owned, and whatever is owned the driver has.
async fn nothing_leaked(stage: &Stage, kubeconfig: &Path) -> Result<()> {
    let looked = stage.start(
        "leaks",
        &stage.binary("orlop"),
        [
            "leaks".to_owned(),
            format!("--csi-address={}", stage.driver_socket().display()),
            format!("--kubeconfig={}", kubeconfig.display()),
        ],
    )?;
    let status = looked.finished(Duration::from_secs(30)).await?;
    ensure!(
        status.success(),
        "something leaked ({status}): {}",
        looked.said()
    );
    Ok(())
}
