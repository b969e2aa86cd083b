//! An orchestrator that calls in the wrong order.

use orlop_csi::client::{ControllerCapability as Can, NodeCapability};
use orlop_csi::proto;
use tonic::Code;

use super::CREATE;
use super::parallel::nothing_mounted;
use crate::case::{Case, Need, ensure};
use crate::data;
use crate::spec;

pub(super) fn cases() -> Vec<Case> {
    let stage = Need::Node(NodeCapability::StageUnstageVolume);
    let attach = Need::Controller(Can::PublishUnpublishVolume);
    vec![
        Case::must(
            "order.unstage_while_published",
            spec::UNSTAGE,
            "unstaging a published volume is refused, or leaves it usable where it is published",
            &[CREATE, stage],
            |t| async move {
                let (placed, target) = t.published("v").await?;
                data::write(&target, 1).await?;
                let answer = t.call(placed.unstage_request()).await;
                answer.ok_or_any(
                    &[Code::FailedPrecondition, Code::Aborted],
                    "the volume is published",
                )?;
                ensure!(
                    data::holds(&target, 1).await?,
                    "NodeUnstageVolume took the data from a path where the volume is still published"
                );
                t.call(placed.unpublish_request(&target)).await.ok()?;
                t.call(placed.unstage_request()).await.ok()?;
                nothing_mounted(&target, "NodeUnpublishVolume")?;
                nothing_mounted(&placed.staging, "NodeUnstageVolume")
            },
        ),
        Case::must(
            "order.stage_without_attach",
            spec::STAGE,
            "staging a volume that is not published to the node is refused, or works",
            &[CREATE, stage, attach],
            |t| async move {
                let volume = t.volume("v").await?;
                let placed = t.attached(volume, t.capability()).await?;
                let detach = proto::ControllerUnpublishVolumeRequest {
                    volume_id: placed.id(),
                    node_id: t.bench().node_id.clone(),
                    ..Default::default()
                };
                t.call(detach).await.ok()?;
                t.call(placed.stage_request())
                    .await
                    .ok_or_any(
                        &[
                            Code::FailedPrecondition,
                            Code::NotFound,
                            Code::InvalidArgument,
                            Code::Aborted,
                        ],
                        "the volume is not published to this node",
                    )
                    .map(drop)
            },
        ),
        Case::must(
            "order.detach_while_staged",
            spec::CONTROLLER_UNPUBLISH,
            "taking a staged volume from its node does no harm to the node's calls",
            &[CREATE, stage, attach],
            |t| async move {
                let (placed, target) = t.published("v").await?;
                let detach = proto::ControllerUnpublishVolumeRequest {
                    volume_id: placed.id(),
                    node_id: t.bench().node_id.clone(),
                    ..Default::default()
                };
                t.call(detach).await.ok_or_any(
                    &[Code::FailedPrecondition, Code::Aborted],
                    "the volume is in use on the node",
                )?;
                t.call(placed.unpublish_request(&target)).await.ok()?;
                t.call(placed.unstage_request()).await.ok().map(drop)
            },
        ),
        Case::must(
            "order.delete_while_attached",
            spec::DELETE_VOLUME,
            "deleting a volume that is published to a node is refused with FAILED_PRECONDITION",
            &[CREATE, attach],
            |t| async move {
                let volume = t.volume("v").await?;
                t.call(t.attach_request(&volume, &t.bench().node_id))
                    .await
                    .ok()?;
                let answer = t.call(t.delete_request(&volume.volume_id)).await;
                if answer.is_ok() {
                    t.warn("a volume was deleted while it was published to a node; FAILED_PRECONDITION would be safer");
                    return Ok(());
                }
                answer.refused(
                    Code::FailedPrecondition,
                    "the volume is published to a node",
                )
            },
        ),
        Case::must(
            "order.delete_while_staged",
            spec::DELETE_VOLUME,
            "deleting a staged volume is refused with FAILED_PRECONDITION",
            &[CREATE, stage],
            |t| async move {
                let placed = t.staged_volume("v").await?;
                let answer = t.call(t.delete_request(&placed.id())).await;
                if answer.is_ok() {
                    t.warn("a volume was deleted while it was staged; FAILED_PRECONDITION would be safer");
                    return t.unplace(&placed).await.or(Ok(()));
                }
                answer.refused(Code::FailedPrecondition, "the volume is staged")
            },
        ),
        Case::must(
            "order.unpublish_after_unstage",
            spec::UNPUBLISH,
            "unpublishing after unstaging is cleaned up",
            &[CREATE, stage],
            |t| async move {
                let (placed, target) = t.published("v").await?;
                t.call(placed.unpublish_request(&target)).await.ok()?;
                t.call(placed.unstage_request()).await.ok()?;
                t.call(placed.unpublish_request(&target))
                    .await
                    .ok_because("the volume is not published there")
                    .map(drop)
            },
        ),
        Case::must(
            "order.node_calls_after_delete",
            spec::UNPUBLISH,
            "unpublish and unstage of a deleted volume succeed or are NOT_FOUND",
            &[CREATE],
            |t| async move {
                let (placed, target) = t.published("v").await?;
                t.take_down(&placed, &target).await?;
                t.call(t.delete_request(&placed.id())).await.ok()?;
                t.call(placed.unpublish_request(&target))
                    .await
                    .ok_or_any(&[Code::NotFound], "the volume was deleted")?;
                if t.stages() {
                    t.call(placed.unstage_request())
                        .await
                        .ok_or_any(&[Code::NotFound], "the volume was deleted")?;
                }
                Ok(())
            },
        ),
        Case::must(
            "order.stage_after_delete",
            spec::STAGE,
            "staging a deleted volume is NOT_FOUND",
            &[CREATE, stage],
            |t| async move {
                let placed = t.staged_volume("v").await?;
                t.unplace(&placed).await?;
                t.call(t.delete_request(&placed.id())).await.ok()?;
                t.call(placed.stage_request())
                    .await
                    .refused(Code::NotFound, "the volume was deleted")
            },
        ),
        Case::must(
            "order.target_inside_a_target",
            spec::PUBLISH,
            "a target path inside another volume's target works, and comes apart in order",
            &[CREATE, Need::MountVolumes],
            |t| async move {
                if t.bench().settings.block {
                    return Err(crate::case::Trouble::Skip(
                        "test volumes are raw block ones".into(),
                    ));
                }
                let (outer, target) = t.published("outer").await?;
                let inner = t.staged_volume("inner").await?;
                let nested = format!("{target}/nested");
                t.call(inner.publish_request(&nested)).await.ok_or_any(
                    &[Code::InvalidArgument, Code::FailedPrecondition],
                    "nested paths are unusual",
                )?;
                t.call(inner.unpublish_request(&nested)).await.ok()?;
                t.take_down(&outer, &target).await
            },
        ),
    ]
}
