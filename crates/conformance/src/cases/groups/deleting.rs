//! A group ends with all of its snapshots.

use orlop_csi::client::ControllerCapability as Can;
use orlop_csi::proto;
use tonic::Code;

use super::{GROUPS, NOBODY, Pair};
use crate::case::{Case, Need, ensure};
use crate::cases::CREATE;
use crate::spec;

pub(super) fn cases() -> Vec<Case> {
    vec![
        Case::must(
            "groups.delete_works",
            spec::DELETE_GROUP,
            "a deleted group is gone",
            &[CREATE, GROUPS],
            |t| async move {
                let pair = Pair::make(&t).await?;
                t.call(pair.delete(pair.ids())).await.ok()?;
                let answer = t.call(pair.get(pair.ids())).await;
                answer.refused(Code::NotFound, "the group was deleted")
            },
        ),
        Case::must(
            "groups.delete_takes_the_members",
            spec::DELETE_GROUP,
            "the snapshots of a deleted group are gone",
            &[CREATE, GROUPS, Need::Controller(Can::ListSnapshots)],
            |t| async move {
                let pair = Pair::make(&t).await?;
                t.call(pair.delete(pair.ids())).await.ok()?;
                for snapshot_id in pair.ids() {
                    let request = proto::ListSnapshotsRequest {
                        snapshot_id: snapshot_id.clone(),
                        ..Default::default()
                    };
                    let left = t.call(request).await.ok()?.entries;
                    ensure!(
                        left.is_empty(),
                        "snapshot {snapshot_id} is listed after its group was deleted"
                    );
                }
                Ok(())
            },
        ),
        Case::must(
            "groups.delete_repeat",
            spec::DELETE_GROUP,
            "deleting a group again is OK",
            &[CREATE, GROUPS],
            |t| async move {
                let pair = Pair::make(&t).await?;
                for _ in 0..3 {
                    let answer = t.call(pair.delete(pair.ids())).await;
                    answer.ok_because("DeleteVolumeGroupSnapshot is idempotent")?;
                }
                Ok(())
            },
        ),
        Case::must(
            "groups.delete_unknown",
            spec::DELETE_GROUP,
            "deleting an unknown group is OK",
            &[GROUPS],
            |t| async move {
                let request = proto::DeleteVolumeGroupSnapshotRequest {
                    group_snapshot_id: NOBODY.to_owned(),
                    snapshot_ids: vec![NOBODY.to_owned()],
                    ..Default::default()
                };
                let answer = t.call(request).await;
                answer.ok_because("there is nothing to delete").map(drop)
            },
        ),
        Case::must(
            "groups.delete_with_other_snapshots",
            spec::DELETE_GROUP,
            "deleting a group with ids of other snapshots is INVALID_ARGUMENT and does nothing",
            &[CREATE, GROUPS],
            |t| async move {
                let pair = Pair::make(&t).await?;
                let mut ids = pair.ids();
                ids[0] = NOBODY.to_owned();
                let answer = t.call(pair.delete(ids)).await;
                answer.refused(Code::InvalidArgument, "the group has other snapshots")?;
                pair.is_there(&t).await
            },
        ),
        Case::must(
            "groups.delete_with_too_few_snapshots",
            spec::DELETE_GROUP,
            "deleting a group with the ids of some of its snapshots is INVALID_ARGUMENT",
            &[CREATE, GROUPS],
            |t| async move {
                let pair = Pair::make(&t).await?;
                let answer = t.call(pair.delete(pair.ids()[..1].to_vec())).await;
                answer.refused(Code::InvalidArgument, "the group has more snapshots")?;
                pair.is_there(&t).await
            },
        ),
        Case::must(
            "groups.delete_without_snapshots",
            spec::REQUIRED,
            "deleting a group without snapshot_ids is INVALID_ARGUMENT",
            &[CREATE, GROUPS],
            |t| async move {
                let pair = Pair::make(&t).await?;
                let answer = t.call(pair.delete(Vec::new())).await;
                answer.refused(Code::InvalidArgument, "snapshot_ids is REQUIRED")?;
                pair.is_there(&t).await
            },
        ),
        Case::must(
            "groups.member_is_not_deleted_alone",
            spec::DELETE_SNAPSHOT,
            "DeleteSnapshot of a group's member is INVALID_ARGUMENT and does nothing",
            &[CREATE, GROUPS, Need::Controller(Can::CreateDeleteSnapshot)],
            |t| async move {
                let pair = Pair::make(&t).await?;
                let request = proto::DeleteSnapshotRequest {
                    snapshot_id: pair.ids()[0].clone(),
                    ..Default::default()
                };
                let answer = t.call(request).await;
                answer.refused(Code::InvalidArgument, "only the whole group can be deleted")?;
                pair.is_there(&t).await
            },
        ),
    ]
}
