//! What the API server holds of a life of claims, volumes and attachments.

use std::collections::BTreeSet;

use anyhow::Result;
use serde_json::{Map, Value, json};

use crate::{
    scenarios::likeness::{Names, line, objects, plain, rename, text},
    stage::{ATTACHMENT, ATTRIBUTES_CLASS, CLAIM, EVENT, NODE, POD, Stage, VOLUME},
};

/// Whose events are compared: those of the controllers that are replaced.
const SOURCES: [&str; 4] = [
    "persistentvolume-controller",
    "attachdetach-controller",
    "volume_expand",
    "ephemeral_volume",
];
/// Told only if a pod is seen before its node is chosen, a provisioner is slow, or a scrubber is not
/// through before its own events are read, which is a matter of luck.
const LUCK: [&str; 3] = ["WaitForPodScheduled", "ExternalProvisioning", "RecyclerPod"];

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
        "classes": objects(&life.classes, &names),
        "scrubbers": life.scrubbers.iter().map(|pod| plain(&pod["spec"], &names)).collect::<Value>(),
        "events": told,
    }))
}

/// The pods that scrub volumes.
pub(super) async fn scrubbers(stage: &Stage) -> Result<Vec<Value>> {
    let mut pods = stage.list_in(POD, "default").await?;
    pods.retain(|pod| text(pod, "/metadata/name").starts_with("recycler-for-"));
    Ok(pods)
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
    /// Of attributes.
    classes: Vec<Value>,
    scrubbers: Vec<Value>,
    nodes: Vec<Value>,
}

impl Life {
    async fn read(stage: &Stage) -> Result<Self> {
        let driver = stage.driver_name();
        let mut volumes = stage.list(VOLUME).await?;
        volumes.retain(|volume| {
            volume["spec"]["csi"]["driver"] == *driver
                || volume["metadata"]["labels"]["scenario"] == stage.namespace()
        });
        Ok(Self {
            claims: stage.list(CLAIM).await?,
            pods: stage.list(POD).await?,
            volumes,
            // Nobody else attaches anything meanwhile.
            attachments: stage.list(ATTACHMENT).await?,
            classes: stage.list(ATTRIBUTES_CLASS).await?,
            scrubbers: scrubbers(stage).await?,
            nodes: stage.list(NODE).await?,
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
        for class in &self.classes {
            let name = text(class, "/metadata/name");
            names.insert(text(class, "/metadata/uid"), format!("uid of {name}"));
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

    /// What the nodes are told to have.
    fn attached(&self, names: &Names) -> Value {
        let of = |node: &Value| {
            let all = node["status"]["volumesAttached"].as_array();
            let all = all.into_iter().flatten();
            let mut alike: Vec<String> =
                all.map(|one| rename(&text(one, "/name"), names)).collect();
            alike.sort();
            (text(node, "/metadata/name"), json!(alike))
        };
        self.nodes.iter().map(of).collect::<Map<_, _>>().into()
    }
}

async fn told(stage: &Stage, life: &Life, names: &Names) -> Result<BTreeSet<String>> {
    let uids = life.uids();
    let mut events = stage.list(EVENT).await?;
    // Those of volumes.
    events.extend(stage.list_in(EVENT, "default").await?);
    let ours = events.iter().filter(|event| {
        SOURCES.contains(&text(event, "/source/component").as_str())
            && !LUCK.contains(&text(event, "/reason").as_str())
            && uids.contains(&text(event, "/involvedObject/uid"))
    });
    Ok(ours
        .filter_map(|event| original(&line(event, names)))
        .collect())
}

/// What ours add behind the originals' words begins with one of these: what is there, and what would
/// help.
const ADDED: [&str; 4] = [
    "; ",
    ". It is attached to ",
    " It belongs to ",
    " (the volume has ",
];
/// What ours say where the originals say nothing.
const OURS_ALONE: [&str; 2] = [
    "Normal FailedBinding persistentvolume-controller volume \"",
    // The pods that had it are gone since.
    "Volume is already exclusively attached to one node",
];

/// What the originals say, without what ours add to it.
fn original(line: &str) -> Option<String> {
    let first = ADDED.iter().fold(line, |line, added| {
        line.split(added).next().unwrap_or_default()
    });
    let alone = OURS_ALONE.iter().any(|alone| first.contains(alone));
    (!alone).then(|| first.to_owned())
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
            classes: Vec::new(),
            scrubbers: Vec::new(),
            nodes: vec![json!({
                "metadata": {"name": "n"},
                "status": {"volumesAttached": [{"name": format!("x^v-{id}")}]},
            })],
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
