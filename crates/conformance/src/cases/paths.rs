//! Ids, names and paths that lead elsewhere: what is there must stay as it is.
//!
//! Every case has a folder of files that are none of the driver's business, aims at it, and looks
//! whether it is untouched.

use std::fmt::Debug;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use orlop_csi::client::{ControllerCapability as Can, NodeCapability};
use orlop_csi::{Unary, proto};
use orlop_host::MountTable;
use tonic::Code;

use super::CREATE;
use crate::case::{Case, Need, Outcome, Trouble, ensure};
use crate::make::io;
use crate::spec;
use crate::trial::Trial;

const STAGE: Need = Need::Node(NodeCapability::StageUnstageVolume);

/// Files that nobody gave to the driver.
struct Bystander {
    folder: PathBuf,
}

const FILES: [(&str, &str); 2] = [("letter", "from a friend"), ("drawer/ring", "of gold")];

impl Bystander {
    fn make(t: &Trial) -> Result<Self, Trouble> {
        let failed = io("could not make the files to be kept");
        let folder = t.folder().aside("kept").map_err(&failed)?;
        std::fs::create_dir_all(folder.join("drawer")).map_err(&failed)?;
        for (name, content) in FILES {
            std::fs::write(folder.join(name), content).map_err(&failed)?;
        }
        Ok(Self { folder })
    }

    /// The way to it from anywhere, as an id or a name of at most 128 bytes.
    fn traversal(&self) -> Result<String, Trouble> {
        let path = self.folder.to_string_lossy();
        let way = format!("{}{}", "../".repeat(10), path.trim_start_matches('/'));
        if way.len() > 128 {
            return Err(Trouble::Skip(
                "the run's folder has too long a name; choose a shorter --target-dir".to_owned(),
            ));
        }
        Ok(way)
    }

    fn untouched(&self) -> Outcome {
        for (name, content) in FILES {
            let found = std::fs::read(self.folder.join(name));
            ensure!(
                found
                    .as_ref()
                    .is_ok_and(|bytes| bytes == content.as_bytes()),
                "the file {}/{name} has nothing to do with the driver and now reads as {found:?}",
                self.folder.display()
            );
        }
        let mut there = Vec::new();
        for entry in std::fs::read_dir(&self.folder).map_err(io("could not list the kept files"))? {
            let name = entry
                .map_err(io("could not list the kept files"))?
                .file_name();
            there.push(name.to_string_lossy().into_owned());
        }
        there.sort();
        ensure!(
            there == ["drawer", "letter"],
            "the folder {} has nothing to do with the driver and now holds {there:?}",
            self.folder.display()
        );
        let table = MountTable::read().map_err(io("could not read the mount table"))?;
        ensure!(
            table.beneath(&self.folder).next().is_none(),
            "something is mounted at {}, which no request named",
            self.folder.display()
        );
        Ok(())
    }
}

/// A call with an id or a name that spells a way to the files.
fn spelled<R: Unary + Debug>(
    what: &str,
    needs: &[Need],
    request: impl Fn(&Trial, String) -> R + Send + Sync + Clone + 'static,
) -> Case
where
    R::Reply: Debug,
{
    Case::must(
        format!("paths.{what}_is_no_path"),
        spec::SECURITY,
        format!(
            "{} with an id or name that spells a path touches nothing there",
            R::METHOD.name()
        ),
        needs,
        move |t| {
            let request = request.clone();
            async move {
                let kept = Bystander::make(&t)?;
                let absolute = kept.folder.to_string_lossy().into_owned();
                for spelling in [
                    kept.traversal()?,
                    absolute,
                    "..".into(),
                    ".".into(),
                    "/".into(),
                ] {
                    let answer = t.call(request(&t, spelling)).await;
                    ensure!(
                        !answer.is_silence(),
                        "{} was not answered: {}",
                        answer.asked,
                        answer.words()
                    );
                    kept.untouched()?;
                }
                Ok(())
            }
        },
    )
}

pub(super) fn cases() -> Vec<Case> {
    [spellings(), links(), foreign(), forms()].concat()
}

fn spellings() -> Vec<Case> {
    let snapshots = [CREATE, Need::Controller(Can::CreateDeleteSnapshot)];
    vec![
        Case::must(
            "paths.volume_name_is_no_path",
            spec::NAME_RULES,
            "a volume's name may spell a path; the volume is made, used and deleted, and nothing is touched there",
            &[CREATE],
            |t| async move {
                let kept = Bystander::make(&t)?;
                let request = proto::CreateVolumeRequest {
                    name: kept.traversal()?,
                    ..t.create_request("v")
                };
                let volume = t.create(request).await?;
                kept.untouched()?;
                let placed = t.staged(volume, t.capability()).await?;
                let target = t.target("v")?;
                t.call(placed.publish_request(&target)).await.ok()?;
                t.take_down(&placed, &target).await?;
                t.call(t.delete_request(&placed.id())).await.ok()?;
                kept.untouched()
            },
        ),
        spelled("delete_volume", &[CREATE], |t, id| t.delete_request(&id)),
        spelled("validate", &[CREATE], |t, volume_id| {
            proto::ValidateVolumeCapabilitiesRequest {
                volume_id,
                volume_capabilities: vec![t.capability()],
                ..Default::default()
            }
        }),
        spelled(
            "expand",
            &[Need::Controller(Can::ExpandVolume)],
            |t, volume_id| proto::ControllerExpandVolumeRequest {
                volume_id,
                capacity_range: Some(crate::make::at_least(t.size())),
                ..Default::default()
            },
        ),
        spelled("create_snapshot", &snapshots, |t, source| {
            t.snapshot_request(&source, "s")
        }),
        spelled("delete_snapshot", &snapshots, |_, snapshot_id| {
            proto::DeleteSnapshotRequest {
                snapshot_id,
                ..Default::default()
            }
        }),
        spelled("restore", &snapshots, |t, snapshot| {
            proto::CreateVolumeRequest {
                volume_content_source: Some(crate::make::from_snapshot(&snapshot)),
                ..t.create_request("v")
            }
        }),
        spelled(
            "clone",
            &[CREATE, Need::Controller(Can::CloneVolume)],
            |t, volume| proto::CreateVolumeRequest {
                volume_content_source: Some(crate::make::from_volume(&volume)),
                ..t.create_request("v")
            },
        ),
        spelled("unpublish", &[CREATE], |t, volume_id| {
            proto::NodeUnpublishVolumeRequest {
                volume_id,
                target_path: t.target("never").unwrap_or_default(),
            }
        }),
        spelled("unstage", &[STAGE], |t, volume_id| {
            proto::NodeUnstageVolumeRequest {
                volume_id,
                staging_target_path: t.target("never").unwrap_or_default(),
            }
        }),
    ]
}

fn links() -> Vec<Case> {
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

fn foreign() -> Vec<Case> {
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

fn forms() -> Vec<Case> {
    vec![
        Case::must(
            "paths.target_is_absolute",
            spec::PUBLISH,
            "NodePublishVolume refuses a relative target path with INVALID_ARGUMENT",
            &[CREATE],
            |t| async move {
                let placed = t.staged_volume("v").await?;
                let answer = t
                    .call(placed.publish_request("orlop-conformance/relative"))
                    .await;
                answer.refused(Code::InvalidArgument, "target_path is an absolute path")
            },
        ),
        Case::must(
            "paths.staging_is_absolute",
            spec::STAGE,
            "NodeStageVolume refuses a relative staging path with INVALID_ARGUMENT",
            &[CREATE, STAGE],
            |t| async move {
                let volume = t.volume("v").await?;
                let mut placed = t.attached(volume, t.capability()).await?;
                placed.staging = "orlop-conformance/relative".to_owned();
                let answer = t.call(placed.stage_request()).await;
                answer.refused(
                    Code::InvalidArgument,
                    "staging_target_path is an absolute path",
                )
            },
        ),
    ]
}
