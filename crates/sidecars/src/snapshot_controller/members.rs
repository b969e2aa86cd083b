//! The members of a group that was cut: a snapshot and a content for each.

use orlop_model::{
    Key, Kind as _, Meta, VolumeGroupSnapshot, VolumeGroupSnapshotContent, VolumeSnapshot,
    VolumeSnapshotContent,
    group_snapshot::MemberInfo,
    snapshot::{ContentSource, ContentSpec, SnapshotSource, SnapshotSpec},
    well_known as names,
};
use orlop_runtime::{ApiError, Patch};
use serde_json::json;
use sha2::{Digest as _, Sha256};

use super::{
    bench::Bench,
    decide::Refusal,
    single::member_content,
    wish::{Prepared, Wish},
};
use crate::insist::insist_status;

/// The name of a member's snapshot, the same at every try.
fn member_name(group_uid: &str, volume: &str) -> String {
    let hash = Sha256::digest(format!("{group_uid}{volume}"));
    format!("snapshot-{hash:x}")
}

/// Sees to it that every member of a group has its objects.
pub(super) async fn make(
    bench: &Bench<VolumeGroupSnapshot>,
    group: &VolumeGroupSnapshot,
    content: &VolumeGroupSnapshotContent,
) -> Result<Prepared, ApiError> {
    // The members of one that was there before are its user's to make.
    let found = content.spec.source.group_snapshot_handles.is_some();
    let Some(handle) = content.handle().filter(|_| !found) else {
        return Ok(Prepared::Ready(None));
    };
    for member in content.members() {
        let name = member_name(&group.metadata.uid, &member.volume_handle);
        let Some(snapshot) = snapshot(bench, group, content, member, &name).await? else {
            let text = format!(
                "GroupSnapshot status update failed, a VolumeSnapshot {name} is there that is \
                 not a member of this group; delete it"
            );
            let words = &VolumeGroupSnapshot::WORDS;
            let refusal = Refusal::mild(words, "SnapshotStatusUpdateFailed", text);
            return bench.refuse(group, &refusal).await.map(Prepared::Later);
        };
        let made = member_of(bench, content, member, handle, &snapshot).await?;
        tell(bench, &made, member, handle).await?;
    }
    Ok(Prepared::Ready(None))
}

/// The member's snapshot; `None` if one of its name belongs to somebody else.
async fn snapshot(
    bench: &Bench<VolumeGroupSnapshot>,
    group: &VolumeGroupSnapshot,
    content: &VolumeGroupSnapshotContent,
    member: &MemberInfo,
    name: &str,
) -> Result<Option<VolumeSnapshot>, ApiError> {
    let shop = &bench.shop;
    let key = Key::namespaced(&group.metadata.namespace, name);
    let known = shop.snapshots.get(&key).map(|known| (*known).clone());
    let snapshot = match known {
        Some(known) => known,
        None => {
            let volume = shop.volume_of(&content.spec.driver, &member.volume_handle);
            let claim = volume.and_then(|volume| volume.spec.claim_ref.clone());
            let mut metadata = Meta::named(&key);
            metadata.owner_references = vec![group.as_owner()];
            metadata.finalizers = vec![names::SNAPSHOT_IN_GROUP.to_owned()];
            let new = VolumeSnapshot {
                metadata,
                spec: SnapshotSpec {
                    source: SnapshotSource {
                        persistent_volume_claim_name: Some(
                            claim.map(|claim| claim.name).unwrap_or_default(),
                        ),
                        volume_snapshot_content_name: None,
                    },
                    volume_snapshot_class_name: None,
                },
                status: None,
            };
            let made = shop.cluster.create(&new).await;
            match made {
                Ok(made) => made,
                Err(error) if error.is_already_exists() => {
                    let live = shop.cluster.get::<VolumeSnapshot>(&key).await?;
                    live.ok_or(error)?
                }
                Err(error) => return Err(error),
            }
        }
    };
    shop.snapshots.absorb(snapshot.clone());
    let mut owners = snapshot.metadata.owner_references.iter();
    let ours = owners.any(|owner| owner.uid == group.metadata.uid);
    Ok(ours.then_some(snapshot))
}

async fn member_of(
    bench: &Bench<VolumeGroupSnapshot>,
    group: &VolumeGroupSnapshotContent,
    member: &MemberInfo,
    handle: &str,
    snapshot: &VolumeSnapshot,
) -> Result<VolumeSnapshotContent, ApiError> {
    let shop = &bench.shop;
    let name = member_content(&snapshot.metadata.name);
    if let Some(known) = shop.contents.named(&name) {
        return Ok((*known).clone());
    }
    let volume = shop.volume_of(&group.spec.driver, &member.volume_handle);
    let mut metadata = Meta::named(&Key::cluster(&name));
    metadata.finalizers = vec![names::SNAPSHOT_CONTENT_BOUND.to_owned()];
    let annotations = &mut metadata.annotations;
    annotations.insert(names::GROUP_SNAPSHOT_HANDLE.to_owned(), handle.to_owned());
    for (to, from) in [
        (
            names::SNAPSHOT_SECRET_NAME,
            names::GROUP_SNAPSHOT_SECRET_NAME,
        ),
        (
            names::SNAPSHOT_SECRET_NAMESPACE,
            names::GROUP_SNAPSHOT_SECRET_NAMESPACE,
        ),
    ] {
        if let Some(value) = group.metadata.annotation(from) {
            annotations.insert(to.to_owned(), value.to_owned());
        }
    }
    let new = VolumeSnapshotContent {
        metadata,
        spec: ContentSpec {
            volume_snapshot_ref: snapshot.reference(),
            deletion_policy: group.spec.deletion_policy,
            driver: group.spec.driver.clone(),
            volume_snapshot_class_name: None,
            source: ContentSource {
                volume_handle: Some(member.volume_handle.clone()),
                snapshot_handle: None,
            },
            source_volume_mode: volume.map(|volume| volume.volume_mode()),
        },
        status: None,
    };
    let made = match shop.cluster.create(&new).await {
        Err(error) if error.is_already_exists() => {
            let key = Key::cluster(&name);
            let live = shop.cluster.get::<VolumeSnapshotContent>(&key).await?;
            live.ok_or(error)?
        }
        other => other?,
    };
    shop.contents.absorb(made.clone());
    Ok(made)
}

/// Says of a member's content what the driver said with the group.
async fn tell(
    bench: &Bench<VolumeGroupSnapshot>,
    content: &VolumeSnapshotContent,
    member: &MemberInfo,
    group: &str,
) -> Result<(), ApiError> {
    let status = json!({"status": {
        "snapshotHandle": member.snapshot_handle,
        "volumeGroupSnapshotHandle": group,
        "creationTime": member.creation_time,
        "restoreSize": member.restore_size,
        "readyToUse": member.ready_to_use.unwrap_or(false),
    }});
    let tell = |now: &VolumeSnapshotContent| {
        let unsaid = now.handle().is_none();
        unsaid.then(|| Patch::merge_on(now, status.clone()))
    };
    let told = insist_status(&bench.shop.cluster, content, tell).await?;
    told.into_iter()
        .for_each(|told| bench.shop.contents.absorb(told));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_are_named_as_the_original_names_them() {
        let name = member_name("uid", "vol");
        // sha256 of "uidvol".
        assert_eq!(name.len(), "snapshot-".len() + 64);
        assert_eq!(name, member_name("ui", "dvol"), "it is one text");
        assert_eq!(
            member_content(&name),
            name.replace("snapshot-", "snapcontent-")
        );
    }
}
