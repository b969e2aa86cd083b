//! Our storage controllers in the place of kube-controller-manager's: the same life is led with
//! theirs and with ours, and at every stop on the way the API server must hold the same.

mod life;

use anyhow::Result;
use serde_json::{Value, json};

use super::likeness;
use crate::stage::{CLAIM, EVENT, POD, Stage, VOLUME, claim, pod};

const MANAGER: &str = "kube-controller-manager";
/// What `orlop control` takes over.
const THEIRS: &str = "--controllers=*,\
    -persistentvolume-binder-controller,\
    -persistentvolume-attach-detach-controller,\
    -persistentvolumeclaim-protection-controller,\
    -persistentvolume-protection-controller,\
    -ephemeral-volume-controller";

pub(super) async fn run(stage: &Stage) -> Result<()> {
    // An earlier try may have ended in between.
    stage.restart_component(MANAGER, &[]).await?;
    stage.local_driver().await?;
    stage.our_controller().await?;
    stage.our_registrar().await?;

    let theirs = lead(stage, None).await?;
    stage.restart_component(MANAGER, &[THEIRS]).await?;
    let replaced = replace(stage, &theirs).await;
    stage.restart_component(MANAGER, &[]).await?;
    replaced
}

async fn replace(stage: &Stage, theirs: &[Value]) -> Result<()> {
    let kubeconfig = stage.role("control").await?;
    let kubeconfig = format!("--kubeconfig={}", kubeconfig.display());
    let orlop = stage.binary("orlop");
    let arguments = ["--log=info", "control", "--leader-election", &kubeconfig];
    let control = stage.start("control", &orlop, arguments)?;
    lead(stage, Some(theirs)).await?;
    control.end().await
}

/// Leads a life; answers with what the API server held at each stop. With an earlier one's
/// answer, each stop must come to hold the same.
async fn lead(stage: &Stage, like: Option<&[Value]>) -> Result<Vec<Value>> {
    let mut stops = Vec::new();
    let class = stage.namespace();
    stage.apply_value(disk(stage)).await?;
    let mut by_hand = claim("by-hand", "", "64Mi");
    by_hand["spec"]["selector"] = json!({"matchLabels": {"scenario": stage.namespace()}});
    stage.apply_value(by_hand).await?;
    let mut hopeless = claim("hopeless", "", "64Mi");
    hopeless["spec"]["selector"] = json!({"matchLabels": {"scenario": "nowhere"}});
    stage.apply_value(hopeless).await?;
    stage.apply_value(claim("data", class, "64Mi")).await?;
    stage.bound("by-hand").await?;
    // Before there is a pod: afterwards it depends on who is faster.
    told(stage, "data", "WaitForFirstConsumer").await?;
    told(stage, "hopeless", "FailedBinding").await?;
    stop(stage, "before the pod", &mut stops, like).await?;

    stage.apply_value(holder(class)).await?;
    let volume = stage.bound("data").await?;
    stage.bound("holder-scratch").await?;
    let running = |pod: &Value| pod["status"]["phase"] == "Running";
    stage.until(POD, "holder", "running", running).await?;
    told(stage, "holder", "SuccessfulAttachVolume").await?;
    stop(stage, "the pod runs", &mut stops, like).await?;

    // Asked for while in use: it stays.
    stage.delete(CLAIM, "data").await?;
    stop(stage, "a claim in use is deleted", &mut stops, like).await?;

    stage.remove(POD, &["holder"]).await?;
    stage.gone(CLAIM, "data").await?;
    stage.gone(CLAIM, "holder-scratch").await?;
    stage.gone(VOLUME, &volume).await?;
    stop(stage, "the pod is gone", &mut stops, like).await?;

    stage.remove(CLAIM, &["by-hand", "hopeless"]).await?;
    let released = |volume: &Value| volume["status"]["phase"] == "Released";
    stage
        .until(VOLUME, &disk_name(stage), "released", released)
        .await?;
    stop(stage, "the claims are gone", &mut stops, like).await?;
    stage.remove(VOLUME, &[&disk_name(stage)]).await?;
    Ok(stops)
}

/// Takes the likeness of what there is, or compares it.
async fn stop(
    stage: &Stage,
    name: &str,
    stops: &mut Vec<Value>,
    like: Option<&[Value]>,
) -> Result<()> {
    let what = format!("with our controllers it is as with the originals: {name}");
    likeness::stop(stage, &what, stops, like, || life::likeness(stage)).await
}

/// Waits for an event about an object that there is now.
async fn told(stage: &Stage, about: &str, reason: &str) -> Result<()> {
    stage
        .bounded(&format!("{about} is told {reason}"), async {
            loop {
                let uids = life::uids(stage).await?;
                let events = stage.list(EVENT).await?;
                let found = events.iter().any(|event| {
                    let object = &event["involvedObject"];
                    event["reason"] == reason
                        && object["name"] == about
                        && object["uid"].as_str().is_some_and(|uid| uids.contains(uid))
                });
                if found {
                    return Ok(());
                }
                tokio::time::sleep(std::time::Duration::from_millis(200)).await;
            }
        })
        .await
}

fn disk_name(stage: &Stage) -> String {
    format!("{}-disk", stage.namespace())
}

/// A volume made by hand, that no driver knows of.
fn disk(stage: &Stage) -> Value {
    json!({
        "apiVersion": "v1", "kind": "PersistentVolume",
        "metadata": {"name": disk_name(stage), "labels": {"scenario": stage.namespace()}},
        "spec": {
            "capacity": {"storage": "128Mi"}, "accessModes": ["ReadWriteOnce"],
            "persistentVolumeReclaimPolicy": "Retain",
            "hostPath": {"path": stage.folder().join("disk")},
        },
    })
}

/// A pod that holds a claim and an ephemeral one until it is deleted.
fn holder(class: &str) -> Value {
    let mut holder = pod(
        "holder",
        "data",
        "trap exit TERM; while true; do sleep 0.2; done",
    );
    let scratch = json!({"name": "scratch", "ephemeral": {"volumeClaimTemplate": {
        "metadata": {"labels": {"made": "for-the-pod"}},
        "spec": claim("", class, "64Mi")["spec"],
    }}});
    let mount = json!({"name": "scratch", "mountPath": "/scratch"});
    for (list, more) in [
        ("/spec/volumes", scratch),
        ("/spec/containers/0/volumeMounts", mount),
    ] {
        if let Some(list) = holder.pointer_mut(list).and_then(Value::as_array_mut) {
            list.push(more);
        }
    }
    holder
}
