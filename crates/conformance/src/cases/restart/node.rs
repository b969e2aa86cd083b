//! What is mounted outlives the driver.

use orlop_csi::client::NodeCapability;
use orlop_csi::proto;
use orlop_host::Occupant;
use tonic::Code;

use super::{RESTART, at, layers, restart};
use crate::case::{Case, Need, ensure};
use crate::cases::CREATE;
use crate::spec;

pub(super) fn cases() -> Vec<Case> {
    vec![
        Case::must(
            "restart.unpublish_undoes_an_earlier_publish",
            spec::UNPUBLISH,
            "after a restart, a volume can be unpublished and unstaged, and nothing stays",
            &[CREATE, RESTART],
            |t| async move {
                let (placed, target) = t.published("v").await?;
                restart(&t).await?;
                t.take_down(&placed, &target).await?;
                ensure!(
                    at(&target)? == Occupant::Absent,
                    "{target} was published before the restart; NodeUnpublishVolume after it was OK and left {:?}",
                    at(&target)?
                );
                ensure!(
                    placed.staging.is_empty() || layers(&placed.staging)? == 0,
                    "{} was staged before the restart; NodeUnstageVolume after it was OK and left a mount",
                    placed.staging
                );
                Ok(())
            },
        ),
        Case::must(
            "restart.publish_finds_an_earlier_publish",
            spec::PUBLISH,
            "after a restart, a repeated NodePublishVolume is OK and mounts nothing twice",
            &[CREATE, RESTART],
            |t| async move {
                let (placed, target) = t.published("v").await?;
                let before = layers(&target)?;
                restart(&t).await?;
                t.call(placed.publish_request(&target)).await.ok()?;
                let after = layers(&target)?;
                ensure!(
                    before == after,
                    "{target} had {before} mounts before the restart and {after} after a repeated NodePublishVolume"
                );
                t.take_down(&placed, &target).await
            },
        ),
        Case::must(
            "restart.stage_finds_an_earlier_stage",
            spec::STAGE,
            "after a restart, a repeated NodeStageVolume is OK and mounts nothing twice",
            &[
                CREATE,
                Need::Node(NodeCapability::StageUnstageVolume),
                RESTART,
            ],
            |t| async move {
                let placed = t.staged_volume("v").await?;
                let before = layers(&placed.staging)?;
                restart(&t).await?;
                t.call(placed.stage_request()).await.ok()?;
                let after = layers(&placed.staging)?;
                ensure!(
                    before == after,
                    "{} had {before} mounts before the restart and {after} after a repeated NodeStageVolume",
                    placed.staging
                );
                t.unplace(&placed).await
            },
        ),
        Case::must(
            "restart.files_survive",
            spec::PUBLISH,
            "a restart changes nothing in a published volume, and files are there when published anew",
            &[CREATE, Need::MountVolumes, RESTART],
            |t| async move {
                use proto::volume_capability::access_mode::Mode;
                let capability = crate::make::mount_capability(
                    Mode::SingleNodeWriter,
                    &t.bench().settings.fs_type,
                );
                let placed = t.staged_with("v", capability).await?;
                let target = t.target("v")?;
                t.call(placed.publish_request(&target)).await.ok()?;
                let file = std::path::Path::new(&target).join("kept");
                std::fs::write(&file, b"before").map_err(crate::make::io(
                    "could not write a file in the published volume",
                ))?;
                restart(&t).await?;
                let read = |when: &str| {
                    let found = std::fs::read(&file);
                    ensure!(
                        found.as_ref().is_ok_and(|bytes| bytes == b"before"),
                        "a file written before the restart reads as {found:?} {when}"
                    );
                    Ok(())
                };
                read("after it")?;
                t.call(placed.unpublish_request(&target)).await.ok()?;
                t.call(placed.publish_request(&target)).await.ok()?;
                read("after it and another NodePublishVolume")
            },
        ),
        Case::must(
            "restart.use_is_known",
            spec::DELETE_VOLUME,
            "after a restart, a volume in use is still not deleted",
            &[CREATE, RESTART],
            |t| async move {
                let (placed, target) = t.published("v").await?;
                restart(&t).await?;
                let answer = t.call(t.delete_request(&placed.id())).await;
                answer.refused(Code::FailedPrecondition, "the volume is published")?;
                t.take_down(&placed, &target).await
            },
        ),
    ]
}
