//! The manifests of `deploy` on a real cluster: the API server takes all of them strictly, and the
//! pods that it makes of a driver's two parts do their work, with whichever replica leads.
//!
//! What a person would change is changed here: the driver's name, its image and arguments. What is
//! changed besides is told at the place.

use std::{path::Path, time::Duration};

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};
use tokio::process::Command;

use crate::{
    kube::{ADDRESS, KUBELET_ROOT, NODE, ORLOP},
    stage::{
        CLAIM, DAEMON_SET, DEPLOYMENT, LEASE, POD, SECRET, SERVICE_ACCOUNT, Stage, VOLUME, claim,
        documents, reader, writer,
    },
};

pub(super) const SYSTEM: &str = "kube-system";
/// What the manifests call the driver and its class.
const EXAMPLE: &str = "csi.example.com";
const CLASS: &str = "example";
const CONTROLLER: &str = "csi-example-controller";
const NODE_PART: &str = "csi-example-node";

pub(super) async fn run(stage: &Stage) -> Result<()> {
    stage.snapshot_kinds().await?;
    all_are_taken_strictly(stage).await?;
    stage.our_images().await?;
    deploy(stage).await?;
    stage.registered().await?;
    let ready = |deployment: &Value| deployment["status"]["readyReplicas"] == 2;
    stage
        .until_in(SYSTEM, DEPLOYMENT, CONTROLLER, "ready twice", ready)
        .await?;

    let first = leader(stage, "").await?;
    stage.apply_value(claim("data", CLASS, "64Mi")).await?;
    stage.apply_value(writer("writer", "data", "ahoy")).await?;
    let volume = stage.bound("data").await?;
    stage.succeeded("writer").await?;

    kill(stage, &first).await?;
    // The new leader finds what the old one left, and makes more.
    stage.apply_value(claim("more", CLASS, "64Mi")).await?;
    stage.apply_value(reader("reader", "data", "ahoy")).await?;
    stage.apply_value(writer("second", "more", "ahoy")).await?;
    leader(stage, &first).await?;
    let more = stage.bound("more").await?;
    for pod in ["reader", "second"] {
        stage.succeeded(pod).await?;
    }
    stage.remove(POD, &["writer", "reader", "second"]).await?;
    stage.remove(CLAIM, &["data", "more"]).await?;
    for volume in [volume, more] {
        stage.gone(VOLUME, &volume).await?;
    }
    remove(stage).await
}

/// Every object below `deploy` is one that the API server knows every field of.
async fn all_are_taken_strictly(stage: &Stage) -> Result<()> {
    let mut taken = 0;
    for folder in ["crds", "driver", "local", "nfs", "rbac", "snapshots"] {
        let folder = manifests().join(folder);
        let files = std::fs::read_dir(&folder);
        for file in files.with_context(|| format!("could not read {}", folder.display()))? {
            let file = file?.path();
            for object in documents(&std::fs::read_to_string(&file)?)? {
                stage
                    .try_strictly(&object)
                    .await
                    .with_context(|| format!("of {}", file.display()))?;
                taken += 1;
            }
        }
    }
    ensure!(taken > 20, "only {taken} objects were found");
    Ok(())
}

pub(super) fn manifests() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../deploy"))
}

async fn deploy(stage: &Stage) -> Result<()> {
    // Shared with scenarios that run beside this one.
    stage.role("controller").await?;
    for name in ["secret", "driver", "node", "controller"] {
        let file = manifests().join(format!("driver/{name}.yaml"));
        let text = std::fs::read_to_string(file)?
            .replace(EXAMPLE, &stage.driver_name())
            .replace("orlop:latest", ORLOP);
        for object in documents(&text)? {
            let kind = object["kind"].as_str().unwrap_or_default().to_owned();
            let object = match kind.as_str() {
                "DaemonSet" => with_local_driver(stage, object)?,
                "Deployment" => beside_the_nodes_driver(stage, object)?,
                _ => object,
            };
            stage.apply_value(object).await?;
        }
    }
    Ok(())
}

pub(super) fn containers(object: &mut Value) -> Result<&mut Vec<Value>> {
    let found = object.pointer_mut("/spec/template/spec/containers");
    found
        .and_then(Value::as_array_mut)
        .context("there are no containers")
}

fn volumes(object: &mut Value) -> Result<&mut Vec<Value>> {
    let found = object.pointer_mut("/spec/template/spec/volumes");
    found
        .and_then(Value::as_array_mut)
        .context("there are no volumes")
}

/// The driver's own part: the local driver, with a pool in the scenario's folder.
fn with_local_driver(stage: &Stage, mut object: Value) -> Result<Value> {
    let pool = stage.folder().join("pool");
    std::fs::create_dir_all(&pool)?;
    for container in containers(&mut object)? {
        if container["name"] == "driver" {
            container["image"] = json!(ORLOP);
            container["args"] = json!([
                "driver",
                "local",
                "--endpoint=unix:///csi/csi.sock",
                format!("--drivername={}", stage.driver_name()),
                format!("--nodeid={NODE}"),
                format!("--pool={}", pool.display()),
                "--reserve=0%",
                "--overcommit=100",
            ]);
            let mount = json!({"name": "pool", "mountPath": pool});
            let mounts = container["volumeMounts"].as_array_mut();
            mounts.context("the driver mounts nothing")?.push(mount);
        }
    }
    volumes(&mut object)?.push(json!({"name": "pool", "hostPath": {"path": pool}}));
    Ok(object)
}

/// The local driver is where its volumes are, so that there is none in the controller's pods: these
/// use the node's.
fn beside_the_nodes_driver(stage: &Stage, mut object: Value) -> Result<Value> {
    containers(&mut object)?.retain(|container| container["name"] != "driver");
    name_the_server(containers(&mut object)?)?;
    for volume in volumes(&mut object)? {
        if volume["name"] == "socket" {
            let path = format!("{KUBELET_ROOT}/plugins/{}", stage.driver_name());
            *volume =
                json!({"name": "socket", "hostPath": {"path": path, "type": "DirectoryOrCreate"}});
        }
    }
    Ok(object)
}

/// Names the API server to containers: this cluster has no service network.
pub(super) fn name_the_server(containers: &mut [Value]) -> Result<()> {
    for container in containers {
        let container = container.as_object_mut().context("this is no container")?;
        let env = container.entry("env").or_insert_with(|| json!([]));
        let env = env.as_array_mut().context("this is no environment")?;
        env.extend([
            json!({"name": "KUBERNETES_SERVICE_HOST", "value": ADDRESS}),
            json!({"name": "KUBERNETES_SERVICE_PORT", "value": "6443"}),
        ]);
    }
    Ok(())
}

/// Waits until somebody else than one leads; answers with who.
async fn leader(stage: &Stage, other_than: &str) -> Result<String> {
    let lease = format!("orlop-controller-{}", stage.driver_name().replace('.', "-"));
    let holder = |lease: &Value| lease["spec"]["holderIdentity"].as_str().map(str::to_owned);
    let led = |lease: &Value| {
        holder(lease).is_some_and(|holder| !holder.is_empty() && holder != other_than)
    };
    let lease = stage
        .until_in(SYSTEM, LEASE, &lease, "held by a replica", led)
        .await?;
    let holder = holder(&lease).unwrap_or_default();
    ensure!(
        holder.starts_with(CONTROLLER),
        "{holder} holds the lease, which is no pod of the controller's"
    );
    Ok(holder)
}

/// Kills a replica as a crash would, with no chance to give up its lease.
async fn kill(stage: &Stage, pod: &str) -> Result<()> {
    let pods = stage.list_in(POD, SYSTEM).await?;
    let found = pods.iter().find(|one| one["metadata"]["name"] == pod);
    let found = found.with_context(|| format!("there is no pod {pod}"))?;
    let id = found["status"]["containerStatuses"][0]["containerID"].as_str();
    let id = id.and_then(|id| id.strip_prefix("containerd://"));
    let killed = Command::new("ctr")
        .args(["--address", &stage.containerd(), "--namespace", "k8s.io"])
        .args(["tasks", "kill", "--signal", "SIGKILL"])
        .arg(id.context("the leader has no container")?)
        .output()
        .await?;
    ensure!(killed.status.success(), "it was not killed: {killed:?}");
    stage.delete_in(SYSTEM, POD, pod).await
}

/// Removes what is in the system's namespace, and waits for its pods to be gone.
async fn remove(stage: &Stage) -> Result<()> {
    for (kind, name) in [
        (DEPLOYMENT, CONTROLLER),
        (DAEMON_SET, NODE_PART),
        (SERVICE_ACCOUNT, NODE_PART),
        (SECRET, "csi-example"),
    ] {
        stage.delete_in(SYSTEM, kind, name).await?;
    }
    pods_are_gone(stage, &[CONTROLLER, NODE_PART]).await
}

/// Waits until no pod of these applications is left in the system's namespace.
pub(super) async fn pods_are_gone(stage: &Stage, apps: &[&str]) -> Result<()> {
    let is_theirs = |pod: &Value| {
        let app = pod["metadata"]["labels"]["app"].as_str();
        app.is_some_and(|app| apps.contains(&app))
    };
    stage
        .bounded("the pods are gone", async {
            while stage.list_in(POD, SYSTEM).await?.iter().any(is_theirs) {
                tokio::time::sleep(Duration::from_millis(200)).await;
            }
            Ok(())
        })
        .await
}
