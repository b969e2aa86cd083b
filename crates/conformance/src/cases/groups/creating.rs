//! Groups are made of all their volumes, or not at all.

use orlop_csi::client::ControllerCapability as Can;
use orlop_csi::proto;
use tonic::Code;

use super::{GROUPS, NOBODY, Pair, create, request};
use crate::case::{Case, Need, ensure};
use crate::cases::CREATE;
use crate::spec;

pub(super) fn cases() -> Vec<Case> {
    vec![
        Case::must(
            "groups.has_a_member_for_every_source",
            spec::CREATE_GROUP,
            "a group has exactly one snapshot of each source volume",
            &[CREATE, GROUPS],
            |t| async move {
                let pair = Pair::make(&t).await?;
                let mut found: Vec<_> = pair
                    .group
                    .snapshots
                    .iter()
                    .map(|member| member.source_volume_id.clone())
                    .collect();
                let mut wanted = pair.request.source_volume_ids;
                found.sort();
                wanted.sort();
                ensure!(
                    found == wanted,
                    "the group of volumes {wanted:?} has snapshots of {found:?}"
                );
                Ok(())
            },
        ),
        Case::must(
            "groups.answer_is_complete",
            spec::CREATE_GROUP,
            "a group has an id, a creation time, and members that name it",
            &[CREATE, GROUPS],
            |t| async move {
                let pair = Pair::make(&t).await?;
                let id = &pair.group.group_snapshot_id;
                ensure!(!id.is_empty(), "group_snapshot_id is empty");
                ensure!(
                    pair.group.creation_time.is_some(),
                    "group {id} has no creation_time"
                );
                for member in &pair.group.snapshots {
                    ensure!(
                        member.group_snapshot_id == *id,
                        "snapshot {} of group {id} names the group {:?}",
                        member.snapshot_id,
                        member.group_snapshot_id
                    );
                    ensure!(
                        member.creation_time.is_some() && !member.snapshot_id.is_empty(),
                        "a member of group {id} lacks its id or creation_time: {member:?}"
                    );
                }
                Ok(())
            },
        ),
        Case::must(
            "groups.is_ready_with_its_members",
            spec::CREATE_GROUP,
            "a group is ready_to_use exactly when all its members are",
            &[CREATE, GROUPS],
            |t| async move {
                let pair = Pair::make(&t).await?;
                ensure!(
                    pair.group
                        .snapshots
                        .iter()
                        .all(|member| member.ready_to_use),
                    "group {} is ready_to_use, but a member is not",
                    pair.group.group_snapshot_id
                );
                Ok(())
            },
        ),
        Case::must(
            "groups.of_one_volume",
            spec::CREATE_GROUP,
            "a group may have a single source",
            &[CREATE, GROUPS],
            |t| async move {
                let volume = t.volume("v").await?;
                let group = create(&t, &request(&t, &[&volume.volume_id], "group")).await?;
                ensure!(
                    group.snapshots.len() == 1,
                    "a group of one volume has {} snapshots",
                    group.snapshots.len()
                );
                Ok(())
            },
        ),
        Case::must(
            "groups.unknown_source_is_refused",
            spec::CREATE_GROUP,
            "a group with a source that does not exist is refused",
            &[CREATE, GROUPS],
            |t| async move {
                let volume = t.volume("v").await?;
                let request = request(&t, &[&volume.volume_id, NOBODY], "group");
                t.call(request).await.refused_with_any(
                    &[
                        Code::NotFound,
                        Code::InvalidArgument,
                        Code::FailedPrecondition,
                    ],
                    "one of its volumes does not exist",
                )
            },
        ),
        Case::must(
            "groups.failure_leaves_nothing",
            spec::CREATE_GROUP,
            "a group that could not be made leaves no snapshot behind",
            &[CREATE, GROUPS, Need::Controller(Can::ListSnapshots)],
            |t| async move {
                let volume = t.volume("v").await?;
                let answer = t
                    .call(request(&t, &[&volume.volume_id, NOBODY], "group"))
                    .await;
                ensure!(
                    !answer.is_ok(),
                    "{} was answered with OK although a volume does not exist",
                    answer.asked
                );
                let list = proto::ListSnapshotsRequest {
                    source_volume_id: volume.volume_id.clone(),
                    ..Default::default()
                };
                let left = t.call(list).await.ok()?.entries;
                ensure!(
                    left.is_empty(),
                    "after the refusal there is a snapshot of volume {}: {:?}; partial groups must be cleaned up",
                    volume.volume_id,
                    left.iter()
                        .filter_map(|entry| entry.snapshot.as_ref())
                        .map(|s| &s.snapshot_id)
                        .collect::<Vec<_>>()
                );
                Ok(())
            },
        ),
        Case::must(
            "groups.name_is_free_after_failure",
            spec::CREATE_GROUP,
            "a name whose group could not be made can be used for another",
            &[CREATE, GROUPS],
            |t| async move {
                let volume = t.volume("v").await?;
                t.call(request(&t, &[&volume.volume_id, NOBODY], "group"))
                    .await;
                create(&t, &request(&t, &[&volume.volume_id], "group"))
                    .await
                    .map(drop)
            },
        ),
        Case::must(
            "groups.outlive_their_volumes",
            spec::DELETE_VOLUME,
            "deleting a source volume keeps its group, or is refused with FAILED_PRECONDITION",
            &[CREATE, GROUPS],
            |t| async move {
                let pair = Pair::make(&t).await?;
                let source = &pair.request.source_volume_ids[0];
                t.call(t.delete_request(source))
                    .await
                    .ok_or_any(&[Code::FailedPrecondition], "the volume has a snapshot")?;
                pair.is_there(&t).await
            },
        ),
    ]
}
