//! What the API server holds of a life, without what differs from one life to the next: made-up
//! names, uids, versions, times, and who wrote what.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use anyhow::Result;
use serde_json::{Map, Value, json};

use crate::{
    kube,
    stage::{ATTACHMENT, CLAIM, EVENT, NODE, POD, Stage, VOLUME},
};

/// Whose events are compared: those of the controllers that are replaced.
const SOURCES: [&str; 2] = ["persistentvolume-controller", "attachdetach-controller"];
/// Told only if a pod is seen before its node is chosen, which is a matter of luck.
const LUCK: [&str; 1] = ["WaitForPodScheduled"];
/// Of a claim's conditions, the one that Kubernetes' own claim protection writes since 1.37 to
/// tell how long the claim has not been used. Nothing depends on it.
const UNUSED: &str = "Unused";
/// Members of objects that say when, by whom or in which version.
const PASSING: [&str; 8] = [
    "creationTimestamp",
    "deletionTimestamp",
    "lastPhaseTransitionTime",
    "lastProbeTime",
    "lastTransitionTime",
    "managedFields",
    "resourceVersion",
    "generation",
];
/// How long nothing must have changed before it counts as settled.
const STILL: Duration = Duration::from_secs(3);

/// What there is of the life, once it doesn't change any more.
pub(super) async fn settled(stage: &Stage) -> Result<Value> {
    stage
        .bounded("nothing changes any more", async {
            let mut last = likeness(stage).await?;
            let mut since = tokio::time::Instant::now();
            while since.elapsed() < STILL {
                tokio::time::sleep(Duration::from_millis(300)).await;
                let now = likeness(stage).await?;
                if now != last {
                    (last, since) = (now, tokio::time::Instant::now());
                }
            }
            Ok(last)
        })
        .await
}

/// What there is of the life.
pub(super) async fn likeness(stage: &Stage) -> Result<Value> {
    let life = Life::read(stage).await?;
    let names = life.names();
    let told = told(stage, &life, &names).await?;
    let objects = |all: &[Value]| -> Value {
        let alike = all
            .iter()
            .map(|object| (title(object, &names), plain(object, &names)));
        alike.collect::<Map<_, _>>().into()
    };
    Ok(json!({
        "claims": objects(&life.claims),
        "volumes": objects(&life.volumes),
        "attachments": objects(&life.attachments),
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
    fn names(&self) -> BTreeMap<String, String> {
        let mut names = BTreeMap::new();
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
    fn attached(&self, names: &BTreeMap<String, String>) -> Value {
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

async fn told(
    stage: &Stage,
    life: &Life,
    names: &BTreeMap<String, String>,
) -> Result<BTreeSet<String>> {
    let uids = life.uids();
    let events = stage.list(EVENT).await?;
    let ours = events.iter().filter(|event| {
        SOURCES.contains(&text(event, "/source/component").as_str())
            && !LUCK.contains(&text(event, "/reason").as_str())
            && uids.contains(&text(event, "/involvedObject/uid"))
    });
    let lines = ours.map(|event| {
        let words = ["/type", "/reason", "/source/component", "/message"];
        let about = text(event, "/involvedObject/name");
        let words = words.map(|pointer| text(event, pointer));
        rename(&format!("{about}: {}", words.join(" ")), names)
    });
    Ok(lines.collect())
}

fn title(object: &Value, names: &BTreeMap<String, String>) -> String {
    rename(&text(object, "/metadata/name"), names)
}

fn text(object: &Value, pointer: &str) -> String {
    let found = object.pointer(pointer).and_then(Value::as_str);
    found.unwrap_or_default().to_owned()
}

fn rename(text: &str, names: &BTreeMap<String, String>) -> String {
    names
        .iter()
        .fold(text.to_owned(), |text, (from, to)| text.replace(from, to))
}

/// An object without what passes, and with made-up names replaced.
fn plain(value: &Value, names: &BTreeMap<String, String>) -> Value {
    match value {
        Value::Object(members) => members
            .iter()
            .filter(|(name, _)| !PASSING.contains(&name.as_str()))
            .map(|(name, member)| (rename(name, names), plain(member, names)))
            .filter(|(_, member)| *member != json!([]))
            .collect::<Map<_, _>>()
            .into(),
        Value::Array(items) => items
            .iter()
            .filter(|item| item["type"] != UNUSED)
            .map(|item| plain(item, names))
            .collect(),
        Value::String(text) => rename(text, names).into(),
        Value::Null | Value::Bool(_) | Value::Number(_) => value.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
