//! A volume is attached.

use orlop_csi::client::ControllerCapability as Can;
use orlop_csi::proto;
use orlop_csi::proto::volume_capability::access_mode::Mode;
use tonic::Code;

use super::{ATTACH, detach};
use crate::case::{Case, Need, ensure};
use crate::cases::CREATE;
use crate::spec;

pub(super) fn cases() -> Vec<Case> {
    let needs = [CREATE, ATTACH];
    vec![
        Case::must(
            "attach.works",
            spec::CONTROLLER_PUBLISH,
            "a volume is published to a node and taken from it",
            &needs,
            |t| async move {
                let volume = t.volume("v").await?;
                t.call(t.attach_request(&volume, &t.bench().node_id))
                    .await
                    .ok()?;
                t.call(detach(&volume.volume_id, &t.bench().node_id))
                    .await
                    .ok()
                    .map(drop)
            },
        ),
        Case::must(
            "attach.repeat_is_idempotent",
            spec::CONTROLLER_PUBLISH,
            "the same request again succeeds with the same publish_context",
            &needs,
            |t| async move {
                let volume = t.volume("v").await?;
                let first = t
                    .call(t.attach_request(&volume, &t.bench().node_id))
                    .await
                    .ok()?;
                for _ in 0..10 {
                    let again = t
                        .call(t.attach_request(&volume, &t.bench().node_id))
                        .await
                        .ok_because("ControllerPublishVolume is idempotent")?;
                    ensure!(
                        again.publish_context == first.publish_context,
                        "publish_context was {:?}, and {:?} when repeated",
                        first.publish_context,
                        again.publish_context
                    );
                }
                Ok(())
            },
        ),
        Case::must(
            "attach.unknown_volume",
            spec::CONTROLLER_PUBLISH,
            "an unknown volume is NOT_FOUND",
            &needs,
            |t| async move {
                let unknown = proto::Volume {
                    volume_id: "orlop-conformance-none".into(),
                    ..Default::default()
                };
                t.call(t.attach_request(&unknown, &t.bench().node_id))
                    .await
                    .refused(Code::NotFound, "there is no such volume")
            },
        ),
        Case::must(
            "attach.unknown_node",
            spec::CONTROLLER_PUBLISH,
            "an unknown node is NOT_FOUND",
            &needs,
            |t| async move {
                let volume = t.volume("v").await?;
                t.call(t.attach_request(&volume, "orlop-conformance-no-node"))
                    .await
                    .refused(Code::NotFound, "there is no such node")
            },
        ),
        Case::must(
            "attach.read_only_is_another_request",
            spec::CONTROLLER_PUBLISH,
            "a published volume asked for with another readonly is ALREADY_EXISTS",
            &[CREATE, ATTACH, Need::Controller(Can::PublishReadonly)],
            |t| async move {
                let volume = t.volume("v").await?;
                let request = t.attach_request(&volume, &t.bench().node_id);
                t.call(request.clone()).await.ok()?;
                let other = proto::ControllerPublishVolumeRequest {
                    readonly: true,
                    ..request
                };
                t.call(other).await.refused(
                    Code::AlreadyExists,
                    "it is published on this node for writing",
                )
            },
        ),
        Case::must(
            "attach.other_capability_is_another_request",
            spec::CONTROLLER_PUBLISH,
            "a published volume asked for with an incompatible capability is ALREADY_EXISTS",
            &needs,
            |t| async move {
                let volume = t.volume("v").await?;
                let request = t.attach_request(&volume, &t.bench().node_id);
                t.call(request.clone()).await.ok()?;
                let other = proto::ControllerPublishVolumeRequest {
                    volume_capability: Some(t.capability_for(Mode::MultiNodeMultiWriter)),
                    ..request
                };
                let answer = t.call(other).await;
                if answer.is_ok() {
                    t.warn("a volume published as SINGLE_NODE_WRITER is also published as MULTI_NODE_MULTI_WRITER");
                    return Ok(());
                }
                answer.refused_with_any(
                    &[Code::AlreadyExists, Code::InvalidArgument],
                    "it is published on this node with another capability",
                )
            },
        ),
        Case::must(
            "attach.long_node_id",
            spec::NAME_RULES,
            "a node id of 256 bytes is unknown, not invalid",
            &needs,
            |t| async move {
                let volume = t.volume("v").await?;
                t.call(t.attach_request(&volume, &"n".repeat(256)))
                    .await
                    .refused(
                        Code::NotFound,
                        "a node id may have 256 bytes, and there is no such node",
                    )
            },
        ),
    ]
}
