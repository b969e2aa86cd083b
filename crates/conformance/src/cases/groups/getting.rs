//! A group is shown as it was made.

use orlop_csi::client::ControllerCapability as Can;
use orlop_csi::proto;
use tonic::Code;

use super::{GROUPS, NOBODY, Pair, members};
use crate::case::{Case, Need, ensure};
use crate::cases::CREATE;
use crate::spec;

pub(super) fn cases() -> Vec<Case> {
    vec![
        Case::must(
            "groups.get_shows_the_group",
            spec::GET_GROUP,
            "GetVolumeGroupSnapshot shows what CreateVolumeGroupSnapshot answered",
            &[CREATE, GROUPS],
            |t| async move {
                let pair = Pair::make(&t).await?;
                let reply = t.call(pair.get(pair.ids())).await.ok()?;
                let found = reply.group_snapshot.unwrap_or_default();
                ensure!(
                    found.group_snapshot_id == pair.group.group_snapshot_id
                        && members(&found) == pair.members(),
                    "group {} with snapshots {:?} is shown as {:?} with {:?}",
                    pair.group.group_snapshot_id,
                    pair.members(),
                    found.group_snapshot_id,
                    members(&found)
                );
                ensure!(
                    found.creation_time == pair.group.creation_time,
                    "creation_time was {:?} and is {:?}",
                    pair.group.creation_time,
                    found.creation_time
                );
                Ok(())
            },
        ),
        Case::must(
            "groups.get_unknown",
            spec::GET_GROUP,
            "GetVolumeGroupSnapshot of an unknown group is NOT_FOUND",
            &[GROUPS],
            |t| async move {
                let request = proto::GetVolumeGroupSnapshotRequest {
                    group_snapshot_id: NOBODY.to_owned(),
                    snapshot_ids: vec![NOBODY.to_owned()],
                    ..Default::default()
                };
                let answer = t.call(request).await;
                answer.refused(Code::NotFound, "there is no such group")
            },
        ),
        Case::must(
            "groups.get_with_other_snapshots",
            spec::GET_GROUP,
            "GetVolumeGroupSnapshot with ids of other snapshots is INVALID_ARGUMENT",
            &[CREATE, GROUPS],
            |t| async move {
                let pair = Pair::make(&t).await?;
                let mut ids = pair.ids();
                ids[0] = NOBODY.to_owned();
                let answer = t.call(pair.get(ids)).await;
                answer.refused(Code::InvalidArgument, "the group has other snapshots")
            },
        ),
        Case::must(
            "groups.get_without_snapshots",
            spec::REQUIRED,
            "GetVolumeGroupSnapshot without snapshot_ids is INVALID_ARGUMENT",
            &[CREATE, GROUPS],
            |t| async move {
                let pair = Pair::make(&t).await?;
                let answer = t.call(pair.get(Vec::new())).await;
                answer.refused(Code::InvalidArgument, "snapshot_ids is REQUIRED")
            },
        ),
        Case::must(
            "groups.members_are_snapshots",
            spec::GET_SNAPSHOT,
            "GetSnapshot shows the members of a group",
            &[CREATE, GROUPS, Need::Controller(Can::GetSnapshot)],
            |t| async move {
                let pair = Pair::make(&t).await?;
                for member in &pair.group.snapshots {
                    let request = proto::GetSnapshotRequest {
                        snapshot_id: member.snapshot_id.clone(),
                        ..Default::default()
                    };
                    let shown = t.call(request).await.ok()?.snapshot.unwrap_or_default();
                    ensure!(
                        shown.group_snapshot_id == pair.group.group_snapshot_id
                            && shown.source_volume_id == member.source_volume_id,
                        "member {member:?} is shown as {shown:?}"
                    );
                }
                Ok(())
            },
        ),
    ]
}
