//! The same call to the node, many times at once.

use orlop_csi::client::NodeCapability;
use orlop_csi::proto;

use super::{nothing_mounted, storm};
use crate::case::{Case, Need, ensure};
use crate::cases::CREATE;
use crate::spec;

pub(super) fn cases(callers: usize) -> Vec<Case> {
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
