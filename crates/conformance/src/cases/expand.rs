//! Growing, at the controller and on the node.

use orlop_csi::client::{ControllerCapability as Can, NodeCapability};
use orlop_csi::proto;
use tonic::Code;

use super::CREATE;
use crate::case::{Case, Need, Outcome, Trouble, ensure};
use crate::data;
use crate::make::{Placed, at_least, exactly};
use crate::spec;
use crate::trial::Trial;

const EXPAND: Need = Need::Controller(Can::ExpandVolume);

fn expand(
    t: &Trial,
    volume_id: &str,
    range: proto::CapacityRange,
) -> proto::ControllerExpandVolumeRequest {
    proto::ControllerExpandVolumeRequest {
        volume_id: volume_id.to_owned(),
        capacity_range: Some(range),
        volume_capability: Some(t.capability()),
        ..Default::default()
    }
}

fn node_expand(placed: &Placed, target: &str, bytes: i64) -> proto::NodeExpandVolumeRequest {
    proto::NodeExpandVolumeRequest {
        volume_id: placed.id(),
        volume_path: target.to_owned(),
        capacity_range: Some(at_least(bytes)),
        staging_target_path: placed.staging.clone(),
        volume_capability: Some(placed.capability.clone()),
        ..Default::default()
    }
}

pub(super) fn cases() -> Vec<Case> {
    [controller(), node()].concat()
}

fn controller() -> Vec<Case> {
    let needs = [CREATE, EXPAND];
    vec![
        Case::must(
            "expand.works",
            spec::CONTROLLER_EXPAND,
            "a volume grows to at least what is required",
            &needs,
            |t| async move {
                let volume = t.volume("v").await?;
                let wanted = volume.capacity_bytes.max(t.size()) * 2;
                let reply = t
                    .call(expand(&t, &volume.volume_id, at_least(wanted)))
                    .await
                    .ok()?;
                ensure!(
                    reply.capacity_bytes >= wanted,
                    "{wanted} bytes are required, capacity_bytes is {}",
                    reply.capacity_bytes
                );
                Ok(())
            },
        ),
        Case::must(
            "expand.keeps_to_the_limit",
            spec::CONTROLLER_EXPAND,
            "a volume grows to at most limit_bytes",
            &needs,
            |t| async move {
                let volume = t.volume("v").await?;
                let wanted = volume.capacity_bytes.max(t.size()) * 2;
                let reply = t
                    .call(expand(&t, &volume.volume_id, exactly(wanted)))
                    .await
                    .ok()?;
                ensure!(
                    reply.capacity_bytes == wanted,
                    "exactly {wanted} bytes were asked for, capacity_bytes is {}",
                    reply.capacity_bytes
                );
                Ok(())
            },
        ),
        Case::must(
            "expand.repeat_is_idempotent",
            spec::CONTROLLER_EXPAND,
            "the same request again succeeds with the same size",
            &needs,
            |t| async move {
                let volume = t.volume("v").await?;
                let wanted = volume.capacity_bytes.max(t.size()) * 2;
                let first = t
                    .call(expand(&t, &volume.volume_id, at_least(wanted)))
                    .await
                    .ok()?;
                for _ in 0..5 {
                    let again = t
                        .call(expand(&t, &volume.volume_id, at_least(wanted)))
                        .await
                        .ok_because("ControllerExpandVolume is idempotent")?;
                    ensure!(
                        again.capacity_bytes == first.capacity_bytes,
                        "capacity_bytes was {}, and {} when repeated",
                        first.capacity_bytes,
                        again.capacity_bytes
                    );
                }
                Ok(())
            },
        ),
        Case::must(
            "expand.smaller_is_fine",
            spec::CONTROLLER_EXPAND,
            "a volume that is large enough already stays, and doesn't shrink",
            &needs,
            |t| async move {
                let volume = t.volume("v").await?;
                let has = volume.capacity_bytes.max(t.size());
                let reply = t
                    .call(expand(&t, &volume.volume_id, at_least(has / 2)))
                    .await
                    .ok_because("the volume is large enough already")?;
                ensure!(
                    reply.capacity_bytes >= has,
                    "the volume had {has} bytes and has {} after being asked for {}: volumes never shrink",
                    reply.capacity_bytes,
                    has / 2
                );
                Ok(())
            },
        ),
        Case::must(
            "expand.limit_below_size_is_refused",
            spec::CONTROLLER_EXPAND,
            "a limit below the volume's size is OUT_OF_RANGE, never a smaller volume",
            &needs,
            |t| async move {
                let volume = t.volume("v").await?;
                let has = volume.capacity_bytes.max(t.size());
                let request = expand(&t, &volume.volume_id, exactly(has / 2));
                t.call(request).await.refused_with_any(
                    &[Code::OutOfRange, Code::InvalidArgument],
                    "the volume is larger than limit_bytes",
                )
            },
        ),
        Case::must(
            "expand.unknown_volume",
            spec::CONTROLLER_EXPAND,
            "an unknown volume is NOT_FOUND",
            &needs,
            |t| async move {
                t.call(expand(&t, "orlop-conformance-none", at_least(t.size() * 2)))
                    .await
                    .refused(Code::NotFound, "there is no such volume")
            },
        ),
        Case::must(
            "expand.deleted_volume",
            spec::CONTROLLER_EXPAND,
            "a deleted volume is NOT_FOUND",
            &needs,
            |t| async move {
                let volume = t.volume("v").await?;
                t.call(t.delete_request(&volume.volume_id)).await.ok()?;
                t.call(expand(&t, &volume.volume_id, at_least(t.size() * 2)))
                    .await
                    .refused(Code::NotFound, "the volume was deleted")
            },
        ),
        Case::must(
            "expand.limit_below_required",
            spec::CONTROLLER_EXPAND,
            "limit_bytes below required_bytes is refused",
            &needs,
            |t| async move {
                let volume = t.volume("v").await?;
                let range = proto::CapacityRange {
                    required_bytes: t.size() * 4,
                    limit_bytes: t.size() * 2,
                };
                t.call(expand(&t, &volume.volume_id, range))
                    .await
                    .refused_with_any(
                        &[Code::InvalidArgument, Code::OutOfRange],
                        "no size fits this range",
                    )
            },
        ),
        Case::must(
            "expand.negative",
            spec::CONTROLLER_EXPAND,
            "a negative size is refused",
            &needs,
            |t| async move {
                let volume = t.volume("v").await?;
                t.call(expand(&t, &volume.volume_id, at_least(-1)))
                    .await
                    .refused_with_any(
                        &[Code::InvalidArgument, Code::OutOfRange],
                        "sizes are not negative",
                    )
            },
        ),
        Case::must(
            "expand.more_than_there_is",
            spec::CONTROLLER_EXPAND,
            "2^62 bytes are refused with OUT_OF_RANGE or RESOURCE_EXHAUSTED, and the volume stays",
            &needs,
            |t| async move {
                let request = t.create_request("v");
                let before = t.create(request.clone()).await?;
                t.call(expand(&t, &before.volume_id, at_least(1 << 62)))
                    .await
                    .refused_with_any(
                        &[Code::OutOfRange, Code::ResourceExhausted],
                        "no storage is that large",
                    )?;
                let after = t.create(request).await?;
                ensure!(
                    after == before,
                    "the volume was {before:?}, and {after:?} after a refused expansion"
                );
                Ok(())
            },
        ),
        Case::must(
            "expand.is_listed",
            spec::LIST_VOLUMES,
            "the list tells the new size",
            &[CREATE, EXPAND, Need::Controller(Can::ListVolumes)],
            |t| async move {
                let volume = t.volume("v").await?;
                let wanted = volume.capacity_bytes.max(t.size()) * 2;
                let reply = t
                    .call(expand(&t, &volume.volume_id, at_least(wanted)))
                    .await
                    .ok()?;
                let listed = super::volumes_listed(&t).await?;
                let told = listed
                    .iter()
                    .find(|entry| entry.volume_id == volume.volume_id)
                    .map_or(0, |entry| entry.capacity_bytes);
                ensure!(
                    told == reply.capacity_bytes || told == 0,
                    "the volume has {} bytes, ListVolumes tells {told}",
                    reply.capacity_bytes
                );
                Ok(())
            },
        ),
        Case::must(
            "expand.offline_only_in_use",
            spec::CONTROLLER_EXPAND,
            "a driver that grows OFFLINE only refuses a published volume with FAILED_PRECONDITION",
            &[CREATE, EXPAND, Need::OfflineExpansionOnly],
            |t| async move {
                let (placed, _) = t.published("v").await?;
                t.call(expand(&t, &placed.id(), at_least(t.size() * 2)))
                    .await
                    .refused(
                        Code::FailedPrecondition,
                        "the volume is published, and the driver grows volumes OFFLINE only",
                    )
            },
        ),
    ]
}

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

fn node() -> Vec<Case> {
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
