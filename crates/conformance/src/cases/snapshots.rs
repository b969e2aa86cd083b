//! Snapshots: made, found again, removed.

use orlop_csi::client::ControllerCapability as Can;
use orlop_csi::proto;
use tonic::Code;

use super::CREATE;
use crate::case::{Case, Need, Trouble, ensure};
use crate::spec;

fn delete(snapshot_id: &str) -> proto::DeleteSnapshotRequest {
    proto::DeleteSnapshotRequest {
        snapshot_id: snapshot_id.to_owned(),
        ..Default::default()
    }
}

fn get(snapshot_id: &str) -> proto::GetSnapshotRequest {
    proto::GetSnapshotRequest {
        snapshot_id: snapshot_id.to_owned(),
        ..Default::default()
    }
}

pub(super) fn cases() -> Vec<Case> {
    [creating(), deleting(), getting()].concat()
}

fn creating() -> Vec<Case> {
    let needs = [CREATE, Need::Controller(Can::CreateDeleteSnapshot)];
    vec![
        Case::must(
            "snapshot.works",
            spec::CREATE_SNAPSHOT,
            "a snapshot is made, of the volume that was named",
            &needs,
            |t| async move {
                let volume = t.volume("v").await?;
                let snapshot = t.snapshot(&volume.volume_id, "s").await?;
                ensure!(
                    snapshot.source_volume_id == volume.volume_id,
                    "a snapshot of {:?} was asked for; its source_volume_id is {:?}",
                    volume.volume_id,
                    snapshot.source_volume_id
                );
                ensure!(
                    snapshot.group_snapshot_id.is_empty(),
                    "a snapshot of its own names group {:?}",
                    snapshot.group_snapshot_id
                );
                Ok(())
            },
        ),
        Case::must(
            "snapshot.repeat_is_idempotent",
            spec::CREATE_SNAPSHOT,
            "the same request again gives the same snapshot, cut at the same time",
            &needs,
            |t| async move {
                let volume = t.volume("v").await?;
                let first = t.snapshot(&volume.volume_id, "s").await?;
                for _ in 0..5 {
                    let again = t.snapshot(&volume.volume_id, "s").await?;
                    ensure!(
                        again.snapshot_id == first.snapshot_id,
                        "one name gave snapshots {:?} and {:?}",
                        first.snapshot_id,
                        again.snapshot_id
                    );
                    ensure!(
                        again.creation_time == first.creation_time,
                        "creation_time was {:?}, and {:?} when repeated",
                        first.creation_time,
                        again.creation_time
                    );
                    ensure!(
                        again.size_bytes == first.size_bytes,
                        "size_bytes was {}, and {} when repeated",
                        first.size_bytes,
                        again.size_bytes
                    );
                }
                Ok(())
            },
        ),
        Case::must(
            "snapshot.same_name_other_source",
            spec::CREATE_SNAPSHOT,
            "a name that exists for another volume is ALREADY_EXISTS",
            &needs,
            |t| async move {
                let (one, other) = (t.volume("a").await?, t.volume("b").await?);
                t.snapshot(&one.volume_id, "s").await?;
                t.call(t.snapshot_request(&other.volume_id, "s"))
                    .await
                    .refused(
                        Code::AlreadyExists,
                        "the name is that of another volume's snapshot",
                    )
            },
        ),
        Case::must(
            "snapshot.unknown_source",
            spec::CREATE_SNAPSHOT,
            "a snapshot of an unknown volume is NOT_FOUND",
            &needs,
            |t| async move {
                t.call(t.snapshot_request("orlop-conformance-none", "s"))
                    .await
                    .refused(Code::NotFound, "there is no such volume")
            },
        ),
        Case::must(
            "snapshot.deleted_source",
            spec::CREATE_SNAPSHOT,
            "a snapshot of a deleted volume is NOT_FOUND",
            &needs,
            |t| async move {
                let volume = t.volume("v").await?;
                t.call(t.delete_request(&volume.volume_id)).await.ok()?;
                t.call(t.snapshot_request(&volume.volume_id, "s"))
                    .await
                    .refused(Code::NotFound, "the volume was deleted")
            },
        ),
        Case::must(
            "snapshot.two_of_one_volume",
            spec::CREATE_SNAPSHOT,
            "two names are two snapshots",
            &needs,
            |t| async move {
                let volume = t.volume("v").await?;
                let (one, two) = (
                    t.snapshot(&volume.volume_id, "a").await?,
                    t.snapshot(&volume.volume_id, "b").await?,
                );
                ensure!(
                    one.snapshot_id != two.snapshot_id,
                    "two names gave one snapshot {:?}",
                    one.snapshot_id
                );
                Ok(())
            },
        ),
        Case::must(
            "snapshot.name_may_be_a_volumes",
            spec::CREATE_SNAPSHOT,
            "a snapshot may have the name of a volume",
            &needs,
            |t| async move {
                let volume = t.volume("same").await?;
                t.snapshot(&volume.volume_id, "same").await.map(drop)
            },
        ),
        Case::must(
            "snapshot.time_is_now",
            spec::CREATE_SNAPSHOT,
            "creation_time is when the snapshot was cut",
            &needs,
            |t| async move {
                let volume = t.volume("v").await?;
                let before = jiff::Timestamp::now().as_second();
                let snapshot = t.snapshot(&volume.volume_id, "s").await?;
                let after = jiff::Timestamp::now().as_second();
                let told = snapshot.creation_time.unwrap_or_default().seconds;
                // Clocks of storage systems differ a little.
                ensure!(
                    told >= before - 300 && told <= after + 300,
                    "the snapshot was cut between {before} and {after} (seconds of 1970), its creation_time is {told}"
                );
                Ok(())
            },
        ),
        Case::must(
            "snapshot.size_is_told",
            spec::CREATE_SNAPSHOT,
            "size_bytes is at most the volume's size, and not negative",
            &needs,
            |t| async move {
                let volume = t.volume("v").await?;
                let snapshot = t.snapshot(&volume.volume_id, "s").await?;
                ensure!(
                    snapshot.size_bytes >= 0,
                    "size_bytes is {}",
                    snapshot.size_bytes
                );
                ensure!(
                    volume.capacity_bytes == 0 || snapshot.size_bytes <= volume.capacity_bytes,
                    "the volume has {} bytes, its snapshot {}: no volume of the source's size could be restored from it",
                    volume.capacity_bytes,
                    snapshot.size_bytes
                );
                Ok(())
            },
        ),
        Case::must(
            "snapshot.of_a_volume_in_use",
            spec::CREATE_SNAPSHOT,
            "a published volume can be snapshotted, or is refused with FAILED_PRECONDITION",
            &needs,
            |t| async move {
                let (placed, _) = t.published("v").await?;
                t.call(t.snapshot_request(&placed.id(), "s"))
                    .await
                    .ok_or_any(&[Code::FailedPrecondition], "the volume is in use")
                    .map(drop)
            },
        ),
        Case::must(
            "snapshot.leaves_the_volume",
            spec::CREATE_SNAPSHOT,
            "a snapshot leaves its volume as it was",
            &needs,
            |t| async move {
                let request = t.create_request("v");
                let before = t.create(request.clone()).await?;
                t.snapshot(&before.volume_id, "s").await?;
                let after = t.create(request).await?;
                ensure!(
                    after == before,
                    "the volume was {before:?}, and {after:?} after a snapshot"
                );
                Ok(())
            },
        ),
    ]
}

fn deleting() -> Vec<Case> {
    let needs = [CREATE, Need::Controller(Can::CreateDeleteSnapshot)];
    vec![
        Case::must(
            "snapshot.delete_works",
            spec::DELETE_SNAPSHOT,
            "a snapshot is deleted, and again",
            &needs,
            |t| async move {
                let volume = t.volume("v").await?;
                let snapshot = t.snapshot(&volume.volume_id, "s").await?;
                for _ in 0..5 {
                    t.call(delete(&snapshot.snapshot_id))
                        .await
                        .ok_because("DeleteSnapshot is idempotent")?;
                }
                Ok(())
            },
        ),
        Case::must(
            "snapshot.delete_unknown_is_ok",
            spec::DELETE_SNAPSHOT,
            "deleting a snapshot that never was succeeds",
            &[Need::Controller(Can::CreateDeleteSnapshot)],
            |t| async move {
                for id in ["orlop-conformance-none", "0", "reallyfakesnapshotid"] {
                    t.call(delete(id))
                        .await
                        .ok_because("a snapshot that doesn't exist is deleted")?;
                }
                Ok(())
            },
        ),
        Case::must(
            "snapshot.delete_frees_the_name",
            spec::DELETE_SNAPSHOT,
            "a deleted snapshot's name can be that of another volume's",
            &needs,
            |t| async move {
                let (one, other) = (t.volume("a").await?, t.volume("b").await?);
                let first = t.snapshot(&one.volume_id, "s").await?;
                t.call(delete(&first.snapshot_id)).await.ok()?;
                let second = t.snapshot(&other.volume_id, "s").await?;
                ensure!(
                    second.source_volume_id == other.volume_id,
                    "the new snapshot is of {:?}",
                    second.source_volume_id
                );
                Ok(())
            },
        ),
        Case::must(
            "snapshot.delete_leaves_others",
            spec::DELETE_SNAPSHOT,
            "deleting one snapshot leaves the others and the volume",
            &needs,
            |t| async move {
                let request = t.create_request("v");
                let volume = t.create(request.clone()).await?;
                let (one, two) = (
                    t.snapshot(&volume.volume_id, "a").await?,
                    t.snapshot(&volume.volume_id, "b").await?,
                );
                t.call(delete(&one.snapshot_id)).await.ok()?;
                let again = t.snapshot(&volume.volume_id, "b").await?;
                ensure!(
                    again.snapshot_id == two.snapshot_id,
                    "snapshot {:?} went with another one",
                    two.snapshot_id
                );
                let still = t.create(request).await?;
                ensure!(
                    still.volume_id == volume.volume_id,
                    "the volume went with its snapshot"
                );
                Ok(())
            },
        ),
        Case::must(
            "snapshot.delete_makes_it_unusable",
            spec::DELETE_SNAPSHOT,
            "nothing is restored from a deleted snapshot",
            &needs,
            |t| async move {
                let volume = t.volume("v").await?;
                let snapshot = t.snapshot(&volume.volume_id, "s").await?;
                t.call(delete(&snapshot.snapshot_id)).await.ok()?;
                let request = proto::CreateVolumeRequest {
                    volume_content_source: Some(crate::make::from_snapshot(&snapshot.snapshot_id)),
                    ..t.create_request("r")
                };
                t.call(request)
                    .await
                    .refused(Code::NotFound, "the snapshot was deleted")
            },
        ),
    ]
}

fn getting() -> Vec<Case> {
    let needs = [
        CREATE,
        Need::Controller(Can::CreateDeleteSnapshot),
        Need::Controller(Can::GetSnapshot),
    ];
    vec![
        Case::must(
            "snapshot.get_tells_what_create_told",
            spec::GET_SNAPSHOT,
            "GetSnapshot tells what CreateSnapshot told",
            &needs,
            |t| async move {
                let volume = t.volume("v").await?;
                let made = t.snapshot(&volume.volume_id, "s").await?;
                let found = t.call(get(&made.snapshot_id)).await.ok()?.snapshot;
                ensure!(
                    found.as_ref() == Some(&made),
                    "CreateSnapshot told {made:?}, GetSnapshot {found:?}"
                );
                Ok(())
            },
        ),
        Case::must(
            "snapshot.get_unknown",
            spec::GET_SNAPSHOT,
            "an unknown snapshot is NOT_FOUND",
            &[Need::Controller(Can::GetSnapshot)],
            |t| async move {
                t.call(get("orlop-conformance-none"))
                    .await
                    .refused(Code::NotFound, "there is no such snapshot")
            },
        ),
        Case::must(
            "snapshot.get_deleted",
            spec::GET_SNAPSHOT,
            "a deleted snapshot is NOT_FOUND",
            &needs,
            |t| async move {
                let volume = t.volume("v").await?;
                let snapshot = t.snapshot(&volume.volume_id, "s").await?;
                t.call(delete(&snapshot.snapshot_id)).await.ok()?;
                t.call(get(&snapshot.snapshot_id))
                    .await
                    .refused(Code::NotFound, "the snapshot was deleted")
            },
        ),
        Case::must(
            "snapshot.get_volume_id_is_unknown",
            spec::GET_SNAPSHOT,
            "a volume's id is no snapshot's",
            &needs,
            |t| async move {
                let volume = t.volume("v").await?;
                let answer = t.call(get(&volume.volume_id)).await;
                if answer.is_ok() {
                    return Err(Trouble::Against(format!(
                        "GetSnapshot finds a snapshot under the id of volume {:?}",
                        volume.volume_id
                    )));
                }
                answer
                    .refused_with_any(&[Code::NotFound, Code::InvalidArgument], "this is a volume")
            },
        ),
    ]
}
