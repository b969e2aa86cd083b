//! The file system follows.

use orlop_csi::client::NodeCapability;
use orlop_csi::proto;
use tonic::Code;

use super::{EXPAND, expand, node_expand};
use crate::case::{Case, Need, Outcome, Trouble, ensure};
use crate::cases::CREATE;
use crate::make::{Placed, at_least};
use crate::trial::Trial;
use crate::{data, spec};

/// Grows a published volume; what the workload then sees.
async fn grown(t: &Trial, placed: &Placed, target: &str) -> Result<(i64, i64), Trouble> {
    let wanted = placed.volume.capacity_bytes.max(t.size()) * 2;
    let reply = t
        .call(expand(t, &placed.id(), at_least(wanted)))
        .await
        .ok()?;
    if reply.node_expansion_required {
        ensure!(
            t.bench().node_can(NodeCapability::ExpandVolume),
            "node_expansion_required is set, but the node service has no EXPAND_VOLUME"
        );
        let reply = t.call(node_expand(placed, target, wanted)).await.ok()?;
        ensure!(
            reply.capacity_bytes == 0 || reply.capacity_bytes >= wanted,
            "{wanted} bytes were asked for, NodeExpandVolume tells {}",
            reply.capacity_bytes
        );
    }
    Ok((wanted, data::size_at(target).await?))
}

fn online(t: &Trial) -> Outcome {
    if t.bench().grows_online() {
        return Ok(());
    }
    Err(Trouble::Skip("needs volume expansion ONLINE".into()))
}

pub(super) fn cases() -> Vec<Case> {
    let node = Need::Node(NodeCapability::ExpandVolume);
    let needs = [CREATE, node];
    let whole = [CREATE, EXPAND];
    vec![
        Case::must(
            "expand.online_is_seen",
            spec::NODE_EXPAND,
            "a volume that grew while published shows its new size",
            &whole,
            |t| async move {
                online(&t)?;
                let (placed, target) = t.published("v").await?;
                let (wanted, seen) = grown(&t, &placed, &target).await?;
                ensure!(
                    seen >= wanted / 10 * 7,
                    "the volume has {wanted} bytes, but {seen} are seen at its target path"
                );
                Ok(())
            },
        ),
        Case::must(
            "expand.online_keeps_data",
            spec::NODE_EXPAND,
            "growing a published volume keeps its data",
            &whole,
            |t| async move {
                online(&t)?;
                let (placed, target) = t.published("v").await?;
                data::write(&target, 1).await?;
                grown(&t, &placed, &target).await?;
                ensure!(
                    data::holds(&target, 1).await?,
                    "data that was written before the volume grew has changed"
                );
                data::write(&target, 2).await
            },
        ),
        Case::must(
            "expand.offline_is_seen",
            spec::CONTROLLER_EXPAND,
            "a volume that grew while unpublished shows its new size, and keeps its data",
            &whole,
            |t| async move {
                let (placed, target) = t.published("v").await?;
                data::write(&target, 1).await?;
                t.take_down(&placed, &target).await?;
                let wanted = placed.volume.capacity_bytes.max(t.size()) * 2;
                let reply = t
                    .call(expand(&t, &placed.id(), at_least(wanted)))
                    .await
                    .ok()?;
                let placed = t.staged(placed.volume, placed.capability).await?;
                t.call(placed.publish_request(&target)).await.ok()?;
                if reply.node_expansion_required {
                    t.call(node_expand(&placed, &target, wanted)).await.ok()?;
                }
                let seen = data::size_at(&target).await?;
                ensure!(
                    seen >= wanted / 10 * 7,
                    "the volume has {wanted} bytes, but {seen} are seen at its target path"
                );
                ensure!(
                    data::holds(&target, 1).await?,
                    "data that was written before the volume grew has changed"
                );
                Ok(())
            },
        ),
        Case::must(
            "expand.node_repeat_is_idempotent",
            spec::NODE_EXPAND,
            "NodeExpandVolume again succeeds",
            &[CREATE, EXPAND, node],
            |t| async move {
                online(&t)?;
                let (placed, target) = t.published("v").await?;
                grown(&t, &placed, &target).await?;
                let wanted = placed.volume.capacity_bytes.max(t.size()) * 2;
                for _ in 0..5 {
                    t.call(node_expand(&placed, &target, wanted))
                        .await
                        .ok_because("NodeExpandVolume is idempotent")?;
                }
                Ok(())
            },
        ),
        Case::must(
            "expand.node_without_growth",
            spec::NODE_EXPAND,
            "NodeExpandVolume on a volume that has its size already succeeds",
            &needs,
            |t| async move {
                let (placed, target) = t.published("v").await?;
                t.call(node_expand(&placed, &target, t.size()))
                    .await
                    .ok_because("the volume is large enough already")
                    .map(drop)
            },
        ),
        Case::must(
            "expand.node_without_range",
            spec::NODE_EXPAND,
            "NodeExpandVolume without capacity_range grows to the volume's size",
            &needs,
            |t| async move {
                let (placed, target) = t.published("v").await?;
                let request = proto::NodeExpandVolumeRequest {
                    capacity_range: None,
                    ..node_expand(&placed, &target, 0)
                };
                t.call(request)
                    .await
                    .ok_because("capacity_range is optional")
                    .map(drop)
            },
        ),
        Case::must(
            "expand.node_unknown_volume",
            spec::NODE_EXPAND,
            "NodeExpandVolume on an unknown volume is NOT_FOUND",
            &[node],
            |t| async move {
                let target = t.target("none")?;
                let request = proto::NodeExpandVolumeRequest {
                    volume_id: "orlop-conformance-none".into(),
                    volume_path: target,
                    ..Default::default()
                };
                t.call(request)
                    .await
                    .refused(Code::NotFound, "there is no such volume")
            },
        ),
        Case::must(
            "expand.node_wrong_path",
            spec::NODE_EXPAND,
            "NodeExpandVolume at a path where the volume is not is refused",
            &needs,
            |t| async move {
                let (placed, _) = t.published("v").await?;
                let elsewhere = t.target("elsewhere")?;
                let request = node_expand(&placed, &elsewhere, t.size());
                t.call(request).await.refused_with_any(
                    &[
                        Code::NotFound,
                        Code::InvalidArgument,
                        Code::FailedPrecondition,
                    ],
                    "the volume is not at this path",
                )
            },
        ),
        Case::must(
            "expand.node_at_the_staging_path",
            spec::NODE_EXPAND,
            "NodeExpandVolume takes the staging path too",
            &[CREATE, node, Need::Node(NodeCapability::StageUnstageVolume)],
            |t| async move {
                let placed = t.staged_volume("v").await?;
                let request = node_expand(&placed, &placed.staging, t.size());
                t.call(request)
                    .await
                    .ok_because("the volume is staged at this path")
                    .map(drop)
            },
        ),
    ]
}
