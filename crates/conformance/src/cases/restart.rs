//! A driver that is killed and started again: it knows what it knew, and a call that it died in
//! can be repeated.

use std::fmt::Debug;
use std::time::Duration;

use orlop_csi::client::{ControllerCapability as Can, NodeCapability};
use orlop_csi::{Unary, proto};
use orlop_host::{MountTable, Occupant, Place};
use tonic::Code;

use super::CREATE;
use crate::case::{Case, Need, Outcome, Trouble, ensure};
use crate::make::at_least;
use crate::spec;
use crate::trial::Trial;

const RESTART: Need = Need::Restart;
const ATTACH: Need = Need::Controller(Can::PublishUnpublishVolume);
const LIST: Need = Need::Controller(Can::ListVolumes);
const SNAPSHOTS: Need = Need::Controller(Can::CreateDeleteSnapshot);

pub(super) fn cases() -> Vec<Case> {
    [controller(), node(), mid_call()].concat()
}

/// Restarts the driver and waits until it answers.
async fn restart(t: &Trial) -> Outcome {
    let settings = &t.bench().settings;
    let Some(restart) = &settings.restart else {
        return Err(Trouble::Skip("there is no restart command".to_owned()));
    };
    restart.run().await.map_err(Trouble::Skip)?;
    let ends = tokio::time::Instant::now() + settings.timeout;
    loop {
        let (info, node) = (
            t.call(proto::ProbeRequest {}).await,
            t.call(proto::ControllerGetCapabilitiesRequest {}).await,
        );
        if info.is_ok() && !node.is_silence() {
            return Ok(());
        }
        ensure!(
            tokio::time::Instant::now() < ends,
            "the driver did not answer within {} s after its restart: {}",
            settings.timeout.as_secs(),
            info.words()
        );
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// The volume's entry in the list.
async fn listed(
    t: &Trial,
    id: &str,
) -> Result<Option<proto::list_volumes_response::Entry>, Trouble> {
    let entries = super::entries_listed(t).await?;
    Ok(entries.into_iter().find(|entry| {
        let volume = entry.volume.as_ref();
        volume.is_some_and(|volume| volume.volume_id == id)
    }))
}

fn controller() -> Vec<Case> {
    vec![
        Case::must(
            "restart.name_is_known",
            spec::CREATE_VOLUME,
            "after a restart, a repeated CreateVolume gives the same volume",
            &[CREATE, RESTART],
            |t| async move {
                let request = t.create_request("v");
                let first = t.create(request.clone()).await?;
                restart(&t).await?;
                let again = t.create(request).await?;
                ensure!(
                    again.volume_id == first.volume_id
                        && again.volume_context == first.volume_context,
                    "the name gave {first:?} before the restart and {again:?} after it"
                );
                Ok(())
            },
        ),
        Case::must(
            "restart.conflict_is_known",
            spec::CREATE_VOLUME,
            "after a restart, a name that exists with another size is ALREADY_EXISTS",
            &[CREATE, RESTART],
            |t| async move {
                let request = t.create_request("v");
                let first = t.create(request.clone()).await?;
                restart(&t).await?;
                let other = proto::CreateVolumeRequest {
                    capacity_range: Some(at_least(first.capacity_bytes.max(t.size()) * 2)),
                    ..request
                };
                let answer = t.call(other).await;
                answer.refused(Code::AlreadyExists, "the name exists with a smaller size")
            },
        ),
        Case::must(
            "restart.volume_is_listed",
            spec::LIST_VOLUMES,
            "after a restart, a volume is listed as before",
            &[CREATE, LIST, RESTART],
            |t| async move {
                let volume = t.volume("v").await?;
                restart(&t).await?;
                let entry = listed(&t, &volume.volume_id).await?;
                let found = entry.and_then(|entry| entry.volume);
                ensure!(
                    found.as_ref() == Some(&volume),
                    "CreateVolume answered {volume:?}; after the restart ListVolumes shows {found:?}"
                );
                Ok(())
            },
        ),
        Case::must(
            "restart.deleted_stays_deleted",
            spec::DELETE_VOLUME,
            "after a restart, a deleted volume is not back",
            &[CREATE, LIST, RESTART],
            |t| async move {
                let volume = t.volume("v").await?;
                t.call(t.delete_request(&volume.volume_id)).await.ok()?;
                restart(&t).await?;
                ensure!(
                    listed(&t, &volume.volume_id).await?.is_none(),
                    "volume {} was deleted before the restart and is listed after it",
                    volume.volume_id
                );
                let answer = t.call(t.delete_request(&volume.volume_id)).await;
                answer.ok_because("deleting again is OK").map(drop)
            },
        ),
        Case::must(
            "restart.expansion_is_known",
            spec::CONTROLLER_EXPAND,
            "after a restart, a repeated ControllerExpandVolume is OK with the new size",
            &[CREATE, Need::Controller(Can::ExpandVolume), RESTART],
            |t| async move {
                let volume = t.volume("v").await?;
                let request = proto::ControllerExpandVolumeRequest {
                    volume_id: volume.volume_id,
                    capacity_range: Some(at_least(t.size() * 2)),
                    volume_capability: Some(t.capability()),
                    ..Default::default()
                };
                let before = t.call(request.clone()).await.ok()?.capacity_bytes;
                restart(&t).await?;
                let after = t.call(request).await.ok()?.capacity_bytes;
                ensure!(
                    before == after,
                    "the volume was expanded to {before} bytes; after the restart it has {after}"
                );
                Ok(())
            },
        ),
        Case::must(
            "restart.attachment_is_known",
            spec::CONTROLLER_PUBLISH,
            "after a restart, a volume is still published to its node",
            &[
                CREATE,
                ATTACH,
                LIST,
                Need::Controller(Can::ListVolumesPublishedNodes),
                RESTART,
            ],
            |t| async move {
                let volume = t.volume("v").await?;
                let node = t.bench().node_id.clone();
                let request = t.attach_request(&volume, &node);
                let before = t.call(request.clone()).await.ok()?.publish_context;
                restart(&t).await?;
                let entry = listed(&t, &volume.volume_id).await?;
                let nodes = entry.and_then(|entry| entry.status).unwrap_or_default();
                ensure!(
                    nodes.published_node_ids.contains(&node),
                    "the volume was published to {node}; after the restart ListVolumes shows {:?}",
                    nodes.published_node_ids
                );
                let after = t.call(request).await.ok()?.publish_context;
                ensure!(
                    before == after,
                    "publish_context was {before:?}, and {after:?} after the restart"
                );
                Ok(())
            },
        ),
        Case::must(
            "restart.snapshot_is_known",
            spec::CREATE_SNAPSHOT,
            "after a restart, a repeated CreateSnapshot gives the same snapshot",
            &[CREATE, SNAPSHOTS, RESTART],
            |t| async move {
                let volume = t.volume("v").await?;
                let before = t.snapshot(&volume.volume_id, "s").await?;
                restart(&t).await?;
                let after = t.snapshot(&volume.volume_id, "s").await?;
                ensure!(
                    before.snapshot_id == after.snapshot_id
                        && before.creation_time == after.creation_time,
                    "the name gave {before:?} before the restart and {after:?} after it"
                );
                Ok(())
            },
        ),
        Case::must(
            "restart.snapshot_restores",
            spec::CREATE_VOLUME,
            "after a restart, a volume can be made from a snapshot",
            &[CREATE, SNAPSHOTS, RESTART],
            |t| async move {
                let volume = t.volume("v").await?;
                let snapshot = t.snapshot(&volume.volume_id, "s").await?;
                restart(&t).await?;
                let request = proto::CreateVolumeRequest {
                    volume_content_source: Some(crate::make::from_snapshot(&snapshot.snapshot_id)),
                    ..t.create_request("restored")
                };
                t.create(request).await.map(drop)
            },
        ),
    ]
}

/// What is at a path.
fn at(path: &str) -> Result<Occupant, Trouble> {
    Place::at(path.as_ref())
        .and_then(|place| place.look())
        .map_err(crate::make::io("could not look at a path of the run"))
}

/// How many mounts are at a path.
fn layers(path: &str) -> Result<usize, Trouble> {
    let table = MountTable::read().map_err(crate::make::io("could not read the mount table"))?;
    Ok(table
        .iter()
        .filter(|mount| mount.point.as_path() == std::path::Path::new(path))
        .count())
}

fn node() -> Vec<Case> {
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

/// Sends a call, restarts the driver under it, and repeats it until it is done.
async fn through_a_restart<R: Unary + Debug + Clone>(
    t: &Trial,
    request: R,
) -> Result<R::Reply, Trouble>
where
    R::Reply: Debug,
{
    let (_, restarted) = tokio::join!(t.call(request.clone()), restart(t));
    restarted?;
    let ends = tokio::time::Instant::now() + t.bench().settings.timeout;
    loop {
        let answer = t.call(request.clone()).await;
        let later = matches!(answer.code(), Code::Aborted | Code::Unavailable);
        if !later || tokio::time::Instant::now() > ends {
            return answer.ok_because("a call that a restart interrupted can be repeated");
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

fn mid_call() -> Vec<Case> {
    vec![
        Case::must(
            "restart.during_create",
            spec::TIMEOUTS,
            "a CreateVolume that a restart interrupts can be repeated, and makes one volume",
            &[CREATE, RESTART],
            |t| async move {
                let request = t.create_request("v");
                let reply = through_a_restart(&t, request.clone()).await?;
                let first = reply.volume.unwrap_or_default();
                let again = t.create(request).await?;
                ensure!(
                    first.volume_id == again.volume_id,
                    "one name gave volumes {} and {}",
                    first.volume_id,
                    again.volume_id
                );
                Ok(())
            },
        ),
        Case::must(
            "restart.during_delete",
            spec::TIMEOUTS,
            "a DeleteVolume that a restart interrupts can be repeated",
            &[CREATE, RESTART],
            |t| async move {
                let volume = t.volume("v").await?;
                let request = t.delete_request(&volume.volume_id);
                through_a_restart(&t, request).await.map(drop)
            },
        ),
        Case::must(
            "restart.during_snapshot",
            spec::TIMEOUTS,
            "a CreateSnapshot that a restart interrupts can be repeated, and makes one snapshot",
            &[CREATE, SNAPSHOTS, RESTART],
            |t| async move {
                let volume = t.volume("v").await?;
                let request = t.snapshot_request(&volume.volume_id, "s");
                let reply = through_a_restart(&t, request).await?;
                let first = reply.snapshot.unwrap_or_default();
                let again = t.snapshot(&volume.volume_id, "s").await?;
                ensure!(
                    first.snapshot_id == again.snapshot_id,
                    "one name gave snapshots {} and {}",
                    first.snapshot_id,
                    again.snapshot_id
                );
                Ok(())
            },
        ),
        Case::must(
            "restart.during_attach_and_detach",
            spec::TIMEOUTS,
            "a ControllerPublishVolume or its inverse that a restart interrupts can be repeated",
            &[CREATE, ATTACH, RESTART],
            |t| async move {
                let volume = t.volume("v").await?;
                let node_id = t.bench().node_id.clone();
                through_a_restart(&t, t.attach_request(&volume, &node_id)).await?;
                let request = proto::ControllerUnpublishVolumeRequest {
                    volume_id: volume.volume_id,
                    node_id,
                    ..Default::default()
                };
                through_a_restart(&t, request).await.map(drop)
            },
        ),
        Case::must(
            "restart.during_stage_and_unstage",
            spec::TIMEOUTS,
            "a NodeStageVolume or its inverse that a restart interrupts can be repeated",
            &[
                CREATE,
                Need::Node(NodeCapability::StageUnstageVolume),
                RESTART,
            ],
            |t| async move {
                let volume = t.volume("v").await?;
                let placed = t.attached(volume, t.capability()).await?;
                through_a_restart(&t, placed.stage_request()).await?;
                through_a_restart(&t, placed.unstage_request()).await?;
                ensure!(
                    layers(&placed.staging)? == 0,
                    "NodeUnstageVolume was OK and left a mount at {}",
                    placed.staging
                );
                Ok(())
            },
        ),
        Case::must(
            "restart.during_publish_and_unpublish",
            spec::TIMEOUTS,
            "a NodePublishVolume or its inverse that a restart interrupts can be repeated",
            &[CREATE, RESTART],
            |t| async move {
                let placed = t.staged_volume("v").await?;
                let target = t.target("v")?;
                through_a_restart(&t, placed.publish_request(&target)).await?;
                through_a_restart(&t, placed.unpublish_request(&target)).await?;
                ensure!(
                    at(&target)? == Occupant::Absent,
                    "NodeUnpublishVolume was OK and left {target}"
                );
                t.unplace(&placed).await
            },
        ),
        Case::must(
            "restart.during_expand",
            spec::TIMEOUTS,
            "a ControllerExpandVolume that a restart interrupts can be repeated",
            &[CREATE, Need::Controller(Can::ExpandVolume), RESTART],
            |t| async move {
                let volume = t.volume("v").await?;
                let request = proto::ControllerExpandVolumeRequest {
                    volume_id: volume.volume_id,
                    capacity_range: Some(at_least(t.size() * 2)),
                    volume_capability: Some(t.capability()),
                    ..Default::default()
                };
                let reply = through_a_restart(&t, request).await?;
                ensure!(
                    reply.capacity_bytes >= t.size() * 2,
                    "{} bytes were asked for and {} promised",
                    t.size() * 2,
                    reply.capacity_bytes
                );
                Ok(())
            },
        ),
    ]
}
