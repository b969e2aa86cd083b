//! Calls that the caller gave up on: the effect may come late, and the next call must cope.

use std::fmt::Debug;
use std::time::Duration;

use orlop_csi::client::{ControllerCapability as Can, GroupCapability, NodeCapability};
use orlop_csi::{Unary, proto};
use tonic::Code;

use super::CREATE;
use super::parallel::nothing_mounted;
use crate::case::{Case, Need, Trouble, ensure};
use crate::make::at_least;
use crate::spec;
use crate::trial::Trial;

/// When the caller loses its patience.
const PATIENCE: [(&str, Duration); 3] = [
    ("at_once", Duration::from_micros(300)),
    ("after_2_ms", Duration::from_millis(2)),
    ("after_20_ms", Duration::from_millis(20)),
];

/// How long a driver may take to take up a call that has reached it.
const MET: Duration = Duration::from_millis(30);

/// Gives a call up, then repeats it until it is answered otherwise than with ABORTED.
async fn given_up<R>(t: &Trial, request: R, patience: Duration) -> Result<R::Reply, Trouble>
where
    R: Unary + Debug + Clone,
    R::Reply: Debug,
{
    t.call_within(request.clone(), patience).await;
    repeated(t, request).await
}

/// Gives a call up, and waits until the driver has met it: two calls in flight may be taken up
/// in any order, and a reverse that is taken up first has nothing to undo.
async fn left_behind<R>(t: &Trial, request: R, patience: Duration)
where
    R: Unary + Debug,
    R::Reply: Debug,
{
    t.call_within(request, patience).await;
    for _ in 0..2 {
        t.call(proto::ProbeRequest {}).await;
    }
    tokio::time::sleep(MET).await;
}

/// Repeats a call while the driver says that the earlier one still runs.
pub(super) async fn repeated<R>(t: &Trial, request: R) -> Result<R::Reply, Trouble>
where
    R: Unary + Debug + Clone,
    R::Reply: Debug,
{
    let ends = tokio::time::Instant::now() + t.bench().settings.timeout;
    let mut wait = Duration::from_millis(5);
    loop {
        let answer = t.call(request.clone()).await;
        let waits = matches!(
            answer.code(),
            Code::Aborted | Code::Unavailable | Code::DeadlineExceeded | Code::Cancelled
        );
        if !waits || tokio::time::Instant::now() >= ends {
            return answer.ok_because(
                "the same call was given up before; repeating it must lead to its end",
            );
        }
        tokio::time::sleep(wait).await;
        wait = (wait * 2).min(Duration::from_millis(500));
    }
}

pub(super) fn cases() -> Vec<Case> {
    let mut cases: Vec<Case> = PATIENCE
        .into_iter()
        .flat_map(|(word, patience)| [controller(word, patience), node(word, patience)].concat())
        .collect();
    cases.extend(undone());
    cases
}

fn controller(word: &'static str, patience: Duration) -> Vec<Case> {
    let id = |call: &str| format!("late.{call}_given_up_{word}");
    let title = |spec: &str| {
        format!(
            "{spec} can be repeated after its caller gave up {}",
            word.replace('_', " ")
        )
    };
    let snapshot = Need::Controller(Can::CreateDeleteSnapshot);
    let attach = Need::Controller(Can::PublishUnpublishVolume);
    vec![
        Case::must(
            id("create"),
            spec::TIMEOUTS,
            title(spec::CREATE_VOLUME),
            &[CREATE],
            move |t| async move {
                let request = t.create_request("v");
                let first = given_up(&t, request.clone(), patience)
                    .await?
                    .volume
                    .unwrap_or_default();
                let again = t.create(request).await?;
                ensure!(
                    again.volume_id == first.volume_id,
                    "one name gave volumes {:?} and {:?}",
                    first.volume_id,
                    again.volume_id
                );
                Ok(())
            },
        ),
        Case::must(
            id("delete"),
            spec::TIMEOUTS,
            title(spec::DELETE_VOLUME),
            &[CREATE],
            move |t| async move {
                let volume = t.volume("v").await?;
                given_up(&t, t.delete_request(&volume.volume_id), patience)
                    .await
                    .map(drop)
            },
        ),
        Case::must(
            id("attach"),
            spec::TIMEOUTS,
            title(spec::CONTROLLER_PUBLISH),
            &[CREATE, attach],
            move |t| async move {
                let volume = t.volume("v").await?;
                given_up(&t, t.attach_request(&volume, &t.bench().node_id), patience)
                    .await
                    .map(drop)
            },
        ),
        Case::must(
            id("detach"),
            spec::TIMEOUTS,
            title(spec::CONTROLLER_UNPUBLISH),
            &[CREATE, attach],
            move |t| async move {
                let volume = t.volume("v").await?;
                t.call(t.attach_request(&volume, &t.bench().node_id))
                    .await
                    .ok()?;
                let request = proto::ControllerUnpublishVolumeRequest {
                    volume_id: volume.volume_id,
                    node_id: t.bench().node_id.clone(),
                    ..Default::default()
                };
                given_up(&t, request, patience).await.map(drop)
            },
        ),
        Case::must(
            id("snapshot"),
            spec::TIMEOUTS,
            title(spec::CREATE_SNAPSHOT),
            &[CREATE, snapshot],
            move |t| async move {
                let volume = t.volume("v").await?;
                let request = t.snapshot_request(&volume.volume_id, "s");
                let first = given_up(&t, request.clone(), patience)
                    .await?
                    .snapshot
                    .unwrap_or_default();
                let again = t.snapshot(&volume.volume_id, "s").await?;
                ensure!(
                    again.snapshot_id == first.snapshot_id,
                    "one name gave snapshots {:?} and {:?}",
                    first.snapshot_id,
                    again.snapshot_id
                );
                Ok(())
            },
        ),
        Case::must(
            id("delete_snapshot"),
            spec::TIMEOUTS,
            title(spec::DELETE_SNAPSHOT),
            &[CREATE, snapshot],
            move |t| async move {
                let volume = t.volume("v").await?;
                let made = t.snapshot(&volume.volume_id, "s").await?;
                given_up(
                    &t,
                    proto::DeleteSnapshotRequest {
                        snapshot_id: made.snapshot_id,
                        ..Default::default()
                    },
                    patience,
                )
                .await
                .map(drop)
            },
        ),
        Case::must(
            id("expand"),
            spec::TIMEOUTS,
            title(spec::CONTROLLER_EXPAND),
            &[CREATE, Need::Controller(Can::ExpandVolume)],
            move |t| async move {
                let volume = t.volume("v").await?;
                let request = proto::ControllerExpandVolumeRequest {
                    volume_id: volume.volume_id,
                    capacity_range: Some(at_least(t.size() * 2)),
                    volume_capability: Some(t.capability()),
                    ..Default::default()
                };
                let reply = given_up(&t, request, patience).await?;
                ensure!(
                    reply.capacity_bytes >= t.size() * 2,
                    "capacity_bytes is {}",
                    reply.capacity_bytes
                );
                Ok(())
            },
        ),
        Case::must(
            id("group"),
            spec::TIMEOUTS,
            title(spec::CREATE_GROUP),
            &[
                CREATE,
                Need::Group(GroupCapability::CreateDeleteGetVolumeGroupSnapshot),
            ],
            move |t| async move {
                let (a, b) = (t.volume("a").await?, t.volume("b").await?);
                let request = proto::CreateVolumeGroupSnapshotRequest {
                    name: t.name("g"),
                    source_volume_ids: vec![a.volume_id, b.volume_id],
                    ..Default::default()
                };
                let members = given_up(&t, request, patience)
                    .await?
                    .group_snapshot
                    .unwrap_or_default()
                    .snapshots
                    .len();
                ensure!(members == 2, "the group has {members} members");
                Ok(())
            },
        ),
    ]
}

fn node(word: &'static str, patience: Duration) -> Vec<Case> {
    let id = |call: &str| format!("late.{call}_given_up_{word}");
    let title = |spec: &str| {
        format!(
            "{spec} can be repeated after its caller gave up {}",
            word.replace('_', " ")
        )
    };
    let stage = Need::Node(NodeCapability::StageUnstageVolume);
    vec![
        Case::must(
            id("stage"),
            spec::TIMEOUTS,
            title(spec::STAGE),
            &[CREATE, stage],
            move |t| async move {
                let volume = t.volume("v").await?;
                let placed = t.attached(volume, t.capability()).await?;
                given_up(&t, placed.stage_request(), patience).await?;
                t.call(placed.unstage_request()).await.ok()?;
                nothing_mounted(&placed.staging, "NodeUnstageVolume")
            },
        ),
        Case::must(
            id("unstage"),
            spec::TIMEOUTS,
            title(spec::UNSTAGE),
            &[CREATE, stage],
            move |t| async move {
                let placed = t.staged_volume("v").await?;
                given_up(&t, placed.unstage_request(), patience).await?;
                nothing_mounted(&placed.staging, "NodeUnstageVolume")
            },
        ),
        Case::must(
            id("publish"),
            spec::TIMEOUTS,
            title(spec::PUBLISH),
            &[CREATE],
            move |t| async move {
                let placed = t.staged_volume("v").await?;
                let target = t.target("v")?;
                given_up(&t, placed.publish_request(&target), patience).await?;
                crate::data::write(&target, 1).await?;
                t.call(placed.unpublish_request(&target)).await.ok()?;
                nothing_mounted(&target, "NodeUnpublishVolume")
            },
        ),
        Case::must(
            id("unpublish"),
            spec::TIMEOUTS,
            title(spec::UNPUBLISH),
            &[CREATE],
            move |t| async move {
                let (placed, target) = t.published("v").await?;
                given_up(&t, placed.unpublish_request(&target), patience).await?;
                ensure!(
                    !std::path::Path::new(&target).exists(),
                    "NodeUnpublishVolume left {target}"
                );
                Ok(())
            },
        ),
    ]
}

/// How long to watch for an effect that comes after its reverse has succeeded.
const WATCH: Duration = Duration::from_millis(400);

async fn stays_unmounted(path: &str, after: &str) -> Result<(), Trouble> {
    let ends = tokio::time::Instant::now() + WATCH;
    loop {
        nothing_mounted(path, after)?;
        if tokio::time::Instant::now() >= ends {
            return Ok(());
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// The reverse of a call that was given up cancels it for good.
fn undone() -> Vec<Case> {
    let stage = Need::Node(NodeCapability::StageUnstageVolume);
    let snapshot = Need::Controller(Can::CreateDeleteSnapshot);
    vec![
        Case::must(
            "late.stage_undone",
            spec::TIMEOUTS,
            "once NodeUnstageVolume succeeded, a NodeStageVolume that was given up before mounts nothing",
            &[CREATE, stage],
            |t| async move {
                for (_, patience) in PATIENCE {
                    let volume = t.volume(&format!("v{}", patience.as_micros())).await?;
                    let placed = t.attached(volume, t.capability()).await?;
                    left_behind(&t, placed.stage_request(), patience).await;
                    repeated(&t, placed.unstage_request()).await?;
                    stays_unmounted(
                        &placed.staging,
                        "NodeUnstageVolume succeeded: the stage that was given up came late",
                    )
                    .await?;
                }
                Ok(())
            },
        ),
        Case::must(
            "late.publish_undone",
            spec::TIMEOUTS,
            "once NodeUnpublishVolume succeeded, a NodePublishVolume that was given up before mounts nothing",
            &[CREATE],
            |t| async move {
                let placed = t.staged_volume("v").await?;
                for (word, patience) in PATIENCE {
                    let target = t.target(word)?;
                    left_behind(&t, placed.publish_request(&target), patience).await;
                    repeated(&t, placed.unpublish_request(&target)).await?;
                    stays_unmounted(
                        &target,
                        "NodeUnpublishVolume succeeded: the publish that was given up came late",
                    )
                    .await?;
                    ensure!(
                        !std::path::Path::new(&target).exists(),
                        "{target} came back after NodeUnpublishVolume succeeded"
                    );
                }
                Ok(())
            },
        ),
        Case::must(
            "late.attach_undone",
            spec::TIMEOUTS,
            "once ControllerUnpublishVolume succeeded, a publication that was given up before doesn't come",
            &[
                CREATE,
                Need::Controller(Can::PublishUnpublishVolume),
                Need::Controller(Can::ListVolumes),
                Need::Controller(Can::ListVolumesPublishedNodes),
            ],
            |t| async move {
                for (word, patience) in PATIENCE {
                    let volume = t.volume(word).await?;
                    let attach = t.attach_request(&volume, &t.bench().node_id);
                    left_behind(&t, attach, patience).await;
                    let detach = proto::ControllerUnpublishVolumeRequest {
                        volume_id: volume.volume_id.clone(),
                        node_id: t.bench().node_id.clone(),
                        ..Default::default()
                    };
                    repeated(&t, detach).await?;
                    tokio::time::sleep(WATCH).await;
                    let entries = super::entries_listed(&t).await?;
                    let entry = entries.into_iter().find(|entry| {
                        entry
                            .volume
                            .as_ref()
                            .is_some_and(|listed| listed.volume_id == volume.volume_id)
                    });
                    let nodes = entry
                        .and_then(|entry| entry.status)
                        .unwrap_or_default()
                        .published_node_ids;
                    ensure!(
                        nodes.is_empty(),
                        "ControllerUnpublishVolume succeeded, and yet the volume is on {nodes:?}"
                    );
                }
                Ok(())
            },
        ),
        Case::must(
            "late.create_then_delete_leaves_nothing",
            spec::TIMEOUTS,
            "a CreateVolume that was given up, repeated and deleted leaves no volume",
            &[CREATE, Need::Controller(Can::ListVolumes)],
            |t| async move {
                for (word, patience) in PATIENCE {
                    let request = t.create_request(word);
                    left_behind(&t, request.clone(), patience).await;
                    let volume = repeated(&t, request).await?.volume.unwrap_or_default();
                    repeated(&t, t.delete_request(&volume.volume_id)).await?;
                    tokio::time::sleep(WATCH).await;
                    let listed = super::volumes_listed(&t).await?;
                    ensure!(
                        !listed
                            .iter()
                            .any(|entry| entry.volume_id == volume.volume_id),
                        "volume {:?} is listed after it was deleted",
                        volume.volume_id
                    );
                }
                Ok(())
            },
        ),
        Case::must(
            "late.snapshot_then_delete_leaves_nothing",
            spec::TIMEOUTS,
            "a CreateSnapshot that was given up, repeated and deleted leaves no snapshot",
            &[CREATE, snapshot, Need::Controller(Can::ListSnapshots)],
            |t| async move {
                let volume = t.volume("v").await?;
                for (word, patience) in PATIENCE {
                    let request = t.snapshot_request(&volume.volume_id, word);
                    left_behind(&t, request.clone(), patience).await;
                    let made = repeated(&t, request).await?.snapshot.unwrap_or_default();
                    repeated(
                        &t,
                        proto::DeleteSnapshotRequest {
                            snapshot_id: made.snapshot_id,
                            ..Default::default()
                        },
                    )
                    .await?;
                }
                tokio::time::sleep(WATCH).await;
                let left = t
                    .call(proto::ListSnapshotsRequest {
                        source_volume_id: volume.volume_id,
                        ..Default::default()
                    })
                    .await
                    .ok()?
                    .entries
                    .len();
                ensure!(
                    left == 0,
                    "{left} snapshots are listed after all were deleted"
                );
                Ok(())
            },
        ),
        Case::must(
            "late.many_given_up_at_once",
            spec::TIMEOUTS,
            "a driver whose callers all gave up still answers",
            &[CREATE],
            |t| async move {
                let tags: Vec<String> = (0..16).map(|at| format!("v{at}")).collect();
                let calls = tags
                    .iter()
                    .map(|tag| t.call_within(t.create_request(tag), Duration::from_millis(1)));
                futures::future::join_all(calls).await;
                t.call(proto::ProbeRequest {}).await.ok()?;
                for tag in &tags {
                    repeated(&t, t.create_request(tag)).await?;
                }
                Ok(())
            },
        ),
    ]
}
