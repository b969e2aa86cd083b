//! A volume is taken away from its target.

use std::path::Path;

use orlop_csi::proto;
use tonic::Code;

use crate::case::{Case, ensure};
use crate::cases::CREATE;
use crate::make::io;
use crate::spec;

pub(super) fn cases() -> Vec<Case> {
    vec![
        Case::must(
            "publish.undone_removes_the_target",
            spec::UNPUBLISH,
            "NodeUnpublishVolume removes the target path",
            &[CREATE],
            |t| async move {
                let (placed, target) = t.published("v").await?;
                t.call(placed.unpublish_request(&target)).await.ok()?;
                ensure!(
                    Path::new(&target).symlink_metadata().is_err(),
                    "NodeUnpublishVolume succeeded, but {target} is still there"
                );
                let parent = Path::new(&target).parent().is_some_and(Path::exists);
                ensure!(
                    parent,
                    "NodeUnpublishVolume removed the target's parent, which is the orchestrator's"
                );
                Ok(())
            },
        ),
        Case::must(
            "publish.undone_twice",
            spec::UNPUBLISH,
            "unpublishing again succeeds",
            &[CREATE],
            |t| async move {
                let (placed, target) = t.published("v").await?;
                for _ in 0..10 {
                    t.call(placed.unpublish_request(&target))
                        .await
                        .ok_because("NodeUnpublishVolume is idempotent")?;
                }
                Ok(())
            },
        ),
        Case::must(
            "publish.undone_without_being_done",
            spec::UNPUBLISH,
            "unpublishing a volume that is not published succeeds",
            &[CREATE],
            |t| async move {
                let placed = t.staged_volume("v").await?;
                let target = t.target("v")?;
                t.call(placed.unpublish_request(&target))
                    .await
                    .ok_because("the volume is not published there")
                    .map(drop)
            },
        ),
        Case::must(
            "publish.undone_for_unknown_volume",
            spec::UNPUBLISH,
            "unpublishing an unknown volume succeeds or is NOT_FOUND",
            &[],
            |t| async move {
                let request = proto::NodeUnpublishVolumeRequest {
                    volume_id: "orlop-conformance-none".into(),
                    target_path: t.target("none")?,
                };
                t.call(request)
                    .await
                    .ok_or_any(&[Code::NotFound], "there is no such volume")
                    .map(drop)
            },
        ),
        Case::must(
            "publish.undone_where_a_folder_is",
            spec::UNPUBLISH,
            "unpublishing where an empty folder is succeeds",
            &[CREATE],
            |t| async move {
                let placed = t.staged_volume("v").await?;
                let target = t.target("v")?;
                std::fs::create_dir(&target).map_err(io("could not make the target folder"))?;
                t.call(placed.unpublish_request(&target))
                    .await
                    .ok_because("a crash may leave the folder without a mount")
                    .map(drop)
            },
        ),
        Case::must(
            "publish.undone_where_a_file_is",
            spec::UNPUBLISH,
            "unpublishing where an empty file is succeeds",
            &[CREATE],
            |t| async move {
                let placed = t.staged_volume("v").await?;
                let target = t.target("v")?;
                std::fs::write(&target, "").map_err(io("could not make the target file"))?;
                t.call(placed.unpublish_request(&target))
                    .await
                    .ok_because("a crash may leave the file without a mount")
                    .map(drop)
            },
        ),
        Case::must(
            "publish.undone_keeps_foreign_files",
            spec::UNPUBLISH,
            "unpublishing never deletes files that are in a plain folder at the path",
            &[CREATE],
            |t| async move {
                let placed = t.staged_volume("v").await?;
                let target = t.target("v")?;
                std::fs::create_dir(&target).map_err(io("could not make the target folder"))?;
                let file = Path::new(&target).join("precious");
                std::fs::write(&file, "data").map_err(io("could not write a file"))?;
                let answer = t.call(placed.unpublish_request(&target)).await;
                if std::fs::read(&file).is_ok_and(|data| data == b"data") {
                    return Ok(());
                }
                t.warn(format!("NodeUnpublishVolume (answered with {}) deleted a file in a folder where nothing was mounted: after a lost mount that is a user's data", answer.words()));
                Ok(())
            },
        ),
        Case::must(
            "publish.undone_keeps_the_data",
            spec::UNPUBLISH,
            "unpublishing leaves the volume's data",
            &[CREATE],
            |t| async move {
                let (placed, target) = t.published("v").await?;
                crate::data::write(&target, 1).await?;
                t.take_down(&placed, &target).await?;
                let placed = t.staged(placed.volume, placed.capability).await?;
                t.call(placed.publish_request(&target)).await.ok()?;
                ensure!(
                    crate::data::holds(&target, 1).await?,
                    "data is gone after unpublish, unstage, stage and publish"
                );
                Ok(())
            },
        ),
        Case::must(
            "publish.undone_at_one_path_leaves_the_other",
            spec::UNPUBLISH,
            "unpublishing one volume leaves another one",
            &[CREATE],
            |t| async move {
                let (first, one) = t.published("a").await?;
                let (_, two) = t.published("b").await?;
                crate::data::write(&two, 2).await?;
                t.call(first.unpublish_request(&one)).await.ok()?;
                ensure!(
                    crate::data::holds(&two, 2).await?,
                    "unpublishing one volume took another one's data away"
                );
                Ok(())
            },
        ),
        Case::must(
            "publish.undone_with_wrong_volume",
            spec::UNPUBLISH,
            "another volume's id never takes a volume from its path",
            &[CREATE],
            |t| async move {
                let (_, target) = t.published("a").await?;
                crate::data::write(&target, 1).await?;
                let other = t.volume("b").await?;
                let request = proto::NodeUnpublishVolumeRequest {
                    volume_id: other.volume_id,
                    target_path: target.clone(),
                };
                let answer = t.call(request).await;
                if !Path::new(&target).exists() || !crate::data::holds(&target, 1).await? {
                    t.warn(format!("NodeUnpublishVolume with another volume's id was answered with {} and took the volume away", answer.words()));
                }
                Ok(())
            },
        ),
    ]
}
