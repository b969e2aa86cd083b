//! A driver's volumes, made when a pod needs them, and one that was made by hand.

use anyhow::Result;
use serde_json::{Value, json};

use super::Telling;
use crate::stage::{CLAIM, POD, VOLUME, claim, pod};

pub(super) async fn lead(telling: &mut Telling<'_>) -> Result<()> {
    let stage = telling.stage;
    let class = stage.namespace();
    let mut by_hand = claim("by-hand", "", "64Mi");
    by_hand["spec"]["selector"] = json!({"matchLabels": {"scenario": stage.namespace()}});
    let mut hopeless = claim("hopeless", "", "64Mi");
    hopeless["spec"]["selector"] = json!({"matchLabels": {"scenario": "nowhere"}});
    telling
        .pair(telling.disk("disk", "", "128Mi"), by_hand)
        .await?;
    telling
        .apply([hopeless, claim("data", class, "64Mi")])
        .await?;
    // Before there is a pod: afterwards it depends on who is faster.
    telling.told("data", "WaitForFirstConsumer").await?;
    telling.told("hopeless", "FailedBinding").await?;
    telling.stop("before the pod").await?;

    stage.apply_value(holder(class)).await?;
    let volume = stage.bound("data").await?;
    stage.bound("holder-scratch").await?;
    telling.phase(POD, "holder", "Running").await?;
    telling.told("holder", "SuccessfulAttachVolume").await?;
    telling.stop("the pod runs").await?;

    // Asked for while in use: it stays.
    stage.delete(CLAIM, "data").await?;
    telling.stop("a claim in use is deleted").await?;

    stage.remove(POD, &["holder"]).await?;
    stage.gone(CLAIM, "data").await?;
    stage.gone(CLAIM, "holder-scratch").await?;
    stage.gone(VOLUME, &volume).await?;
    telling.stop("the pod is gone").await?;

    stage.remove(CLAIM, &["by-hand", "hopeless"]).await?;
    telling
        .phase(VOLUME, &telling.name("disk"), "Released")
        .await?;
    telling.stop("the claims are gone").await?;
    telling.clear(&[], &["disk"]).await
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
