//! Calls that were undone while they still ran.

use std::time::Duration;

use orlop_csi::client::{ControllerCapability as Can, NodeCapability};
use orlop_csi::proto;
use tonic::Code;

use super::{PATIENCE, left_behind, repeated};
use crate::case::{Case, Need, Trouble, ensure};
use crate::cases::CREATE;
use crate::cases::parallel::nothing_mounted;
use crate::make::at_least;
use crate::spec;

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
pub(super) fn cases() -> Vec<Case> {
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
                    let nodes = crate::cases::nodes_listed(&t, &volume.volume_id).await?;
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
            &[CREATE],
            |t| async move {
                for (word, patience) in PATIENCE {
                    let request = t.create_request(word);
                    left_behind(&t, request.clone(), patience).await;
                    let made = repeated(&t, request.clone()).await?;
                    let volume = made.volume.unwrap_or_default();
                    repeated(&t, t.delete_request(&volume.volume_id)).await?;
                    tokio::time::sleep(WATCH).await;
                    if t.bench().can(Can::ListVolumes) {
                        let listed = crate::cases::volumes_listed(&t).await?;
                        let id = &volume.volume_id;
                        ensure!(
                            !listed.iter().any(|entry| entry.volume_id == *id),
                            "volume {id:?} is listed after it was deleted"
                        );
                    }
                    // A volume that came late has the first request's size, and another id perhaps.
                    let larger = proto::CreateVolumeRequest {
                        capacity_range: Some(at_least(volume.capacity_bytes.max(t.size()) * 2)),
                        ..request.clone()
                    };
                    let answer = t.call(larger).await;
                    if answer.code() == Code::AlreadyExists {
                        // So that it is known, and removed.
                        t.call(request).await;
                    }
                    answer.ok_because(
                        "its only volume was deleted: one that was given up before came late",
                    )?;
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
