//! One group per name, and names as the specification allows them.

use std::collections::BTreeSet;

use orlop_csi::proto;
use tonic::Code;

use super::{GROUPS, Pair, create, members, request};
use crate::case::{Case, ensure};
use crate::cases::CREATE;
use crate::spec;

pub(super) fn cases() -> Vec<Case> {
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
