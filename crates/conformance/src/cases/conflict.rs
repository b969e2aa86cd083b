//! A call and its reverse at once: either wins, none is half done.

use std::fmt::Debug;

use futures::future::{join, join_all};
use orlop_csi::client::{ControllerCapability as Can, NodeCapability};
use orlop_csi::{Unary, proto};
use tonic::Code;

use super::CREATE;
use super::parallel::nothing_mounted;
use crate::case::{Case, Need, Outcome, ensure};
use crate::make::at_least;
use crate::spec;
use crate::trial::Trial;

/// How often each pair meets.
const ROUNDS: usize = 8;

/// Neither of two calls that meet may end in an error that no caller can act on.
async fn meet<A, B>(t: &Trial, one: A, other: B, fits: &[Code]) -> Outcome
where
    A: Unary + Debug,
    A::Reply: Debug,
    B: Unary + Debug,
    B::Reply: Debug,
{
    let (one, other) = join(t.call(one), t.call(other)).await;
    one.ok_or_any(fits, "the call met its reverse")?;
    other.ok_or_any(fits, "the call met its reverse").map(drop)
}

const FIT: [Code; 3] = [Code::Aborted, Code::NotFound, Code::FailedPrecondition];

pub(super) fn cases() -> Vec<Case> {
    let stage = Need::Node(NodeCapability::StageUnstageVolume);
    let snapshot = Need::Controller(Can::CreateDeleteSnapshot);
    vec![
        Case::must(
            "conflict.create_and_delete",
            spec::CONCURRENCY,
            "CreateVolume and DeleteVolume of one volume at once",
            &[CREATE],
            |t| async move {
                for _ in 0..ROUNDS {
                    let request = t.create_request("v");
                    let volume = t.create(request.clone()).await?;
                    meet(
                        &t,
                        request.clone(),
                        t.delete_request(&volume.volume_id),
                        &FIT,
                    )
                    .await?;
                    // Whoever won: the name must be usable, and lead to one volume.
                    let first = t.create(request.clone()).await?;
                    let again = t.create(request).await?;
                    ensure!(
                        first.volume_id == again.volume_id,
                        "one name gave volumes {:?} and {:?}",
                        first.volume_id,
                        again.volume_id
                    );
                    t.call(t.delete_request(&first.volume_id)).await.ok()?;
                }
                Ok(())
            },
        ),
        Case::must(
            "conflict.stage_and_unstage",
            spec::CONCURRENCY,
            "NodeStageVolume and NodeUnstageVolume at once",
            &[CREATE, stage],
            |t| async move {
                let volume = t.volume("v").await?;
                let placed = t.attached(volume, t.capability()).await?;
                for _ in 0..ROUNDS {
                    meet(&t, placed.stage_request(), placed.unstage_request(), &FIT).await?;
                }
                t.call(placed.stage_request()).await.ok()?;
                t.call(placed.unstage_request()).await.ok()?;
                nothing_mounted(&placed.staging, "the last NodeUnstageVolume")
            },
        ),
        Case::must(
            "conflict.publish_and_unpublish",
            spec::CONCURRENCY,
            "NodePublishVolume and NodeUnpublishVolume at once",
            &[CREATE],
            |t| async move {
                let placed = t.staged_volume("v").await?;
                let target = t.target("v")?;
                for _ in 0..ROUNDS {
                    meet(
                        &t,
                        placed.publish_request(&target),
                        placed.unpublish_request(&target),
                        &FIT,
                    )
                    .await?;
                }
                t.call(placed.publish_request(&target)).await.ok()?;
                crate::data::write(&target, 1).await?;
                t.call(placed.unpublish_request(&target)).await.ok()?;
                nothing_mounted(&target, "the last NodeUnpublishVolume")
            },
        ),
        Case::must(
            "conflict.unstage_and_publish",
            spec::CONCURRENCY,
            "NodePublishVolume while the volume is unstaged",
            &[CREATE, stage],
            |t| async move {
                for at in 0..ROUNDS {
                    let placed = t.staged_volume(&format!("v{at}")).await?;
                    let target = t.target(&format!("v{at}"))?;
                    let (published, unstaged) = join(
                        t.call(placed.publish_request(&target)),
                        t.call(placed.unstage_request()),
                    )
                    .await;
                    published.ok_or_any(
                        &[
                            Code::Aborted,
                            Code::FailedPrecondition,
                            Code::NotFound,
                            Code::InvalidArgument,
                        ],
                        "the volume is being unstaged",
                    )?;
                    unstaged.ok_or_any(
                        &[Code::Aborted, Code::FailedPrecondition],
                        "the volume is being published",
                    )?;
                    t.call(placed.unpublish_request(&target)).await.ok()?;
                    t.call(placed.unstage_request()).await.ok()?;
                    nothing_mounted(&target, "unpublish and unstage")?;
                    nothing_mounted(&placed.staging, "unpublish and unstage")?;
                }
                Ok(())
            },
        ),
        Case::must(
            "conflict.attach_and_detach",
            spec::CONCURRENCY,
            "ControllerPublishVolume and ControllerUnpublishVolume at once",
            &[CREATE, Need::Controller(Can::PublishUnpublishVolume)],
            |t| async move {
                let volume = t.volume("v").await?;
                for _ in 0..ROUNDS {
                    let detach = proto::ControllerUnpublishVolumeRequest {
                        volume_id: volume.volume_id.clone(),
                        node_id: t.bench().node_id.clone(),
                        ..Default::default()
                    };
                    meet(
                        &t,
                        t.attach_request(&volume, &t.bench().node_id),
                        detach,
                        &FIT,
                    )
                    .await?;
                }
                t.call(t.attach_request(&volume, &t.bench().node_id))
                    .await
                    .ok()
                    .map(drop)
            },
        ),
        Case::must(
            "conflict.snapshot_and_delete_volume",
            spec::CONCURRENCY,
            "CreateSnapshot while its volume is deleted",
            &[CREATE, snapshot],
            |t| async move {
                for at in 0..ROUNDS {
                    let volume = t.volume(&format!("v{at}")).await?;
                    let tag = format!("s{at}");
                    meet(
                        &t,
                        t.snapshot_request(&volume.volume_id, &tag),
                        t.delete_request(&volume.volume_id),
                        &FIT,
                    )
                    .await?;
                }
                Ok(())
            },
        ),
        Case::must(
            "conflict.snapshot_and_delete_snapshot",
            spec::CONCURRENCY,
            "CreateSnapshot and DeleteSnapshot of one snapshot at once",
            &[CREATE, snapshot],
            |t| async move {
                let volume = t.volume("v").await?;
                for _ in 0..ROUNDS {
                    let made = t.snapshot(&volume.volume_id, "s").await?;
                    let delete = proto::DeleteSnapshotRequest {
                        snapshot_id: made.snapshot_id,
                        ..Default::default()
                    };
                    meet(&t, t.snapshot_request(&volume.volume_id, "s"), delete, &FIT).await?;
                    let first = t.snapshot(&volume.volume_id, "s").await?;
                    t.call(proto::DeleteSnapshotRequest {
                        snapshot_id: first.snapshot_id,
                        ..Default::default()
                    })
                    .await
                    .ok()?;
                }
                Ok(())
            },
        ),
        Case::must(
            "conflict.clone_and_delete_source",
            spec::CONCURRENCY,
            "a volume is cloned while it is deleted",
            &[CREATE, Need::Controller(Can::CloneVolume)],
            |t| async move {
                for at in 0..ROUNDS {
                    let source = t.volume(&format!("v{at}")).await?;
                    let clone = proto::CreateVolumeRequest {
                        volume_content_source: Some(crate::make::from_volume(&source.volume_id)),
                        ..t.create_request(&format!("c{at}"))
                    };
                    meet(&t, clone, t.delete_request(&source.volume_id), &FIT).await?;
                }
                Ok(())
            },
        ),
        Case::must(
            "conflict.restore_and_delete_snapshot",
            spec::CONCURRENCY,
            "a volume is restored while its snapshot is deleted",
            &[CREATE, snapshot],
            |t| async move {
                let volume = t.volume("v").await?;
                for at in 0..ROUNDS {
                    let made = t.snapshot(&volume.volume_id, &format!("s{at}")).await?;
                    let restore = proto::CreateVolumeRequest {
                        volume_content_source: Some(crate::make::from_snapshot(&made.snapshot_id)),
                        ..t.create_request(&format!("r{at}"))
                    };
                    let delete = proto::DeleteSnapshotRequest {
                        snapshot_id: made.snapshot_id,
                        ..Default::default()
                    };
                    meet(&t, restore, delete, &FIT).await?;
                }
                Ok(())
            },
        ),
        Case::must(
            "conflict.expand_and_delete",
            spec::CONCURRENCY,
            "a volume grows while it is deleted",
            &[CREATE, Need::Controller(Can::ExpandVolume)],
            |t| async move {
                for at in 0..ROUNDS {
                    let volume = t.volume(&format!("v{at}")).await?;
                    let expand = proto::ControllerExpandVolumeRequest {
                        volume_id: volume.volume_id.clone(),
                        capacity_range: Some(at_least(t.size() * 2)),
                        volume_capability: Some(t.capability()),
                        ..Default::default()
                    };
                    meet(&t, expand, t.delete_request(&volume.volume_id), &FIT).await?;
                    t.call(t.delete_request(&volume.volume_id)).await.ok()?;
                }
                Ok(())
            },
        ),
        Case::must(
            "conflict.two_paths_for_one_writer",
            spec::PUBLISH,
            "two paths for one SINGLE_NODE_SINGLE_WRITER at once: one wins",
            &[CREATE, Need::Node(NodeCapability::SingleNodeMultiWriter)],
            |t| async move {
                use proto::volume_capability::access_mode::Mode;
                let placed = t
                    .staged_with("v", t.capability_for(Mode::SingleNodeSingleWriter))
                    .await?;
                let targets = (0..4)
                    .map(|at| t.target(&format!("p{at}")))
                    .collect::<Result<Vec<_>, _>>()?;
                let answers = join_all(
                    targets
                        .iter()
                        .map(|target| t.call(placed.publish_request(target))),
                )
                .await;
                let mut won = 0;
                for answer in answers {
                    won += usize::from(
                        answer
                            .ok_or_any(
                                &[Code::FailedPrecondition, Code::Aborted],
                                "another path has the volume",
                            )?
                            .is_some(),
                    );
                }
                ensure!(won <= 1, "a volume for a single writer is at {won} paths");
                Ok(())
            },
        ),
    ]
}
