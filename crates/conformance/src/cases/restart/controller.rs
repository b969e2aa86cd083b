//! What the controller said before a kill holds after it.

use orlop_csi::client::ControllerCapability as Can;
use orlop_csi::proto;
use tonic::Code;

use super::{ATTACH, LIST, RESTART, SNAPSHOTS, restart};
use crate::case::{Case, Need, ensure};
use crate::cases::{CREATE, entry_listed, nodes_listed};
use crate::make::at_least;
use crate::spec;

pub(super) fn cases() -> Vec<Case> {
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
                let entry = entry_listed(&t, &volume.volume_id).await?;
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
                    entry_listed(&t, &volume.volume_id).await?.is_none(),
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
                let nodes = nodes_listed(&t, &volume.volume_id).await?;
                ensure!(
                    nodes.contains(&node),
                    "the volume was published to {node}; after the restart ListVolumes shows {nodes:?}"
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
