//! `NodeGetVolumeStats`.

use orlop_csi::client::NodeCapability;
use orlop_csi::proto;
use proto::volume_usage::Unit;
use tonic::Code;

use super::CREATE;
use crate::case::{Case, Need, Trouble, ensure};
use crate::make::Placed;
use crate::spec;

fn stats(placed: &Placed, path: &str) -> proto::NodeGetVolumeStatsRequest {
    proto::NodeGetVolumeStatsRequest {
        volume_id: placed.id(),
        volume_path: path.to_owned(),
        staging_target_path: placed.staging.clone(),
    }
}

pub(super) fn cases() -> Vec<Case> {
    let stat = Need::Node(NodeCapability::GetVolumeStats);
    let needs = [CREATE, stat];
    vec![
        Case::must(
            "stats.works",
            spec::STATS,
            "a published volume's usage in bytes is told",
            &needs,
            |t| async move {
                let (placed, target) = t.published("v").await?;
                let reply = t.call(stats(&placed, &target)).await.ok()?;
                let bytes = reply.usage.iter().find(|usage| usage.unit() == Unit::Bytes);
                let Some(bytes) = bytes else {
                    ensure!(false, "usage has no entry in BYTES: {:?}", reply.usage);
                    return Ok(());
                };
                ensure!(
                    bytes.total > 0,
                    "total is {}, which is required",
                    bytes.total
                );
                ensure!(
                    bytes.used <= bytes.total && bytes.available <= bytes.total,
                    "used {} or available {} is over total {}",
                    bytes.used,
                    bytes.available,
                    bytes.total
                );
                Ok(())
            },
        ),
        Case::must(
            "stats.total_is_the_volumes",
            spec::STATS,
            "the total is the volume's, not its host's",
            &needs,
            |t| async move {
                let (placed, target) = t.published("v").await?;
                let reply = t.call(stats(&placed, &target)).await.ok()?;
                let total = reply
                    .usage
                    .iter()
                    .find(|usage| usage.unit() == Unit::Bytes)
                    .map_or(0, |usage| usage.total);
                let promised = placed.volume.capacity_bytes.max(t.size());
                if total > promised * 2 {
                    t.warn(format!(
                        "the volume has {promised} bytes, its stats tell a total of {total}"
                    ));
                }
                Ok(())
            },
        ),
        Case::must(
            "stats.used_grows",
            spec::STATS,
            "used grows when data is written",
            &[CREATE, stat, Need::MountVolumes],
            |t| async move {
                if t.bench().settings.block {
                    return Err(Trouble::Skip("test volumes are raw block ones".into()));
                }
                let (placed, target) = t.published("v").await?;
                let used = async || {
                    let reply = t.call(stats(&placed, &target)).await.ok()?;
                    Ok::<_, Trouble>(
                        reply
                            .usage
                            .iter()
                            .find(|usage| usage.unit() == Unit::Bytes)
                            .map_or(0, |usage| usage.used),
                    )
                };
                let before = used().await?;
                for seed in 0..16 {
                    crate::data::write(&target, seed).await?;
                }
                crate::data::settle(&target).await?;
                let after = used().await?;
                if after <= before {
                    t.warn(format!(
                        "1 MiB was written, but used went from {before} to {after}"
                    ));
                }
                Ok(())
            },
        ),
        Case::must(
            "stats.unknown_volume",
            spec::STATS,
            "an unknown volume is NOT_FOUND",
            &[stat],
            |t| async move {
                let request = proto::NodeGetVolumeStatsRequest {
                    volume_id: "orlop-conformance-none".into(),
                    volume_path: t.target("none")?,
                    ..Default::default()
                };
                t.call(request)
                    .await
                    .refused(Code::NotFound, "there is no such volume")
            },
        ),
        Case::must(
            "stats.wrong_path",
            spec::STATS,
            "a path where the volume is not is NOT_FOUND",
            &needs,
            |t| async move {
                let (placed, _) = t.published("v").await?;
                let elsewhere = t.target("elsewhere")?;
                t.call(stats(&placed, &elsewhere))
                    .await
                    .refused(Code::NotFound, "the volume is not at this path")
            },
        ),
        Case::must(
            "stats.after_unpublish",
            spec::STATS,
            "an unpublished volume is NOT_FOUND at its path",
            &needs,
            |t| async move {
                let (placed, target) = t.published("v").await?;
                t.call(placed.unpublish_request(&target)).await.ok()?;
                t.call(stats(&placed, &target))
                    .await
                    .refused(Code::NotFound, "the volume is no longer at this path")
            },
        ),
        Case::must(
            "stats.at_the_staging_path",
            spec::STATS,
            "the staging path is taken too",
            &[CREATE, stat, Need::Node(NodeCapability::StageUnstageVolume)],
            |t| async move {
                let placed = t.staged_volume("v").await?;
                t.call(stats(&placed, &placed.staging))
                    .await
                    .ok_or_any(&[Code::NotFound], "the path may be another one")
                    .map(drop)
            },
        ),
        Case::must(
            "stats.tell_the_condition",
            spec::STATS,
            "a driver with VOLUME_CONDITION tells a volume's condition, which is normal",
            &[CREATE, stat, Need::Node(NodeCapability::VolumeCondition)],
            |t| async move {
                let (placed, target) = t.published("v").await?;
                let reply = t.call(stats(&placed, &target)).await.ok()?;
                let Some(condition) = reply.volume_condition else {
                    ensure!(
                        false,
                        "VOLUME_CONDITION is announced, but the reply has no volume_condition"
                    );
                    return Ok(());
                };
                ensure!(
                    !condition.abnormal,
                    "a published volume is abnormal: {}",
                    condition.message
                );
                Ok(())
            },
        ),
    ]
}
