//! A volume appears at its target.

use std::path::Path;

use orlop_csi::client::NodeCapability;
use orlop_csi::proto;
use tonic::Code;

use crate::case::{Case, Need, ensure};
use crate::cases::CREATE;
use crate::make::io;
use crate::spec;

pub(super) fn cases() -> Vec<Case> {
    let stage = Need::Node(NodeCapability::StageUnstageVolume);
    vec![
        Case::must(
            "publish.works",
            spec::PUBLISH,
            "a volume is published, used, and taken down",
            &[CREATE],
            |t| async move {
                let (placed, target) = t.published("v").await?;
                ensure!(
                    Path::new(&target).exists(),
                    "NodePublishVolume succeeded, but nothing is at {target}"
                );
                crate::data::write(&target, 1).await?;
                ensure!(
                    crate::data::holds(&target, 1).await?,
                    "what was written to the volume can't be read back"
                );
                t.take_down(&placed, &target).await
            },
        ),
        Case::must(
            "publish.is_the_volume",
            spec::PUBLISH,
            "what is at the target path is the volume, not the folder that it is in",
            &[CREATE],
            |t| async move {
                let (placed, target) = t.published("v").await?;
                crate::data::write(&target, 1).await?;
                t.call(placed.unpublish_request(&target)).await.ok()?;
                ensure!(
                    !Path::new(&target).exists(),
                    "NodeUnpublishVolume left {target}"
                );
                t.call(placed.publish_request(&target)).await.ok()?;
                ensure!(
                    crate::data::holds(&target, 1).await?,
                    "data that was written at the target path is gone after publishing again: it never reached the volume"
                );
                Ok(())
            },
        ),
        Case::must(
            "publish.repeat_is_idempotent",
            spec::PUBLISH,
            "the same request again succeeds, and one unpublish undoes it",
            &[CREATE],
            |t| async move {
                let (placed, target) = t.published("v").await?;
                for _ in 0..10 {
                    t.call(placed.publish_request(&target))
                        .await
                        .ok_because("NodePublishVolume is idempotent")?;
                }
                t.call(placed.unpublish_request(&target)).await.ok()?;
                let table =
                    orlop_host::MountTable::read().map_err(io("could not read the mount table"))?;
                let left = table.beneath(Path::new(&target)).count();
                ensure!(
                    left == 0,
                    "one NodeUnpublishVolume left {left} mounts at the target path: NodePublishVolume was repeated and mounted again"
                );
                Ok(())
            },
        ),
        Case::must(
            "publish.repeat_keeps_the_data",
            spec::PUBLISH,
            "publishing again at the same path leaves the volume's data",
            &[CREATE],
            |t| async move {
                let (placed, target) = t.published("v").await?;
                crate::data::write(&target, 1).await?;
                t.call(placed.publish_request(&target)).await.ok()?;
                ensure!(
                    crate::data::holds(&target, 1).await?,
                    "data is gone after NodePublishVolume was repeated"
                );
                Ok(())
            },
        ),
        Case::must(
            "publish.target_may_exist",
            spec::PUBLISH,
            "a target folder that exists already is used",
            &[CREATE, Need::MountVolumes],
            |t| async move {
                if t.bench().settings.block {
                    return Err(crate::case::Trouble::Skip(
                        "test volumes are raw block ones".into(),
                    ));
                }
                let placed = t.staged_volume("v").await?;
                let target = t.target("v")?;
                std::fs::create_dir(&target).map_err(io("could not make the target folder"))?;
                t.call(placed.publish_request(&target))
                    .await
                    .ok_because("kubelets of some versions make the target folder themselves")?;
                crate::data::write(&target, 1).await
            },
        ),
        Case::must(
            "publish.unknown_volume",
            spec::PUBLISH,
            "an unknown volume is NOT_FOUND",
            &[CREATE],
            |t| async move {
                let placed = t.staged_volume("v").await?;
                let target = t.target("none")?;
                let request = proto::NodePublishVolumeRequest {
                    volume_id: "orlop-conformance-none".into(),
                    ..placed.publish_request(&target)
                };
                t.call(request)
                    .await
                    .refused(Code::NotFound, "there is no such volume")?;
                ensure!(
                    !Path::new(&target).exists(),
                    "a refused NodePublishVolume left {target}"
                );
                Ok(())
            },
        ),
        Case::must(
            "publish.without_staging_path",
            spec::PUBLISH,
            "a driver that stages refuses a request without staging_target_path with FAILED_PRECONDITION",
            &[CREATE, stage],
            |t| async move {
                let placed = t.staged_volume("v").await?;
                let target = t.target("v")?;
                let request = proto::NodePublishVolumeRequest {
                    staging_target_path: String::new(),
                    ..placed.publish_request(&target)
                };
                t.call(request).await.refused_with_any(
                    &[Code::FailedPrecondition, Code::InvalidArgument],
                    "the driver has STAGE_UNSTAGE_VOLUME, so staging_target_path must be set",
                )
            },
        ),
        Case::must(
            "publish.without_staging",
            spec::PUBLISH,
            "a volume that is not staged is refused",
            &[CREATE, stage],
            |t| async move {
                let volume = t.volume("v").await?;
                let placed = t.attached(volume, t.capability()).await?;
                let target = t.target("v")?;
                let answer = t.call(placed.publish_request(&target)).await;
                answer.refused_with_any(
                    &[
                        Code::FailedPrecondition,
                        Code::NotFound,
                        Code::InvalidArgument,
                    ],
                    "NodeStageVolume was not called before",
                )?;
                ensure!(
                    !Path::new(&target).exists(),
                    "a refused NodePublishVolume left {target}"
                );
                Ok(())
            },
        ),
        Case::must(
            "publish.after_unstage",
            spec::PUBLISH,
            "a volume that was unstaged is refused",
            &[CREATE, stage],
            |t| async move {
                let placed = t.staged_volume("v").await?;
                t.call(placed.unstage_request()).await.ok()?;
                let target = t.target("v")?;
                let answer = t.call(placed.publish_request(&target)).await;
                answer.refused_with_any(
                    &[
                        Code::FailedPrecondition,
                        Code::NotFound,
                        Code::InvalidArgument,
                    ],
                    "the volume is no longer staged",
                )
            },
        ),
        Case::must(
            "publish.two_volumes",
            spec::PUBLISH,
            "two volumes at two paths hold their own data",
            &[CREATE],
            |t| async move {
                let (_, one) = t.published("a").await?;
                let (_, two) = t.published("b").await?;
                crate::data::write(&one, 1).await?;
                crate::data::write(&two, 2).await?;
                ensure!(
                    !crate::data::holds(&two, 1).await? && !crate::data::holds(&one, 2).await?,
                    "what was written to one volume is in the other"
                );
                Ok(())
            },
        ),
        Case::must(
            "publish.new_volume_is_empty",
            spec::PUBLISH,
            "a new volume holds nothing of an older one",
            &[CREATE],
            |t| async move {
                let (placed, target) = t.published("old").await?;
                crate::data::write(&target, 1).await?;
                t.take_down(&placed, &target).await?;
                t.call(t.delete_request(&placed.id())).await.ok()?;
                let (_, target) = t.published("new").await?;
                ensure!(
                    !crate::data::holds(&target, 1).await?,
                    "a new volume shows the data of a deleted one"
                );
                Ok(())
            },
        ),
    ]
}
