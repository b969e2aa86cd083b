//! Our storage controllers in the place of kube-controller-manager's: the same life is led with
//! theirs and with ours, and at every stop on the way the API server must hold the same.

mod attaching;
mod binding;
mod classes;
mod driven;
mod keeping;
mod life;
mod parting;

use std::path::PathBuf;

use anyhow::{Result, ensure};
use serde_json::{Value, json};

use super::likeness;
use crate::{
    kube::BUSYBOX,
    stage::{CLAIM, EVENT, Kind, Stage, VOLUME, claim},
};

pub(super) const MANAGER: &str = "kube-controller-manager";
/// What `orlop control` takes over.
pub(super) const THEIRS: &str = "--controllers=*,\
    -persistentvolume-binder-controller,\
    -persistentvolume-attach-detach-controller,\
    -persistentvolume-expander-controller,\
    -persistentvolumeclaim-protection-controller,\
    -persistentvolume-protection-controller,\
    -volumeattributesclass-protection-controller,\
    -ephemeral-volume-controller";

pub(super) async fn run(stage: &Stage) -> Result<()> {
    let pattern = pattern(stage)?;
    let pattern = format!(
        "--pv-recycler-pod-template-filepath-hostpath={}",
        pattern.display()
    );
    // Theirs looks again at what nothing told it of only so often.
    let quick = "--pvclaimbinder-sync-period=1s";
    stage.restart_component(MANAGER, &[&pattern, quick]).await?;
    stage.local_driver().await?;
    stage.our_controller().await?;
    stage.our_registrar().await?;

    let theirs = lead(stage, None).await?;
    stage.restart_component(MANAGER, &[THEIRS]).await?;
    let replaced = replace(stage, &pattern, &theirs).await;
    stage.restart_component(MANAGER, &[]).await?;
    replaced
}

async fn replace(stage: &Stage, pattern: &str, theirs: &[Value]) -> Result<()> {
    let kubeconfig = stage.role("control").await?;
    let kubeconfig = format!("--kubeconfig={}", kubeconfig.display());
    let orlop = stage.binary("orlop");
    let arguments = [
        "--log=info",
        "control",
        "--leader-election",
        &kubeconfig,
        pattern,
    ];
    let control = stage.start("control", &orlop, arguments)?;
    lead(stage, Some(theirs)).await?;
    control.end().await
}

/// Leads a life; answers with what the API server held at each stop. With an earlier one's
/// answer, each stop must come to hold the same.
async fn lead(stage: &Stage, like: Option<&[Value]>) -> Result<Vec<Value>> {
    let mut telling = Telling {
        stage,
        stops: Vec::new(),
        like,
        differences: Vec::new(),
    };
    driven::lead(&mut telling).await?;
    binding::lead(&mut telling).await?;
    parting::lead(&mut telling).await?;
    classes::lead(&mut telling).await?;
    keeping::lead(&mut telling).await?;
    attaching::lead(&mut telling).await?;
    ensure!(
        telling.differences.is_empty(),
        "{}",
        telling.differences.join("\n")
    );
    Ok(telling.stops)
}

/// A life that is being led.
struct Telling<'t> {
    stage: &'t Stage,
    stops: Vec<Value>,
    like: Option<&'t [Value]>,
    /// What differed so far. The life goes on, so that all of it is told at once.
    differences: Vec<String>,
}

impl Telling<'_> {
    /// Takes the likeness of what there is, or compares it.
    async fn stop(&mut self, name: &str) -> Result<()> {
        let stage = self.stage;
        let what = format!("with our controllers it is as with the originals: {name}");
        let at = self.stops.len();
        let compared = likeness::stop(stage, &what, &mut self.stops, self.like, || {
            life::likeness(stage)
        });
        if let Err(error) = compared.await {
            let Some(expected) = self.like.and_then(|like| like.get(at)) else {
                return Err(error);
            };
            let mut all = vec![format!("they differ: {name}")];
            likeness::differences("", expected, &life::likeness(stage).await?, &mut all);
            self.differences.push(all.join("\n  "));
            self.stops.push(expected.clone());
        }
        Ok(())
    }

    /// Waits for an event about an object that there is now.
    async fn told(&self, about: &str, reason: &str) -> Result<()> {
        let stage = self.stage;
        stage
            .bounded(&format!("{about} is told {reason}"), async {
                loop {
                    let uids = life::uids(stage).await?;
                    let mut events = stage.list(EVENT).await?;
                    events.extend(stage.list_in(EVENT, "default").await?);
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

    async fn apply(&self, objects: impl IntoIterator<Item = Value>) -> Result<()> {
        for object in objects {
            self.stage.apply_value(object).await?;
        }
        Ok(())
    }

    /// Makes a volume, then a claim for it: who is seen first is a matter of luck otherwise.
    async fn pair(&self, volume: Value, claim: Value) -> Result<()> {
        let name = |object: &Value| likeness::text(object, "/metadata/name");
        let (of_volume, of_claim) = (name(&volume), name(&claim));
        self.apply([volume]).await?;
        self.phase(VOLUME, &of_volume, "Available").await?;
        self.apply([claim]).await?;
        self.stage.bound(&of_claim).await?;
        Ok(())
    }

    async fn phase(&self, kind: Kind, name: &str, phase: &str) -> Result<()> {
        let there = |object: &Value| object["status"]["phase"] == phase;
        self.stage.until(kind, name, phase, there).await?;
        Ok(())
    }

    /// Deletes claims and volumes, the claims first.
    async fn clear(&self, claims: &[&str], volumes: &[&str]) -> Result<()> {
        self.stage.remove(CLAIM, claims).await?;
        let volumes: Vec<String> = volumes.iter().map(|one| self.name(one)).collect();
        let volumes: Vec<&str> = volumes.iter().map(String::as_str).collect();
        self.stage.remove(VOLUME, &volumes).await
    }

    /// The name of something cluster-wide.
    fn name(&self, short: &str) -> String {
        format!("{}-{short}", self.stage.namespace())
    }

    /// A volume made by hand, that no driver knows of.
    fn disk(&self, name: &str, class: &str, size: &str) -> Value {
        json!({
            "apiVersion": "v1", "kind": "PersistentVolume",
            "metadata": {"name": self.name(name), "labels": {"scenario": self.stage.namespace()}},
            "spec": {
                "capacity": {"storage": size}, "accessModes": ["ReadWriteOnce"],
                "persistentVolumeReclaimPolicy": "Retain", "storageClassName": class,
                "hostPath": {"path": self.stage.folder().join(name)},
            },
        })
    }

    /// The same, kept for a claim of this name.
    fn kept_for(&self, name: &str, class: &str, claim: &str) -> Value {
        let mut disk = self.disk(name, class, "1Gi");
        disk["spec"]["claimRef"] = json!({"namespace": self.stage.namespace(), "name": claim});
        disk
    }

    /// A claim for this very volume.
    fn pointing(&self, name: &str, class: &str, volume: &str) -> Value {
        let mut pointing = claim(name, class, "1Gi");
        pointing["spec"]["volumeName"] = self.name(volume).into();
        pointing
    }
}

/// What scrubs host-path volumes, with an image that the node has.
fn pattern(stage: &Stage) -> Result<PathBuf> {
    let file = stage.folder().join("recycler.json");
    let script = "test -e /scrub && rm -rf /scrub/* && test -z \"$(ls -A /scrub)\" || exit 1";
    let pod = json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"namespace": "default", "labels": {"for": "scrubbing"}},
        "spec": {
            "restartPolicy": "Never", "automountServiceAccountToken": false,
            "enableServiceLinks": false, "hostNetwork": true,
            "volumes": [{"name": "there"}],
            "containers": [{
                "name": "scrub", "image": BUSYBOX, "imagePullPolicy": "Never",
                "command": ["sh", "-c", script],
                "volumeMounts": [{"name": "there", "mountPath": "/scrub"}],
            }],
        },
    });
    std::fs::write(&file, pod.to_string())?;
    Ok(file)
}
