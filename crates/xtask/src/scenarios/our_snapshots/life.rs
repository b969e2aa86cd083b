//! What the API server holds of a life of snapshots and groups of them.

use std::collections::BTreeSet;

use anyhow::Result;
use serde_json::{Value, json};

use crate::{
    scenarios::likeness::{Names, line, objects, text},
    stage::{
        CLAIM, EVENT, GROUP_CONTENT, GROUP_SNAPSHOT, SNAPSHOT_CONTENT, Stage, VOLUME,
        VOLUME_SNAPSHOT,
    },
};

/// Whose events are compared.
const PROGRAMS: [&str; 2] = ["snapshot-controller", "csi-snapshotter"];

/// Where events about what is in no namespace are.
const ELSEWHERE: &str = "default";

/// What there is of the life.
pub(super) async fn likeness(stage: &Stage) -> Result<Value> {
    let life = Life::read(stage).await?;
    let names = life.names();
    Ok(json!({
        "claims": objects(&life.claims, &names),
        "snapshots": objects(&life.snapshots, &names),
        "contents": objects(&life.contents, &names),
        "groups": objects(&life.groups, &names),
        "group contents": in_order(objects(&life.group_contents, &names)),
        "events": told(stage, &life, &names).await?,
    }))
}

#[derive(Default)]
struct Life {
    claims: Vec<Value>,
    volumes: Vec<Value>,
    snapshots: Vec<Value>,
    contents: Vec<Value>,
    groups: Vec<Value>,
    group_contents: Vec<Value>,
}

impl Life {
    async fn read(stage: &Stage) -> Result<Self> {
        let driver = stage.driver_name();
        let of_driver = |mut all: Vec<Value>, pointer: &str| {
            all.retain(|one| text(one, pointer) == driver);
            all
        };
        let mut contents = stage.list(SNAPSHOT_CONTENT).await?;
        contents.iter_mut().for_each(without_version);
        let group_contents = stage.list(GROUP_CONTENT).await?;
        let mut snapshots = stage.list(VOLUME_SNAPSHOT).await?;
        snapshots.iter_mut().for_each(without_more);
        Ok(Self {
            claims: stage.list(CLAIM).await?,
            volumes: of_driver(stage.list(VOLUME).await?, "/spec/csi/driver"),
            snapshots,
            contents: of_driver(contents, "/spec/driver"),
            groups: stage.list(GROUP_SNAPSHOT).await?,
            group_contents: of_driver(group_contents, "/spec/driver"),
        })
    }

    fn uids(&self) -> BTreeSet<String> {
        let Self {
            claims,
            snapshots,
            contents,
            groups,
            group_contents,
            ..
        } = self;
        let all = [claims, snapshots, contents, groups, group_contents];
        all.into_iter()
            .flatten()
            .map(|object| text(object, "/metadata/uid"))
            .collect()
    }

    /// The uids of what is ready.
    fn ready(&self) -> BTreeSet<String> {
        let all = self.snapshots.iter().chain(&self.groups);
        all.filter(|one| one["status"]["readyToUse"] == true)
            .map(|one| text(one, "/metadata/uid"))
            .collect()
    }

    /// What was made up, and what it is called here.
    fn names(&self) -> Names {
        let mut names = Names::new();
        for object in self.claims.iter().chain(&self.groups) {
            let name = text(object, "/metadata/name");
            names.insert(text(object, "/metadata/uid"), format!("uid of {name}"));
        }
        for volume in &self.volumes {
            let claim = text(volume, "/spec/claimRef/name");
            let mut call = |pointer: &str, part: &str| {
                names.insert(text(volume, pointer), format!("{claim}'s {part}"));
            };
            call("/metadata/name", "volume");
            call("/spec/csi/volumeHandle", "handle");
        }
        for snapshot in &self.snapshots {
            let mut name = text(snapshot, "/metadata/name");
            let group = text(snapshot, "/status/volumeGroupSnapshotName");
            if !group.is_empty() {
                let claim = text(snapshot, "/spec/source/persistentVolumeClaimName");
                let made_up = std::mem::replace(&mut name, format!("{group}'s part of {claim}"));
                let content = text(snapshot, "/status/boundVolumeSnapshotContentName");
                names.insert(content, format!("content of {name}"));
                names.insert(made_up, name.clone());
            }
            names.insert(text(snapshot, "/metadata/uid"), format!("uid of {name}"));
        }
        for content in &self.contents {
            let of = text(content, "/spec/volumeSnapshotRef/name");
            let of = names.get(&of).cloned().unwrap_or(of);
            let uid = text(content, "/metadata/uid");
            names.insert(uid, format!("uid of {of}'s content"));
            // Its snapshot may be gone.
            let uid = text(content, "/spec/volumeSnapshotRef/uid");
            names.insert(uid, format!("uid of {of}"));
            let handle = text(content, "/status/snapshotHandle");
            names
                .entry(handle)
                .or_insert_with(|| format!("{of}'s snapshot"));
        }
        for content in &self.group_contents {
            let of = text(content, "/spec/volumeGroupSnapshotRef/name");
            let uid = text(content, "/metadata/uid");
            names.insert(uid, format!("uid of {of}'s content"));
            let handle = text(content, "/status/volumeGroupSnapshotHandle");
            names.insert(handle, format!("{of}'s snapshot"));
        }
        names.remove("");
        names
    }
}

/// The finalizer that the originals put on a group's members only when they look at them again,
/// which takes them minutes.
const LATE: &str = "snapshot.storage.kubernetes.io/volumesnapshot-bound-protection";

/// A snapshot without that in which ours do more.
fn without_more(snapshot: &mut Value) {
    // That there is an error is compared; ours say more of it.
    if let Some(message) = snapshot.pointer_mut("/status/error/message") {
        *message = json!("an error");
    }
    let status = &snapshot["status"];
    let bound = !status["boundVolumeSnapshotContentName"].is_null();
    let member = !status["volumeGroupSnapshotName"].is_null();
    if let Some(finalizers) = snapshot
        .pointer_mut("/metadata/finalizers")
        .and_then(Value::as_array_mut)
    {
        // The originals protect a snapshot even before it has a content. Nothing is lost with it
        // then.
        finalizers.retain(|finalizer| bound && !(member && finalizer == LATE));
    }
}

/// A content without the version of its snapshot's kind, which the originals leave out for a
/// group's members.
fn without_version(content: &mut Value) {
    if let Some(reference) = content
        .pointer_mut("/spec/volumeSnapshotRef")
        .and_then(Value::as_object_mut)
    {
        reference.remove("apiVersion");
    }
}

/// Groups' contents with their members in the order of their names: they are told in the order of
/// the driver's answer, which is any.
fn in_order(mut contents: Value) -> Value {
    for content in contents.as_object_mut().into_iter().flatten() {
        for list in [
            "/spec/source/volumeHandles",
            "/status/volumeSnapshotInfoList",
        ] {
            if let Some(members) = content.1.pointer_mut(list).and_then(Value::as_array_mut) {
                members.sort_by_cached_key(Value::to_string);
            }
        }
    }
    contents
}

/// The events that the programs in question told about what there is.
async fn told(stage: &Stage, life: &Life, names: &Names) -> Result<BTreeSet<String>> {
    let uids = life.uids();
    let mut events = stage.list(EVENT).await?;
    events.extend(stage.list_in(EVENT, ELSEWHERE).await?);
    let ready = life.ready();
    events.retain(|event| {
        let about = text(event, "/involvedObject/uid");
        // What failed at first and went well then is a matter of luck: one cache was behind another.
        let passed = event["type"] == "Warning" && ready.contains(&about);
        let by = text(event, "/source/component");
        // Not the provisioner, which goes by the driver's name and says more if it was slow.
        let ours = PROGRAMS.iter().any(|program| by.starts_with(program));
        ours && uids.contains(&about) && !passed
    });
    for event in &mut events {
        if event["type"] == "Warning" {
            event["message"] = json!("");
        }
    }
    Ok(events.iter().map(|event| line(event, names)).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn life(id: &str) -> Life {
        Life {
            snapshots: vec![
                json!({
                    "metadata": {"name": "cut", "uid": format!("{id}-cut"), "resourceVersion": id},
                    "status": {"boundVolumeSnapshotContentName": format!("snapcontent-{id}-cut")},
                }),
                json!({
                    "metadata": {"name": format!("snapshot-{id}"), "uid": format!("{id}-part")},
                    "spec": {"source": {"persistentVolumeClaimName": "one"}},
                    "status": {
                        "volumeGroupSnapshotName": "both",
                        "boundVolumeSnapshotContentName": format!("snapcontent-{id}"),
                    },
                }),
            ],
            contents: vec![json!({
                "metadata": {"name": format!("snapcontent-{id}"), "uid": format!("{id}-content")},
                "spec": {"volumeSnapshotRef": {"name": format!("snapshot-{id}"), "uid": format!("{id}-part")}},
                "status": {"snapshotHandle": format!("s-{id}")},
            })],
            ..Life::default()
        }
    }

    fn alike(life: &Life) -> Value {
        let names = life.names();
        json!([
            objects(&life.snapshots, &names),
            objects(&life.contents, &names)
        ])
    }

    #[test]
    fn two_lives_of_snapshots_are_alike_and_a_difference_is_seen() {
        assert_eq!(alike(&life("1111")), alike(&life("2222")));
        let mut other = life("2222");
        other.contents[0]["metadata"]["finalizers"] = json!(["x"]);
        assert_ne!(alike(&life("1111")), alike(&other));
        let text = alike(&life("1111")).to_string();
        assert!(
            text.contains("content of both's part of one"),
            "it tells which: {text}"
        );
    }

    #[test]
    fn only_that_in_which_ours_do_more_is_left_out() {
        let mut failed =
            json!({"metadata": {"finalizers": ["x"]}, "status": {"error": {"message": "a"}}});
        without_more(&mut failed);
        assert_eq!(
            failed,
            json!({"metadata": {"finalizers": []}, "status": {"error": {"message": "an error"}}})
        );
        let mut bound = json!({
            "metadata": {"finalizers": ["x", LATE]}, "status": {"boundVolumeSnapshotContentName": "c"},
        });
        let before = bound.clone();
        without_more(&mut bound);
        assert_eq!(bound, before);
        bound["status"]["volumeGroupSnapshotName"] = json!("both");
        without_more(&mut bound);
        assert_eq!(bound["metadata"]["finalizers"], json!(["x"]));
    }
}
