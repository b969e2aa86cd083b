//! What is in the way and belongs to others.

use std::path::Path;

use orlop_csi::proto;

use super::{Bystander, STAGE};
use crate::case::{Case, ensure};
use crate::cases::CREATE;
use crate::make::io;
use crate::spec;

pub(super) fn cases() -> Vec<Case> {
    vec![
        Case::must(
            "paths.unpublish_keeps_foreign_files",
            spec::UNPUBLISH,
            "NodeUnpublishVolume of a path with files that it never published removes none of them",
            &[CREATE],
            |t| async move {
                let kept = Bystander::make(&t)?;
                let placed = t.staged_volume("v").await?;
                let target = kept.folder.to_string_lossy().into_owned();
                t.call(placed.unpublish_request(&target)).await;
                kept.untouched()
            },
        ),
        Case::must(
            "paths.unstage_keeps_foreign_files",
            spec::UNSTAGE,
            "NodeUnstageVolume of a path with files that it never staged removes none of them",
            &[CREATE, STAGE],
            |t| async move {
                let kept = Bystander::make(&t)?;
                let volume = t.volume("v").await?;
                let request = proto::NodeUnstageVolumeRequest {
                    volume_id: volume.volume_id,
                    staging_target_path: kept.folder.to_string_lossy().into_owned(),
                };
                t.call(request).await;
                kept.untouched()
            },
        ),
        Case::must(
            "paths.unstage_keeps_what_is_beside_it",
            spec::UNSTAGE,
            "NodeUnstageVolume touches nothing beside the staging path",
            &[CREATE, STAGE],
            |t| async move {
                let placed = t.staged_volume("v").await?;
                let beside = Path::new(&placed.staging).with_file_name("vol_data.json");
                std::fs::write(&beside, "{}").map_err(io("could not write beside the path"))?;
                t.unplace(&placed).await?;
                ensure!(
                    beside.exists(),
                    "{} lay beside the staging path and is gone after NodeUnstageVolume",
                    beside.display()
                );
                std::fs::remove_file(beside).map_err(io("could not remove a file"))
            },
        ),
        Case::must(
            "paths.unpublish_keeps_what_is_beside_it",
            spec::UNPUBLISH,
            "NodeUnpublishVolume touches nothing beside the target path",
            &[CREATE],
            |t| async move {
                let (placed, target) = t.published("v").await?;
                let beside = Path::new(&target).with_file_name("vol_data.json");
                std::fs::write(&beside, "{}").map_err(io("could not write beside the path"))?;
                t.take_down(&placed, &target).await?;
                ensure!(
                    beside.exists(),
                    "{} lay beside the target path and is gone after NodeUnpublishVolume",
                    beside.display()
                );
                std::fs::remove_file(beside).map_err(io("could not remove a file"))
            },
        ),
    ]
}
