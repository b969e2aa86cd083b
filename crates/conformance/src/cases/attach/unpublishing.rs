//! A volume is detached.

use orlop_csi::client::ControllerCapability as Can;
use orlop_csi::proto;
use tonic::Code;

use super::{ATTACH, detach};
use crate::case::Case;
use crate::cases::CREATE;
use crate::spec;

pub(super) fn cases() -> Vec<Case> {
    let needs = [CREATE, ATTACH];
    vec![
        Case::must(
            "attach.undone_twice",
            spec::CONTROLLER_UNPUBLISH,
            "taking a volume from a node again succeeds",
            &needs,
            |t| async move {
                let volume = t.volume("v").await?;
                t.call(t.attach_request(&volume, &t.bench().node_id))
                    .await
                    .ok()?;
                for _ in 0..10 {
                    t.call(detach(&volume.volume_id, &t.bench().node_id))
                        .await
                        .ok_because("ControllerUnpublishVolume is idempotent")?;
                }
                Ok(())
            },
        ),
        Case::must(
            "attach.undone_without_being_done",
            spec::CONTROLLER_UNPUBLISH,
            "taking a volume from a node where it is not succeeds",
            &needs,
            |t| async move {
                let volume = t.volume("v").await?;
                t.call(detach(&volume.volume_id, &t.bench().node_id))
                    .await
                    .ok_because("the volume is not published there")
                    .map(drop)
            },
        ),
        Case::must(
            "attach.undone_for_unknown_volume",
            spec::CONTROLLER_UNPUBLISH,
            "taking an unknown volume from a node succeeds or is NOT_FOUND",
            &needs,
            |t| async move {
                let answer = t
                    .call(detach("orlop-conformance-none", &t.bench().node_id))
                    .await;
                answer
                    .ok_or_any(&[Code::NotFound], "there is no such volume")
                    .map(drop)
            },
        ),
        Case::must(
            "attach.undone_for_unknown_node",
            spec::CONTROLLER_UNPUBLISH,
            "taking a volume from an unknown node succeeds or is NOT_FOUND",
            &needs,
            |t| async move {
                let volume = t.volume("v").await?;
                let answer = t
                    .call(detach(&volume.volume_id, "orlop-conformance-no-node"))
                    .await;
                answer
                    .ok_or_any(&[Code::NotFound], "there is no such node")
                    .map(drop)
            },
        ),
        Case::must(
            "attach.undone_everywhere",
            spec::CONTROLLER_UNPUBLISH,
            "without node_id a volume is taken from all nodes",
            &needs,
            |t| async move {
                let volume = t.volume("v").await?;
                let request = t.attach_request(&volume, &t.bench().node_id);
                t.call(request.clone()).await.ok()?;
                t.call(detach(&volume.volume_id, ""))
                    .await
                    .ok_because("an empty node_id means all nodes")?;
                if !t.bench().can(Can::PublishReadonly) {
                    return Ok(());
                }
                // Were it still published for writing, this would be ALREADY_EXISTS.
                let other = proto::ControllerPublishVolumeRequest {
                    readonly: true,
                    ..request
                };
                t.call(other)
                    .await
                    .ok_because("the volume was taken from all nodes before")
                    .map(drop)
            },
        ),
        Case::must(
            "attach.undone_everywhere_when_nowhere",
            spec::CONTROLLER_UNPUBLISH,
            "without node_id a volume that is nowhere is fine",
            &needs,
            |t| async move {
                let volume = t.volume("v").await?;
                t.call(detach(&volume.volume_id, ""))
                    .await
                    .ok_because("the volume is published nowhere")
                    .map(drop)
            },
        ),
        Case::must(
            "attach.again_after_undone",
            spec::CONTROLLER_PUBLISH,
            "a volume can come back to a node",
            &needs,
            |t| async move {
                let volume = t.volume("v").await?;
                for _ in 0..5 {
                    t.call(t.attach_request(&volume, &t.bench().node_id))
                        .await
                        .ok()?;
                    t.call(detach(&volume.volume_id, &t.bench().node_id))
                        .await
                        .ok()?;
                }
                Ok(())
            },
        ),
    ]
}
