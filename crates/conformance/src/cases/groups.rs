//! Group snapshots: all members or none, one group per name, one end for all.

use std::collections::BTreeSet;

use orlop_csi::client::{ControllerCapability as Can, GroupCapability};
use orlop_csi::proto;
use tonic::Code;

use super::CREATE;
use crate::case::{Case, Need, Outcome, Trouble, ensure};
use crate::spec;
use crate::trial::Trial;

const GROUPS: Need = Need::Group(GroupCapability::CreateDeleteGetVolumeGroupSnapshot);
const NOBODY: &str = "orlop-conformance-nobody";

pub(super) fn cases() -> Vec<Case> {
    [creating(), names(), getting(), deleting()].concat()
}

fn request(t: &Trial, sources: &[&str], tag: &str) -> proto::CreateVolumeGroupSnapshotRequest {
    proto::CreateVolumeGroupSnapshotRequest {
        name: t.name(tag),
        source_volume_ids: sources.iter().map(|id| (*id).to_owned()).collect(),
        ..Default::default()
    }
}

/// Two volumes, and the group of their snapshots once it is ready.
struct Pair {
    request: proto::CreateVolumeGroupSnapshotRequest,
    group: proto::VolumeGroupSnapshot,
}

impl Pair {
    async fn make(t: &Trial) -> Result<Self, Trouble> {
        let (first, second) = (t.volume("a").await?, t.volume("b").await?);
        let request = request(t, &[&first.volume_id, &second.volume_id], "group");
        let ends = tokio::time::Instant::now() + t.bench().settings.timeout;
        loop {
            let group = create(t, &request).await?;
            if group.ready_to_use {
                return Ok(Self { request, group });
            }
            ensure!(
                tokio::time::Instant::now() < ends,
                "group {} did not become ready_to_use in time (its members: {:?})",
                group.group_snapshot_id,
                group
                    .snapshots
                    .iter()
                    .map(|member| member.ready_to_use)
                    .collect::<Vec<_>>()
            );
            tokio::time::sleep(std::time::Duration::from_millis(200)).await;
        }
    }

    fn members(&self) -> BTreeSet<&str> {
        members(&self.group)
    }

    fn ids(&self) -> Vec<String> {
        self.members().into_iter().map(str::to_owned).collect()
    }

    fn get(&self, snapshot_ids: Vec<String>) -> proto::GetVolumeGroupSnapshotRequest {
        proto::GetVolumeGroupSnapshotRequest {
            group_snapshot_id: self.group.group_snapshot_id.clone(),
            snapshot_ids,
            ..Default::default()
        }
    }

    fn delete(&self, snapshot_ids: Vec<String>) -> proto::DeleteVolumeGroupSnapshotRequest {
        proto::DeleteVolumeGroupSnapshotRequest {
            group_snapshot_id: self.group.group_snapshot_id.clone(),
            snapshot_ids,
            ..Default::default()
        }
    }

    async fn is_there(&self, t: &Trial) -> Outcome {
        let answer = t.call(self.get(self.ids())).await;
        answer.ok_because("the group must be as it was").map(drop)
    }
}

fn members(group: &proto::VolumeGroupSnapshot) -> BTreeSet<&str> {
    let ids = group.snapshots.iter();
    ids.map(|member| member.snapshot_id.as_str()).collect()
}

async fn create(
    t: &Trial,
    request: &proto::CreateVolumeGroupSnapshotRequest,
) -> Result<proto::VolumeGroupSnapshot, Trouble> {
    let reply = t.call(request.clone()).await.ok()?;
    reply.group_snapshot.ok_or_else(|| {
        Trouble::Against("CreateVolumeGroupSnapshot's reply has no group_snapshot".to_owned())
    })
}

fn creating() -> Vec<Case> {
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

fn names() -> Vec<Case> {
    vec![
        Case::must(
            "groups.repeat_is_idempotent",
            spec::CREATE_GROUP,
            "the same request again gives the same group",
            &[CREATE, GROUPS],
            |t| async move {
                let pair = Pair::make(&t).await?;
                let again = create(&t, &pair.request).await?;
                ensure!(
                    again.group_snapshot_id == pair.group.group_snapshot_id,
                    "one name gave group {} first and {} when repeated",
                    pair.group.group_snapshot_id,
                    again.group_snapshot_id
                );
                Ok(())
            },
        ),
        Case::must(
            "groups.repeat_gives_all_members",
            spec::CREATE_GROUP,
            "the answer to a repeated request has all members",
            &[CREATE, GROUPS],
            |t| async move {
                let pair = Pair::make(&t).await?;
                let again = create(&t, &pair.request).await?;
                ensure!(
                    members(&again) == pair.members(),
                    "the group has snapshots {:?}, and {:?} when the call is repeated",
                    pair.members(),
                    members(&again)
                );
                ensure!(
                    again.creation_time == pair.group.creation_time,
                    "creation_time was {:?}, and {:?} when the call is repeated",
                    pair.group.creation_time,
                    again.creation_time
                );
                Ok(())
            },
        ),
        Case::must(
            "groups.same_name_other_sources_is_refused",
            spec::CREATE_GROUP,
            "a name that exists with other source volumes is ALREADY_EXISTS",
            &[CREATE, GROUPS],
            |t| async move {
                let pair = Pair::make(&t).await?;
                let other = proto::CreateVolumeGroupSnapshotRequest {
                    source_volume_ids: pair.request.source_volume_ids[..1].to_vec(),
                    ..pair.request.clone()
                };
                let answer = t.call(other).await;
                answer.refused(Code::AlreadyExists, "the name exists for other volumes")?;
                pair.is_there(&t).await
            },
        ),
        Case::must(
            "groups.longest_name",
            spec::NAME_RULES,
            "a group's name may have 128 bytes",
            &[CREATE, GROUPS],
            |t| async move {
                let volume = t.volume("v").await?;
                let mut request = request(&t, &[&volume.volume_id], "group");
                request.name = format!("{:é<1$}", request.name, 128);
                while request.name.len() > 128 {
                    request.name.pop();
                }
                create(&t, &request).await.map(drop)
            },
        ),
        Case::must(
            "groups.name_too_long",
            spec::NAME_RULES,
            "a group's name of 129 bytes is refused with INVALID_ARGUMENT",
            &[CREATE, GROUPS],
            |t| async move {
                let volume = t.volume("v").await?;
                let mut request = request(&t, &[&volume.volume_id], "group");
                request.name = format!("{:x<129}", request.name);
                let answer = t.call(request).await;
                answer.refused(Code::InvalidArgument, "strings have at most 128 bytes")
            },
        ),
        Case::must(
            "groups.parallel_creates_make_one",
            spec::CONCURRENCY,
            "parallel requests of one name make one group",
            &[CREATE, GROUPS],
            |t| async move {
                let volume = t.volume("v").await?;
                let request = request(&t, &[&volume.volume_id], "group");
                let calls = (0..8).map(|_| t.call(request.clone()));
                let mut ids = BTreeSet::new();
                for answer in futures::future::join_all(calls).await {
                    let reply = answer.ok_or_any(&[Code::Aborted], "the calls are the same")?;
                    ids.extend(
                        reply
                            .and_then(|reply| reply.group_snapshot)
                            .map(|group| group.group_snapshot_id),
                    );
                }
                ids.insert(create(&t, &request).await?.group_snapshot_id);
                ensure!(ids.len() == 1, "one name gave the groups {ids:?}");
                Ok(())
            },
        ),
    ]
}

fn getting() -> Vec<Case> {
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

fn deleting() -> Vec<Case> {
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
