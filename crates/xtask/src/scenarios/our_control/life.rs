//! What the API server holds of a life of claims, volumes and attachments.

use std::collections::BTreeSet;

use anyhow::Result;
use serde_json::{Value, json};

use crate::{
    kube,
    scenarios::likeness::{Names, line, objects, rename, text},
    stage::{ATTACHMENT, CLAIM, EVENT, NODE, POD, Stage, VOLUME},
};

/// Whose events are compared: those of the controllers that are replaced.
const SOURCES: [&str; 2] = ["persistentvolume-controller", "attachdetach-controller"];
/// Told only if a pod is seen before its node is chosen, or a provisioner is slow, which is a matter of luck.
const LUCK: [&str; 2] = ["WaitForPodScheduled", "ExternalProvisioning"];

/// What there is of the life.
pub(super) async fn likeness(stage: &Stage) -> Result<Value> {
    let life = Life::read(stage).await?;
    let names = life.names();
    let told = told(stage, &life, &names).await?;
    Ok(json!({
        "claims": objects(&life.claims, &names),
        "volumes": objects(&life.volumes, &names),
        "attachments": objects(&life.attachments, &names),
        "attached": life.attached(&names),
        "events": told,
    }))
}

/// The uids of all objects of the life.
pub(super) async fn uids(stage: &Stage) -> Result<BTreeSet<String>> {
    Ok(Life::read(stage).await?.uids())
}

struct Life {
    claims: Vec<Value>,
    pods: Vec<Value>,
    volumes: Vec<Value>,
    attachments: Vec<Value>,
    node: Value,
}

impl Life {
    async fn read(stage: &Stage) -> Result<Self> {
        let driver = stage.driver_name();
        let mut volumes = stage.list(VOLUME).await?;
        volumes.retain(|volume| {
            volume["spec"]["csi"]["driver"] == *driver
                || volume["metadata"]["labels"]["scenario"] == stage.namespace()
        });
        let mut attachments = stage.list(ATTACHMENT).await?;
        attachments.retain(|attachment| attachment["spec"]["attacher"] == *driver);
        Ok(Self {
            claims: stage.list(CLAIM).await?,
            pods: stage.list(POD).await?,
            volumes,
            attachments,
            node: stage.get(NODE, kube::NODE).await?.unwrap_or_default(),
        })
    }

    fn all(&self) -> impl Iterator<Item = &Value> {
        let Self {
            claims,
            pods,
            volumes,
            attachments,
            ..
        } = self;
        [claims, pods, volumes, attachments].into_iter().flatten()
    }

    fn uids(&self) -> BTreeSet<String> {
        self.all()
            .map(|object| text(object, "/metadata/uid"))
            .collect()
    }

    /// What was made up, and what it is called here.
    fn names(&self) -> Names {
        let mut names = Names::new();
        for object in self.claims.iter().chain(&self.pods) {
            let name = text(object, "/metadata/name");
            names.insert(text(object, "/metadata/uid"), format!("uid of {name}"));
        }
        for volume in &self.volumes {
            let claim = text(volume, "/spec/claimRef/name");
            let name = text(volume, "/metadata/name");
            names.insert(
                text(volume, "/metadata/uid"),
                format!("uid of {claim}'s volume"),
            );
            // Its claim may be gone.
            names.insert(
                text(volume, "/spec/claimRef/uid"),
                format!("uid of {claim}"),
            );
            if name.starts_with("pvc-") {
                names.insert(name, format!("{claim}'s volume"));
                names.insert(
                    text(volume, "/spec/csi/volumeHandle"),
                    format!("{claim}'s handle"),
                );
            }
        }
        for attachment in &self.attachments {
            let volume = text(attachment, "/spec/source/persistentVolumeName");
            let volume = names.get(&volume).cloned().unwrap_or(volume);
            for pointer in ["/metadata/name", "/metadata/uid"] {
                names.insert(text(attachment, pointer), format!("{volume} attached"));
            }
        }
        names.remove("");
        names
    }

    /// What the node is told to have, of this life.
    fn attached(&self, names: &Names) -> Value {
        let all = self.node["status"]["volumesAttached"].as_array();
        let mut alike: Vec<String> = all
            .into_iter()
            .flatten()
            .map(|one| rename(&text(one, "/name"), names))
            .filter(|name| name.contains("'s handle"))
            .collect();
        alike.sort();
        json!(alike)
    }
}

async fn told(stage: &Stage, life: &Life, names: &Names) -> Result<BTreeSet<String>> {
    let uids = life.uids();
    let events = stage.list(EVENT).await?;
    let ours = events.iter().filter(|event| {
        SOURCES.contains(&text(event, "/source/component").as_str())
            && !LUCK.contains(&text(event, "/reason").as_str())
            && uids.contains(&text(event, "/involvedObject/uid"))
    });
    Ok(ours.map(|event| original(&line(event, names))).collect())
}

/// What the originals say, without what ours add behind it: what is there, and what would help.
fn original(line: &str) -> String {
    line.split("; ").next().unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scenarios::likeness::plain;

    fn life(id: &str) -> Life {
        Life {
            claims: vec![json!({
                "metadata": {"name": "data", "uid": format!("{id}-claim"), "resourceVersion": id},
                "spec": {"volumeName": format!("pvc-{id}-claim")},
                "status": {"conditions": [{"type": "Unused", "message": id}]},
            })],
            pods: Vec::new(),
            volumes: vec![json!({
                "metadata": {"name": format!("pvc-{id}-claim"), "uid": format!("{id}-volume")},
                "spec": {"claimRef": {"name": "data", "uid": format!("{id}-claim")},
                         "csi": {"volumeHandle": format!("v-{id}")}},
            })],
            attachments: vec![json!({
                "metadata": {"name": format!("csi-{id}"), "uid": format!("{id}-attachment")},
                "spec": {"source": {"persistentVolumeName": format!("pvc-{id}-claim")}},
            })],
            node: json!({"status": {"volumesAttached": [{"name": format!("x^v-{id}")}]}}),
        }
    }

    fn alike(life: &Life) -> Value {
        let names = life.names();
        let objects: Vec<Value> = life.all().map(|object| plain(object, &names)).collect();
        json!([objects, life.attached(&names)])
    }

    #[test]
    fn two_lives_with_other_names_are_alike_and_a_difference_is_seen() {
        assert_eq!(alike(&life("1111")), alike(&life("2222")));
        let mut other = life("2222");
        other.volumes[0]["status"] = json!({"phase": "Bound"});
        assert_ne!(alike(&life("1111")), alike(&other));
        assert!(alike(&life("1111")).to_string().contains("x^data's handle"));
    }
}
