//! `ControllerGetVolume`.

use orlop_csi::client::ControllerCapability as Can;
use orlop_csi::proto;
use tonic::Code;

use super::CREATE;
use crate::case::{Case, Need, ensure};
use crate::spec;

fn get(volume_id: &str) -> proto::ControllerGetVolumeRequest {
    proto::ControllerGetVolumeRequest {
        volume_id: volume_id.to_owned(),
    }
}

pub(super) fn cases() -> Vec<Case> {
    let needs = [CREATE, Need::Controller(Can::GetVolume)];
    vec![
        Case::must(
            "get_volume.tells_what_create_told",
            spec::GET_VOLUME,
            "a volume's id, context and capacity are as CreateVolume told them",
            &needs,
            |t| async move {
                let volume = t.volume("v").await?;
                let found = t
                    .call(get(&volume.volume_id))
                    .await
                    .ok()?
                    .volume
                    .unwrap_or_default();
                ensure!(
                    found.volume_id == volume.volume_id,
                    "volume {:?} was asked for, {:?} was told",
                    volume.volume_id,
                    found.volume_id
                );
                ensure!(
                    found.volume_context == volume.volume_context,
                    "CreateVolume told the context {:?}, ControllerGetVolume {:?}",
                    volume.volume_context,
                    found.volume_context
                );
                ensure!(
                    found.capacity_bytes == volume.capacity_bytes || found.capacity_bytes == 0,
                    "CreateVolume told {} bytes, ControllerGetVolume {}",
                    volume.capacity_bytes,
                    found.capacity_bytes
                );
                Ok(())
            },
        ),
        Case::must(
            "get_volume.has_a_status",
            spec::GET_VOLUME,
            "the reply has a status, which is required",
            &needs,
            |t| async move {
                let volume = t.volume("v").await?;
                let reply = t.call(get(&volume.volume_id)).await.ok()?;
                ensure!(
                    reply.status.is_some(),
                    "ControllerGetVolume's reply has no status"
                );
                Ok(())
            },
        ),
        Case::must(
            "get_volume.unknown",
            spec::GET_VOLUME,
            "an unknown volume is NOT_FOUND",
            &needs,
            |t| async move {
                t.call(get("orlop-conformance-none"))
                    .await
                    .refused(Code::NotFound, "there is no such volume")
            },
        ),
        Case::must(
            "get_volume.deleted",
            spec::GET_VOLUME,
            "a deleted volume is NOT_FOUND",
            &needs,
            |t| async move {
                let volume = t.volume("v").await?;
                t.call(t.delete_request(&volume.volume_id)).await.ok()?;
                t.call(get(&volume.volume_id))
                    .await
                    .refused(Code::NotFound, "the volume was deleted")
            },
        ),
        Case::must(
            "get_volume.tells_the_condition",
            spec::GET_VOLUME,
            "a driver with VOLUME_CONDITION tells a new volume's condition, which is normal",
            &[
                CREATE,
                Need::Controller(Can::GetVolume),
                Need::Controller(Can::VolumeCondition),
            ],
            |t| async move {
                let volume = t.volume("v").await?;
                let status = t
                    .call(get(&volume.volume_id))
                    .await
                    .ok()?
                    .status
                    .unwrap_or_default();
                let Some(condition) = status.volume_condition else {
                    ensure!(
                        false,
                        "VOLUME_CONDITION is announced, but the reply has no volume_condition"
                    );
                    return Ok(());
                };
                ensure!(
                    !condition.abnormal,
                    "a new volume is abnormal: {}",
                    condition.message
                );
                ensure!(
                    !condition.message.is_empty(),
                    "volume_condition.message is empty, but it is required"
                );
                Ok(())
            },
        ),
        Case::must(
            "get_volume.tells_nodes",
            spec::GET_VOLUME,
            "published_node_ids tells where a volume is",
            &[
                CREATE,
                Need::Controller(Can::GetVolume),
                Need::Controller(Can::PublishUnpublishVolume),
                Need::Controller(Can::ListVolumesPublishedNodes),
            ],
            |t| async move {
                let volume = t.volume("v").await?;
                t.call(t.attach_request(&volume, &t.bench().node_id))
                    .await
                    .ok()?;
                let status = t
                    .call(get(&volume.volume_id))
                    .await
                    .ok()?
                    .status
                    .unwrap_or_default();
                ensure!(
                    status.published_node_ids.contains(&t.bench().node_id),
                    "the volume is on {:?}, but ControllerGetVolume says {:?}",
                    t.bench().node_id,
                    status.published_node_ids
                );
                Ok(())
            },
        ),
    ]
}
