//! `DeleteVolume`: gone is gone, and what never was is gone too.

use orlop_csi::client::ControllerCapability as Can;
use orlop_csi::proto;
use tonic::Code;

use super::{CREATE, volumes_listed};
use crate::case::{Case, Need, ensure};
use crate::make::from_snapshot;
use crate::spec;

pub(super) fn cases() -> Vec<Case> {
    let snapshots = [CREATE, Need::Controller(Can::CreateDeleteSnapshot)];
    vec![
        Case::must(
            "delete.works",
            spec::DELETE_VOLUME,
            "a volume can be deleted",
            &[CREATE],
            |t| async move {
                let volume = t.volume("v").await?;
                t.call(t.delete_request(&volume.volume_id))
                    .await
                    .ok()
                    .map(drop)
            },
        ),
        Case::must(
            "delete.unknown_is_ok",
            spec::DELETE_VOLUME,
            "deleting a volume that never was succeeds",
            &[CREATE],
            |t| async move {
                for id in [
                    "orlop-conformance-none",
                    "0",
                    "00000000-0000-4000-8000-000000000000",
                    "reallyfakevolumeid",
                ] {
                    t.call(t.delete_request(id))
                        .await
                        .ok_because("a volume that doesn't exist is deleted")?;
                }
                Ok(())
            },
        ),
        Case::must(
            "delete.repeat_is_ok",
            spec::DELETE_VOLUME,
            "deleting a volume again succeeds",
            &[CREATE],
            |t| async move {
                let volume = t.volume("v").await?;
                for _ in 0..10 {
                    t.call(t.delete_request(&volume.volume_id))
                        .await
                        .ok_because("DeleteVolume is idempotent")?;
                }
                Ok(())
            },
        ),
        Case::must(
            "delete.others_stay",
            spec::DELETE_VOLUME,
            "deleting one volume leaves the others",
            &[CREATE],
            |t| async move {
                let (kept, gone) = (t.create_request("kept"), t.volume("gone").await?);
                let before = t.create(kept.clone()).await?;
                t.call(t.delete_request(&gone.volume_id)).await.ok()?;
                let after = t.create(kept).await?;
                ensure!(
                    after.volume_id == before.volume_id,
                    "volume {:?} was deleted with another one",
                    before.volume_id
                );
                let request = proto::ValidateVolumeCapabilitiesRequest {
                    volume_id: before.volume_id,
                    volume_context: before.volume_context,
                    volume_capabilities: vec![t.capability()],
                    ..Default::default()
                };
                t.call(request).await.ok().map(drop)
            },
        ),
        Case::must(
            "delete.is_gone_for_validate",
            spec::DELETE_VOLUME,
            "a deleted volume is NOT_FOUND",
            &[CREATE],
            |t| async move {
                let volume = t.volume("v").await?;
                t.call(t.delete_request(&volume.volume_id)).await.ok()?;
                let request = proto::ValidateVolumeCapabilitiesRequest {
                    volume_id: volume.volume_id,
                    volume_capabilities: vec![t.capability()],
                    ..Default::default()
                };
                t.call(request)
                    .await
                    .refused(Code::NotFound, "the volume was deleted")
            },
        ),
        Case::must(
            "delete.is_gone_from_the_list",
            spec::DELETE_VOLUME,
            "a deleted volume is not listed",
            &[CREATE, Need::Controller(Can::ListVolumes)],
            |t| async move {
                let volume = t.volume("v").await?;
                t.call(t.delete_request(&volume.volume_id)).await.ok()?;
                let listed = volumes_listed(&t).await?;
                ensure!(
                    !listed
                        .iter()
                        .any(|entry| entry.volume_id == volume.volume_id),
                    "volume {:?} was deleted, but ListVolumes still lists it",
                    volume.volume_id
                );
                Ok(())
            },
        ),
        Case::must(
            "delete.in_use_does_no_harm",
            spec::DELETE_VOLUME,
            "deleting a volume that is published is refused with FAILED_PRECONDITION, and leaves it unchanged",
            &[CREATE],
            |t| async move {
                let (placed, target) = t.published("v").await?;
                crate::data::write(&target, 1).await?;
                let answer = t.call(t.delete_request(&placed.id())).await;
                if answer.is_ok() {
                    t.warn("a volume was deleted while it was published; FAILED_PRECONDITION would save its user's data");
                    return t.take_down(&placed, &target).await.or(Ok(()));
                }
                answer.refused(Code::FailedPrecondition, "the volume is in use")?;
                ensure!(
                    crate::data::holds(&target, 1).await?,
                    "DeleteVolume was refused, but the volume's data has changed"
                );
                t.take_down(&placed, &target).await?;
                t.call(t.delete_request(&placed.id())).await.ok().map(drop)
            },
        ),
        Case::must(
            "delete.with_snapshots",
            spec::DELETE_VOLUME,
            "a volume with snapshots is deleted and they stay whole, or it is refused with FAILED_PRECONDITION",
            &snapshots,
            |t| async move {
                let volume = t.volume("v").await?;
                let snapshot = t.snapshot(&volume.volume_id, "s").await?;
                let deleted = t
                    .call(t.delete_request(&volume.volume_id))
                    .await
                    .ok_or_any(&[Code::FailedPrecondition], "the volume has a snapshot")?;
                if deleted.is_some() {
                    let restore = proto::CreateVolumeRequest {
                        volume_content_source: Some(from_snapshot(&snapshot.snapshot_id)),
                        ..t.create_request("restored")
                    };
                    t.call(restore).await.ok_because("the driver deleted the volume, so its snapshots are independent of it and must stay usable")?;
                } else {
                    let delete = proto::DeleteSnapshotRequest {
                        snapshot_id: snapshot.snapshot_id,
                        ..Default::default()
                    };
                    t.call(delete).await.ok()?;
                    t.call(t.delete_request(&volume.volume_id)).await.ok()?;
                }
                Ok(())
            },
        ),
    ]
}
