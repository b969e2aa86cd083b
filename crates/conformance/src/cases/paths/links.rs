//! Links on the way, and in the place of a path.

use std::os::unix::fs::symlink;
use std::path::Path;

use orlop_csi::proto;
use orlop_host::MountTable;

use super::{Bystander, STAGE};
use crate::case::{Case, Need, Outcome, Trouble, ensure};
use crate::cases::CREATE;
use crate::make::io;
use crate::spec;
use crate::trial::Trial;

pub(super) fn cases() -> Vec<Case> {
    vec![
        Case::must(
            "paths.stage_follows_no_link",
            spec::SECURITY,
            "NodeStageVolume does not follow a symlink at the staging path",
            &[CREATE, STAGE],
            |t| async move {
                let kept = Bystander::make(&t)?;
                let volume = t.volume("v").await?;
                let mut placed = t.attached(volume, t.capability()).await?;
                // Not the folder itself: one with files may be refused for its files.
                placed.staging = link_to_empty(&t, &kept)?;
                t.call(placed.stage_request()).await;
                empty_is_unmounted(&kept)
            },
        ),
        Case::must(
            "paths.publish_follows_no_link",
            spec::SECURITY,
            "NodePublishVolume does not follow a symlink at the target path",
            &[CREATE],
            |t| async move {
                let kept = Bystander::make(&t)?;
                let placed = t.staged_volume("v").await?;
                let target = link_to_empty(&t, &kept)?;
                t.call(placed.publish_request(&target)).await;
                empty_is_unmounted(&kept)
            },
        ),
        Case::must(
            "paths.unpublish_follows_no_link",
            spec::SECURITY,
            "NodeUnpublishVolume does not follow a symlink at the target path",
            &[CREATE],
            |t| async move {
                let kept = Bystander::make(&t)?;
                let placed = t.staged_volume("v").await?;
                let target = t.target("v")?;
                symlink(&kept.folder, &target).map_err(io("could not make a symlink"))?;
                t.call(placed.unpublish_request(&target)).await;
                kept.untouched()
            },
        ),
        Case::must(
            "paths.links_in_a_volume_are_not_followed",
            spec::SECURITY,
            "a symlink in a volume that leads out is not followed when the volume is deleted",
            &[CREATE, Need::MountVolumes],
            |t| async move {
                use proto::volume_capability::access_mode::Mode;
                let kept = Bystander::make(&t)?;
                let capability = crate::make::mount_capability(
                    Mode::SingleNodeWriter,
                    &t.bench().settings.fs_type,
                );
                let placed = t.staged_with("v", capability).await?;
                let target = t.target("v")?;
                t.call(placed.publish_request(&target)).await.ok()?;
                symlink(&kept.folder, Path::new(&target).join("way-out"))
                    .map_err(io("could not make a symlink in the published volume"))?;
                t.take_down(&placed, &target).await?;
                t.call(t.delete_request(&placed.id())).await.ok()?;
                kept.untouched()
            },
        ),
    ]
}

/// A link to an empty folder among the kept files.
fn link_to_empty(t: &Trial, kept: &Bystander) -> Result<String, Trouble> {
    let empty = kept.folder.join("empty");
    std::fs::create_dir(&empty).map_err(io("could not make an empty folder"))?;
    let link = t.target("link")?;
    symlink(&empty, &link).map_err(io("could not make a symlink"))?;
    Ok(link)
}

/// The empty folder is still just that.
fn empty_is_unmounted(kept: &Bystander) -> Outcome {
    let table = MountTable::read().map_err(io("could not read the mount table"))?;
    ensure!(
        table.beneath(&kept.folder).next().is_none(),
        "the path was a symlink to {}, and the volume is mounted there; whoever can make a symlink chooses where the driver mounts",
        kept.folder.join("empty").display()
    );
    std::fs::remove_dir(kept.folder.join("empty"))
        .map_err(io("the empty folder behind the symlink was changed"))?;
    kept.untouched()
}
