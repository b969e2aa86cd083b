//! Raw block volumes.

use std::os::unix::fs::FileTypeExt as _;
use std::path::Path;

use orlop_csi::client::NodeCapability;
use orlop_csi::proto;
use proto::volume_capability::access_mode::Mode;

use super::CREATE;
use crate::case::{Case, Need, Trouble, ensure};
use crate::data;
use crate::make::{Placed, block_capability};
use crate::spec;
use crate::trial::Trial;

async fn published(t: &Trial) -> Result<(Placed, String), Trouble> {
    let placed = t
        .staged_with("v", block_capability(Mode::SingleNodeWriter))
        .await?;
    let target = t.target("v")?;
    t.call(placed.publish_request(&target)).await.ok()?;
    Ok((placed, target))
}

pub(super) fn cases() -> Vec<Case> {
    let needs = [CREATE, Need::BlockVolumes];
    vec![
        Case::must(
            "block.works",
            spec::PUBLISH,
            "a raw block volume is published as a file or device, not a folder",
            &needs,
            |t| async move {
                let (_, target) = published(&t).await?;
                let metadata = std::fs::metadata(&target)
                    .map_err(crate::make::io("nothing is at the target path"))?;
                ensure!(
                    !metadata.is_dir(),
                    "a raw block volume is a folder at {target}"
                );
                if !metadata.file_type().is_block_device() {
                    t.warn("the target of a raw block volume is no block device");
                }
                Ok(())
            },
        ),
        Case::must(
            "block.has_its_size",
            spec::PUBLISH,
            "a raw block volume has at least its capacity",
            &needs,
            |t| async move {
                let (placed, target) = published(&t).await?;
                let seen = data::size_at(&target).await?;
                let promised = placed.volume.capacity_bytes.max(t.size());
                ensure!(
                    seen >= promised,
                    "the volume has {promised} bytes, its device {seen}"
                );
                Ok(())
            },
        ),
        Case::must(
            "block.keeps_data",
            spec::PUBLISH,
            "a raw block volume keeps its data",
            &needs,
            |t| async move {
                let (placed, target) = published(&t).await?;
                data::write(&target, 1).await?;
                data::write(&target, 3).await?;
                t.take_down(&placed, &target).await?;
                let placed = t.staged(placed.volume, placed.capability).await?;
                t.call(placed.publish_request(&target)).await.ok()?;
                for seed in [1, 3] {
                    ensure!(
                        data::holds(&target, seed).await?,
                        "data is gone after unpublish, unstage, stage and publish"
                    );
                }
                Ok(())
            },
        ),
        Case::must(
            "block.starts_empty",
            spec::PUBLISH,
            "a new raw block volume shows nothing of others",
            &needs,
            |t| async move {
                let (placed, target) = published(&t).await?;
                data::write(&target, 1).await?;
                t.take_down(&placed, &target).await?;
                t.call(t.delete_request(&placed.id())).await.ok()?;
                let placed = t
                    .staged_with("new", block_capability(Mode::SingleNodeWriter))
                    .await?;
                let target = t.target("new")?;
                t.call(placed.publish_request(&target)).await.ok()?;
                ensure!(
                    !data::holds(&target, 1).await?,
                    "a new raw block volume shows the data of a deleted one"
                );
                Ok(())
            },
        ),
        Case::must(
            "block.undone_removes_the_target",
            spec::UNPUBLISH,
            "NodeUnpublishVolume removes the target of a raw block volume",
            &needs,
            |t| async move {
                let (placed, target) = published(&t).await?;
                t.call(placed.unpublish_request(&target)).await.ok()?;
                ensure!(
                    Path::new(&target).symlink_metadata().is_err(),
                    "NodeUnpublishVolume succeeded, but {target} is still there"
                );
                Ok(())
            },
        ),
        Case::must(
            "block.repeat_is_idempotent",
            spec::PUBLISH,
            "stage and publish of a raw block volume can be repeated",
            &needs,
            |t| async move {
                let (placed, target) = published(&t).await?;
                for _ in 0..5 {
                    if t.stages() {
                        t.call(placed.stage_request()).await.ok()?;
                    }
                    t.call(placed.publish_request(&target)).await.ok()?;
                }
                t.take_down(&placed, &target).await
            },
        ),
        Case::must(
            "block.stats",
            spec::STATS,
            "NodeGetVolumeStats of a raw block volume tells its total bytes",
            &[
                CREATE,
                Need::BlockVolumes,
                Need::Node(NodeCapability::GetVolumeStats),
            ],
            |t| async move {
                let (placed, target) = published(&t).await?;
                let request = proto::NodeGetVolumeStatsRequest {
                    volume_id: placed.id(),
                    volume_path: target,
                    staging_target_path: placed.staging.clone(),
                };
                let reply = t.call(request).await.ok()?;
                let total = reply
                    .usage
                    .iter()
                    .find(|usage| usage.unit() == proto::volume_usage::Unit::Bytes)
                    .map_or(0, |usage| usage.total);
                ensure!(
                    total >= placed.volume.capacity_bytes,
                    "the volume has {} bytes, its stats tell {total}",
                    placed.volume.capacity_bytes
                );
                Ok(())
            },
        ),
        Case::must(
            "block.two_volumes",
            spec::PUBLISH,
            "two raw block volumes hold their own data",
            &needs,
            |t| async move {
                let (_, one) = published(&t).await?;
                let placed = t
                    .staged_with("w", block_capability(Mode::SingleNodeWriter))
                    .await?;
                let two = t.target("w")?;
                t.call(placed.publish_request(&two)).await.ok()?;
                data::write(&one, 1).await?;
                ensure!(
                    !data::holds(&two, 1).await?,
                    "what was written to one raw block volume is in the other"
                );
                Ok(())
            },
        ),
    ]
}
