//! Ids, names and paths that lead elsewhere: what is there must stay as it is.
//!
//! Every case has a folder of files that are none of the driver's business, aims at it, and looks
//! whether it is untouched.

use std::fmt::Debug;
use std::path::PathBuf;

use orlop_csi::client::{ControllerCapability as Can, NodeCapability};
use orlop_csi::{Unary, proto};
use orlop_host::MountTable;
use tonic::Code;

use super::CREATE;
use crate::case::{Case, Need, Outcome, Trouble, ensure};
use crate::make::io;
use crate::spec;
use crate::trial::Trial;

mod foreign;
mod links;

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
    [spellings(), links::cases(), foreign::cases(), forms()].concat()
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
