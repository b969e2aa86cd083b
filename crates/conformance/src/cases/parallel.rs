//! Many callers at once: after an orchestrator's crash two of it may ask for the same.

use std::collections::BTreeSet;
use std::fmt::Debug;

use futures::future::join_all;
use orlop_csi::client::{ControllerCapability as Can, GroupCapability, NodeCapability};
use orlop_csi::{Unary, proto};
use tonic::Code;

use super::CREATE;
use crate::case::{Case, Need, Trouble, ensure};
use crate::make::at_least;
use crate::spec;
use crate::trial::Trial;

/// Sends the same request many times at once. Each answer must be OK or ABORTED, and at least
/// one repetition after the storm must succeed.
async fn storm<R>(t: &Trial, request: R, callers: usize) -> Result<Vec<R::Reply>, Trouble>
where
    R: Unary + Debug + Clone,
    R::Reply: Debug,
{
    let calls = (0..callers).map(|_| t.call(request.clone()));
    let mut replies = Vec::new();
    for answer in join_all(calls).await {
        let because =
            format!("{callers} equal calls ran at once; a call that meets another one is ABORTED");
        replies.extend(answer.ok_or_any(&[Code::Aborted], &because)?);
    }
    let last = t
        .call(request)
        .await
        .ok_because("the same call ran many times before, and nothing runs any more")?;
    replies.push(last);
    Ok(replies)
}

const CROWDS: [usize; 2] = [2, 32];

pub(super) fn cases() -> Vec<Case> {
    CROWDS
        .into_iter()
        .flat_map(|callers| [controller(callers), node(callers)].concat())
        .chain(many())
        .collect()
}

fn one(ids: impl Iterator<Item = String>, what: &str) -> Result<(), Trouble> {
    let ids: BTreeSet<_> = ids.collect();
    ensure!(
        ids.len() <= 1,
        "one name gave {} {what}: {ids:?}",
        ids.len()
    );
    Ok(())
}

fn controller(callers: usize) -> Vec<Case> {
    let case = |name: &str, spec: &'static str, needs: &[Need]| {
        (
            format!("parallel.{name}_by_{callers}"),
            spec,
            format!("{callers} equal calls at once are as good as one: {spec}"),
            needs.to_vec(),
        )
    };
    let snapshot = Need::Controller(Can::CreateDeleteSnapshot);
    let attach = Need::Controller(Can::PublishUnpublishVolume);
    let mut cases = Vec::new();
    let (id, spec, title, needs) = case("create", spec::CREATE_VOLUME, &[CREATE]);
    cases.push(Case::must(id, spec, title, &needs, move |t| async move {
        let replies = storm(&t, t.create_request("v"), callers).await?;
        one(
            replies
                .into_iter()
                .map(|reply| reply.volume.unwrap_or_default().volume_id),
            "volumes",
        )
    }));
    let (id, spec, title, needs) = case("delete", spec::DELETE_VOLUME, &[CREATE]);
    cases.push(Case::must(id, spec, title, &needs, move |t| async move {
        let volume = t.volume("v").await?;
        storm(&t, t.delete_request(&volume.volume_id), callers)
            .await
            .map(drop)
    }));
    let (id, spec, title, needs) = case("attach", spec::CONTROLLER_PUBLISH, &[CREATE, attach]);
    cases.push(Case::must(id, spec, title, &needs, move |t| async move {
        let volume = t.volume("v").await?;
        let replies = storm(&t, t.attach_request(&volume, &t.bench().node_id), callers).await?;
        let contexts: BTreeSet<_> = replies
            .into_iter()
            .map(|reply| reply.publish_context)
            .collect();
        ensure!(
            contexts.len() == 1,
            "one publication has {} contexts: {contexts:?}",
            contexts.len()
        );
        Ok(())
    }));
    let (id, spec, title, needs) = case("detach", spec::CONTROLLER_UNPUBLISH, &[CREATE, attach]);
    cases.push(Case::must(id, spec, title, &needs, move |t| async move {
        let volume = t.volume("v").await?;
        t.call(t.attach_request(&volume, &t.bench().node_id))
            .await
            .ok()?;
        let request = proto::ControllerUnpublishVolumeRequest {
            volume_id: volume.volume_id,
            node_id: t.bench().node_id.clone(),
            ..Default::default()
        };
        storm(&t, request, callers).await.map(drop)
    }));
    let (id, spec, title, needs) = case("snapshot", spec::CREATE_SNAPSHOT, &[CREATE, snapshot]);
    cases.push(Case::must(id, spec, title, &needs, move |t| async move {
        let volume = t.volume("v").await?;
        let replies = storm(&t, t.snapshot_request(&volume.volume_id, "s"), callers).await?;
        one(
            replies
                .into_iter()
                .map(|reply| reply.snapshot.unwrap_or_default().snapshot_id),
            "snapshots",
        )
    }));
    let (id, spec, title, needs) = case(
        "delete_snapshot",
        spec::DELETE_SNAPSHOT,
        &[CREATE, snapshot],
    );
    cases.push(Case::must(id, spec, title, &needs, move |t| async move {
        let volume = t.volume("v").await?;
        let made = t.snapshot(&volume.volume_id, "s").await?;
        storm(
            &t,
            proto::DeleteSnapshotRequest {
                snapshot_id: made.snapshot_id,
                ..Default::default()
            },
            callers,
        )
        .await
        .map(drop)
    }));
    let (id, spec, title, needs) = case("restore", spec::CREATE_VOLUME, &[CREATE, snapshot]);
    cases.push(Case::must(id, spec, title, &needs, move |t| async move {
        let volume = t.volume("v").await?;
        let made = t.snapshot(&volume.volume_id, "s").await?;
        let request = proto::CreateVolumeRequest {
            volume_content_source: Some(crate::make::from_snapshot(&made.snapshot_id)),
            ..t.create_request("r")
        };
        let replies = storm(&t, request, callers).await?;
        one(
            replies
                .into_iter()
                .map(|reply| reply.volume.unwrap_or_default().volume_id),
            "volumes",
        )
    }));
    let (id, spec, title, needs) = case(
        "clone",
        spec::CREATE_VOLUME,
        &[CREATE, Need::Controller(Can::CloneVolume)],
    );
    cases.push(Case::must(id, spec, title, &needs, move |t| async move {
        let volume = t.volume("v").await?;
        let request = proto::CreateVolumeRequest {
            volume_content_source: Some(crate::make::from_volume(&volume.volume_id)),
            ..t.create_request("c")
        };
        let replies = storm(&t, request, callers).await?;
        one(
            replies
                .into_iter()
                .map(|reply| reply.volume.unwrap_or_default().volume_id),
            "volumes",
        )
    }));
    let (id, spec, title, needs) = case(
        "expand",
        spec::CONTROLLER_EXPAND,
        &[CREATE, Need::Controller(Can::ExpandVolume)],
    );
    cases.push(Case::must(id, spec, title, &needs, move |t| async move {
        let volume = t.volume("v").await?;
        let request = proto::ControllerExpandVolumeRequest {
            volume_id: volume.volume_id,
            capacity_range: Some(at_least(t.size() * 2)),
            volume_capability: Some(t.capability()),
            ..Default::default()
        };
        let replies = storm(&t, request, callers).await?;
        let sizes: BTreeSet<_> = replies
            .into_iter()
            .map(|reply| reply.capacity_bytes)
            .collect();
        ensure!(
            sizes.len() == 1,
            "one expansion has {} results: {sizes:?}",
            sizes.len()
        );
        Ok(())
    }));
    let (id, spec, title, needs) = case(
        "group",
        spec::CREATE_GROUP,
        &[
            CREATE,
            Need::Group(GroupCapability::CreateDeleteGetVolumeGroupSnapshot),
        ],
    );
    cases.push(Case::must(id, spec, title, &needs, move |t| async move {
        let (a, b) = (t.volume("a").await?, t.volume("b").await?);
        let request = proto::CreateVolumeGroupSnapshotRequest {
            name: t.name("g"),
            source_volume_ids: vec![a.volume_id, b.volume_id],
            ..Default::default()
        };
        let replies = storm(&t, request, callers).await?;
        for reply in &replies {
            let members = reply
                .group_snapshot
                .as_ref()
                .map_or(0, |group| group.snapshots.len());
            ensure!(
                members == 2,
                "a group of two volumes was answered with {members} members"
            );
        }
        one(
            replies
                .into_iter()
                .map(|reply| reply.group_snapshot.unwrap_or_default().group_snapshot_id),
            "groups",
        )
    }));
    let (id, spec, title, needs) = case(
        "modify",
        spec::MODIFY_VOLUME,
        &[
            CREATE,
            Need::Controller(Can::ModifyVolume),
            Need::MutableParameters,
        ],
    );
    cases.push(Case::must(id, spec, title, &needs, move |t| async move {
        let volume = t.volume("v").await?;
        let request = proto::ControllerModifyVolumeRequest {
            volume_id: volume.volume_id,
            mutable_parameters: t.bench().settings.mutable_parameters.clone(),
            ..Default::default()
        };
        storm(&t, request, callers).await.map(drop)
    }));
    cases
}

fn node(callers: usize) -> Vec<Case> {
    let stage = Need::Node(NodeCapability::StageUnstageVolume);
    let title = |spec: &str| format!("{callers} equal calls at once are as good as one: {spec}");
    vec![
        Case::must(
            format!("parallel.stage_by_{callers}"),
            spec::STAGE,
            title(spec::STAGE),
            &[CREATE, stage],
            move |t| async move {
                let volume = t.volume("v").await?;
                let placed = t.attached(volume, t.capability()).await?;
                storm(&t, placed.stage_request(), callers).await?;
                t.call(placed.unstage_request()).await.ok()?;
                nothing_mounted(&placed.staging, "one NodeUnstageVolume")
            },
        ),
        Case::must(
            format!("parallel.unstage_by_{callers}"),
            spec::UNSTAGE,
            title(spec::UNSTAGE),
            &[CREATE, stage],
            move |t| async move {
                let placed = t.staged_volume("v").await?;
                storm(&t, placed.unstage_request(), callers).await?;
                nothing_mounted(&placed.staging, "NodeUnstageVolume")
            },
        ),
        Case::must(
            format!("parallel.publish_by_{callers}"),
            spec::PUBLISH,
            title(spec::PUBLISH),
            &[CREATE],
            move |t| async move {
                let placed = t.staged_volume("v").await?;
                let target = t.target("v")?;
                storm(&t, placed.publish_request(&target), callers).await?;
                crate::data::write(&target, 1).await?;
                t.call(placed.unpublish_request(&target)).await.ok()?;
                nothing_mounted(&target, "one NodeUnpublishVolume")
            },
        ),
        Case::must(
            format!("parallel.unpublish_by_{callers}"),
            spec::UNPUBLISH,
            title(spec::UNPUBLISH),
            &[CREATE],
            move |t| async move {
                let (placed, target) = t.published("v").await?;
                storm(&t, placed.unpublish_request(&target), callers).await?;
                ensure!(
                    !std::path::Path::new(&target).exists(),
                    "NodeUnpublishVolume left {target}"
                );
                Ok(())
            },
        ),
        Case::must(
            format!("parallel.stats_by_{callers}"),
            spec::STATS,
            title(spec::STATS),
            &[CREATE, Need::Node(NodeCapability::GetVolumeStats)],
            move |t| async move {
                let (placed, target) = t.published("v").await?;
                let request = proto::NodeGetVolumeStatsRequest {
                    volume_id: placed.id(),
                    volume_path: target,
                    staging_target_path: placed.staging.clone(),
                };
                storm(&t, request, callers).await.map(drop)
            },
        ),
    ]
}

pub(super) fn nothing_mounted(path: &str, after: &str) -> Result<(), Trouble> {
    let table = orlop_host::MountTable::read()
        .map_err(crate::make::io("could not read the mount table"))?;
    let left = table.beneath(std::path::Path::new(path)).count();
    ensure!(left == 0, "{left} mounts are at {path} after {after}");
    Ok(())
}

fn many() -> Vec<Case> {
    vec![
        Case::must(
            "parallel.different_volumes",
            spec::CONCURRENCY,
            "16 volumes are made, listed and deleted at once, each its own",
            &[CREATE],
            |t| async move {
                let tags: Vec<String> = (0..16).map(|at| format!("v{at}")).collect();
                let made = join_all(tags.iter().map(|tag| t.volume(tag))).await;
                let mut ids = BTreeSet::new();
                for volume in made {
                    let volume = volume?;
                    ensure!(
                        ids.insert(volume.volume_id.clone()),
                        "two names gave volume {:?}",
                        volume.volume_id
                    );
                }
                let deleted = join_all(ids.iter().map(|id| t.call(t.delete_request(id)))).await;
                for answer in deleted {
                    answer.ok()?;
                }
                Ok(())
            },
        ),
        Case::must(
            "parallel.different_volumes_on_the_node",
            spec::CONCURRENCY,
            "8 volumes are staged, published, written and taken down at once",
            &[CREATE],
            |t| async move {
                let tags: Vec<String> = (0..8).map(|at| format!("v{at}")).collect();
                let lives = tags.iter().enumerate().map(|(at, tag)| {
                    let t = t.clone();
                    async move {
                        let (placed, target) = t.published(tag).await?;
                        let seed = at as u64 % 3;
                        crate::data::write(&target, seed).await?;
                        ensure!(
                            crate::data::holds(&target, seed).await?,
                            "what was written to volume {:?} can't be read back",
                            placed.id()
                        );
                        t.take_down(&placed, &target).await
                    }
                });
                join_all(lives).await.into_iter().collect()
            },
        ),
        Case::must(
            "parallel.same_name_different_sizes",
            spec::CREATE_VOLUME,
            "one name with many sizes at once gives one volume",
            &[CREATE],
            |t| async move {
                let requests = (1..=8).map(|times| proto::CreateVolumeRequest {
                    capacity_range: Some(crate::make::exactly(t.size() * times)),
                    ..t.create_request("v")
                });
                let answers = join_all(requests.map(|request| t.call(request))).await;
                let mut ids = BTreeSet::new();
                for answer in answers {
                    let reply = answer.ok_or_any(
                        &[
                            Code::AlreadyExists,
                            Code::Aborted,
                            Code::OutOfRange,
                            Code::ResourceExhausted,
                        ],
                        "another call has made the volume with another size",
                    )?;
                    ids.extend(
                        reply
                            .and_then(|reply| reply.volume)
                            .map(|volume| volume.volume_id),
                    );
                }
                ensure!(
                    ids.len() == 1,
                    "one name gave {} volumes: {ids:?}",
                    ids.len()
                );
                Ok(())
            },
        ),
    ]
}
