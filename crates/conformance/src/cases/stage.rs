//! `NodeStageVolume` and its reverse.

use orlop_csi::client::NodeCapability;
use orlop_csi::proto;
use proto::volume_capability::access_mode::Mode;
use tonic::Code;

use super::CREATE;
use crate::case::{Case, Need, Trouble, ensure};
use crate::make::{block_capability, io, mount_capability, text};
use crate::spec;

const STAGE: Need = Need::Node(NodeCapability::StageUnstageVolume);

pub(super) fn cases() -> Vec<Case> {
    [staging(), unstaging()].concat()
}

fn staging() -> Vec<Case> {
    let needs = [CREATE, STAGE];
    vec![
        Case::must(
            "stage.works",
            spec::STAGE,
            "a volume is staged and unstaged",
            &needs,
            |t| async move {
                let placed = t.staged_volume("v").await?;
                t.unplace(&placed).await
            },
        ),
        Case::must(
            "stage.repeat_is_idempotent",
            spec::STAGE,
            "the same request again succeeds",
            &needs,
            |t| async move {
                let placed = t.staged_volume("v").await?;
                for _ in 0..10 {
                    t.call(placed.stage_request())
                        .await
                        .ok_because("NodeStageVolume is idempotent")?;
                }
                t.call(placed.unstage_request()).await.ok()?;
                let path = std::path::Path::new(&placed.staging);
                let table =
                    orlop_host::MountTable::read().map_err(io("could not read the mount table"))?;
                let left = table.beneath(path).count();
                ensure!(
                    left == 0,
                    "one NodeUnstageVolume left {left} mounts at the staging path: NodeStageVolume was repeated and mounted again"
                );
                Ok(())
            },
        ),
        Case::must(
            "stage.unknown_volume",
            spec::STAGE,
            "an unknown volume is NOT_FOUND",
            &[STAGE],
            |t| async move {
                let path = t
                    .folder()
                    .staging("none")
                    .map_err(io("could not make a staging folder"))?;
                let request = proto::NodeStageVolumeRequest {
                    volume_id: "orlop-conformance-none".into(),
                    staging_target_path: text(path),
                    volume_capability: Some(t.capability()),
                    ..Default::default()
                };
                t.call(request)
                    .await
                    .refused_with_any(&[Code::NotFound], "there is no such volume")
            },
        ),
        Case::must(
            "stage.other_capability_is_another_request",
            spec::STAGE,
            "a staged volume asked for with an incompatible capability is ALREADY_EXISTS",
            &[CREATE, STAGE, Need::MountVolumes, Need::BlockVolumes],
            |t| async move {
                let both = vec![
                    mount_capability(Mode::SingleNodeWriter, &t.bench().settings.fs_type),
                    block_capability(Mode::SingleNodeWriter),
                ];
                let request = proto::CreateVolumeRequest {
                    volume_capabilities: both.clone(),
                    ..t.create_request("v")
                };
                let made = t
                    .call(request)
                    .await
                    .ok_or_any(&[Code::InvalidArgument], "a volume may be of one kind only")?;
                let volume = match made.and_then(|reply| reply.volume) {
                    Some(volume) => volume,
                    None => t.volume("plain").await?,
                };
                let placed = t.staged(volume, t.capability()).await?;
                let other = if t.bench().settings.block {
                    both[0].clone()
                } else {
                    both[1].clone()
                };
                let request = proto::NodeStageVolumeRequest {
                    volume_capability: Some(other),
                    ..placed.stage_request()
                };
                t.call(request).await.refused_with_any(
                    &[
                        Code::AlreadyExists,
                        Code::FailedPrecondition,
                        Code::InvalidArgument,
                    ],
                    "the volume is staged there with another capability",
                )
            },
        ),
        Case::must(
            "stage.unsupported_file_system",
            spec::STAGE,
            "a file system that doesn't exist is refused, and leaves nothing staged",
            &[CREATE, STAGE, Need::MountVolumes],
            |t| async move {
                if t.bench().settings.block {
                    return Err(Trouble::Skip("test volumes are raw block ones".into()));
                }
                let volume = t.volume("v").await?;
                let placed = t
                    .attached(volume, mount_capability(Mode::SingleNodeWriter, "orlopfs"))
                    .await;
                let Ok(placed) = placed else {
                    return Ok(()); // the controller has refused it before
                };
                let answer = t.call(placed.stage_request()).await;
                if answer.is_ok() {
                    t.warn("a volume is staged with fs_type \"orlopfs\", which doesn't exist");
                    return Ok(());
                }
                answer.refused_with_any(
                    &[Code::InvalidArgument, Code::FailedPrecondition],
                    "no such file system exists",
                )?;
                let table =
                    orlop_host::MountTable::read().map_err(io("could not read the mount table"))?;
                let left = table.beneath(std::path::Path::new(&placed.staging)).count();
                ensure!(left == 0, "a refused NodeStageVolume left {left} mounts");
                Ok(())
            },
        ),
        Case::must(
            "stage.again_after_unstage",
            spec::STAGE,
            "a volume can be staged again and again",
            &needs,
            |t| async move {
                let placed = t.staged_volume("v").await?;
                for _ in 0..5 {
                    t.call(placed.unstage_request()).await.ok()?;
                    t.call(placed.stage_request()).await.ok()?;
                }
                Ok(())
            },
        ),
        Case::must(
            "stage.missing_publish_context_does_no_harm",
            spec::STAGE,
            "a request without volume_context is answered, not crashed over",
            &needs,
            |t| async move {
                let volume = t.volume("v").await?;
                let placed = t.attached(volume, t.capability()).await?;
                let request = proto::NodeStageVolumeRequest {
                    publish_context: Default::default(),
                    volume_context: Default::default(),
                    ..placed.stage_request()
                };
                let answer = t.call(request).await;
                ensure!(
                    !answer.is_silence()
                        && answer.code() != Code::Internal
                        && answer.code() != Code::Unknown,
                    "NodeStageVolume without contexts was answered with {}",
                    answer.words()
                );
                Ok(())
            },
        ),
    ]
}

fn unstaging() -> Vec<Case> {
    let needs = [CREATE, STAGE];
    vec![
        Case::must(
            "stage.undone_twice",
            spec::UNSTAGE,
            "unstaging again succeeds",
            &needs,
            |t| async move {
                let placed = t.staged_volume("v").await?;
                for _ in 0..10 {
                    t.call(placed.unstage_request())
                        .await
                        .ok_because("NodeUnstageVolume is idempotent")?;
                }
                Ok(())
            },
        ),
        Case::must(
            "stage.undone_without_being_done",
            spec::UNSTAGE,
            "unstaging a volume that is not staged succeeds",
            &needs,
            |t| async move {
                let volume = t.volume("v").await?;
                let placed = t.attached(volume, t.capability()).await?;
                t.call(placed.unstage_request())
                    .await
                    .ok_because("the volume is not staged there")
                    .map(drop)
            },
        ),
        Case::must(
            "stage.undone_for_unknown_volume",
            spec::UNSTAGE,
            "unstaging an unknown volume succeeds or is NOT_FOUND",
            &[STAGE],
            |t| async move {
                let path = t
                    .folder()
                    .staging("none")
                    .map_err(io("could not make a staging folder"))?;
                let request = proto::NodeUnstageVolumeRequest {
                    volume_id: "orlop-conformance-none".into(),
                    staging_target_path: text(path),
                };
                t.call(request)
                    .await
                    .ok_or_any(&[Code::NotFound], "there is no such volume")
                    .map(drop)
            },
        ),
        Case::must(
            "stage.undone_where_the_path_is_gone",
            spec::UNSTAGE,
            "unstaging where the path doesn't exist succeeds",
            &needs,
            |t| async move {
                let placed = t.staged_volume("v").await?;
                t.call(placed.unstage_request()).await.ok()?;
                // The driver may have removed it already.
                let _ = std::fs::remove_dir(&placed.staging);
                t.call(placed.unstage_request())
                    .await
                    .ok_because("nothing is staged at a path that doesn't exist")
                    .map(drop)
            },
        ),
        Case::must(
            "stage.undone_leaves_no_mount",
            spec::UNSTAGE,
            "after NodeUnstageVolume nothing is mounted at the staging path",
            &needs,
            |t| async move {
                let placed = t.staged_volume("v").await?;
                t.call(placed.unstage_request()).await.ok()?;
                let table =
                    orlop_host::MountTable::read().map_err(io("could not read the mount table"))?;
                let left: Vec<_> = table
                    .beneath(std::path::Path::new(&placed.staging))
                    .map(|mount| mount.point.display().to_string())
                    .collect();
                ensure!(
                    left.is_empty(),
                    "NodeUnstageVolume succeeded, but {} is still mounted",
                    left.join(", ")
                );
                Ok(())
            },
        ),
    ]
}
