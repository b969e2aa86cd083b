//! The Go sidecars with our `local` driver: they find in it whatever they look for in a driver.

use std::{path::Path, sync::Arc};

use anyhow::Result;
use serde_json::{Value, json};

use crate::{
    kube::KUBELET_ROOT,
    stage::{CLAIM, POD, Program, Stage, VOLUME, claim, pod, reader, writer},
};

/// Less than this xfs can't be.
const SMALL: &str = "320Mi";
const LARGE: &str = "640Mi";

pub(super) async fn run(stage: &Stage) -> Result<()> {
    stage.local_driver().await?;
    stage.apply_value(xfs(stage)).await?;
    start(stage, &stage.administrator()).await?;
    register(stage).await?;
    life(stage).await
}

/// The one file system of which a machine without all rights can grow a mounted one.
pub(super) fn xfs(stage: &Stage) -> Value {
    json!({
        "apiVersion": "storage.k8s.io/v1", "kind": "StorageClass",
        "metadata": {"name": class(stage)},
        "provisioner": stage.driver_name(), "volumeBindingMode": "WaitForFirstConsumer",
        "allowVolumeExpansion": true, "parameters": {"csi.storage.k8s.io/fstype": "xfs"},
    })
}

pub(super) fn class(stage: &Stage) -> String {
    format!("{}-xfs", stage.namespace())
}

/// Starts the sidecars of the driver's controller: provisioner, resizer, and the attacher if one
/// was brought, or else ours.
pub(super) async fn start(stage: &Stage, kubeconfig: &Path) -> Result<()> {
    sidecar(stage, "csi-provisioner", kubeconfig, &["--timeout=30s"])?;
    sidecar(stage, "csi-resizer", kubeconfig, &["--timeout=30s"])?;
    if stage.binary("csi-attacher").exists() {
        sidecar(stage, "csi-attacher", kubeconfig, &["--timeout=30s"])?;
    } else {
        sidecar(
            stage,
            "orlop",
            kubeconfig,
            &["controller", "--controllers=attacher"],
        )?;
    }
    Ok(())
}

/// Starts a sidecar beside the scenario's driver.
pub(super) fn sidecar(
    stage: &Stage,
    name: &str,
    kubeconfig: &Path,
    first: &[&str],
) -> Result<Arc<Program>> {
    let mut arguments: Vec<String> = first.iter().map(|one| (*one).to_owned()).collect();
    arguments.extend([
        format!("--kubeconfig={}", kubeconfig.display()),
        format!("--csi-address={}", stage.driver_socket().display()),
    ]);
    stage.start(name, &stage.binary(name), arguments)
}

/// Makes the driver known to the kubelet, by the registrar that was brought, or else by ours.
pub(super) async fn register(stage: &Stage) -> Result<()> {
    const REGISTRAR: &str = "csi-node-driver-registrar";
    if !stage.binary(REGISTRAR).exists() {
        stage.our_registrar().await?;
        return Ok(());
    }
    let socket = stage.driver_socket();
    stage.start(
        "registrar",
        &stage.binary(REGISTRAR),
        [
            format!("--csi-address={}", socket.display()),
            format!("--kubelet-registration-path={}", socket.display()),
            format!("--plugin-registration-path={KUBELET_ROOT}/plugins_registry"),
        ],
    )?;
    stage.registered().await
}

/// A claim is written to, grows under a running pod, is read again, and goes.
pub(super) async fn life(stage: &Stage) -> Result<()> {
    stage
        .apply_value(claim("data", &class(stage), SMALL))
        .await?;
    stage.apply_value(writer("writer", "data", "ahoy")).await?;
    let volume = stage.bound("data").await?;
    stage.succeeded("writer").await?;
    stage.remove(POD, &["writer"]).await?;

    // It ends well once the file system in it is larger than the small one could be.
    let larger = "until [ $(df -k /data | awk 'END {print $2}') -gt 500000 ]; do sleep 0.2; done";
    stage.apply_value(pod("grower", "data", larger)).await?;
    stage
        .until(POD, "grower", "running", |pod| {
            pod["status"]["phase"] == "Running"
        })
        .await?;
    let wish = json!({"spec": {"resources": {"requests": {"storage": LARGE}}}});
    stage.merge(CLAIM, "data", &wish).await?;
    stage
        .until(CLAIM, "data", "grown, with nothing left to do", |claim| {
            let conditions = claim["status"]["conditions"].as_array();
            let pending = conditions.is_some_and(|all| {
                all.iter()
                    .any(|one| one["type"].as_str().is_some_and(|it| it.contains("Resiz")))
            });
            claim["status"]["capacity"]["storage"] == LARGE && !pending
        })
        .await?;
    stage.succeeded("grower").await?;
    stage.remove(POD, &["grower"]).await?;

    stage.apply_value(reader("reader", "data", "ahoy")).await?;
    stage.succeeded("reader").await?;
    stage.remove(POD, &["reader"]).await?;
    stage.remove(CLAIM, &["data"]).await?;
    stage.gone(VOLUME, &volume).await
}
