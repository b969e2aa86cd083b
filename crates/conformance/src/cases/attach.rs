//! `ControllerPublishVolume` and its reverse.

use orlop_csi::client::ControllerCapability as Can;
use orlop_csi::proto;
use proto::volume_capability::access_mode::Mode;
use tonic::Code;

use super::{CREATE, volumes_listed};
use crate::case::{Case, Need, Trouble, ensure};
use crate::spec;

const ATTACH: Need = Need::Controller(Can::PublishUnpublishVolume);

fn detach(volume_id: &str, node_id: &str) -> proto::ControllerUnpublishVolumeRequest {
    proto::ControllerUnpublishVolumeRequest {
        volume_id: volume_id.to_owned(),
        node_id: node_id.to_owned(),
        ..Default::default()
    }
}

pub(super) fn cases() -> Vec<Case> {
    [publishing(), unpublishing(), many()].concat()
}

fn publishing() -> Vec<Case> {
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

fn unpublishing() -> Vec<Case> {
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

fn many() -> Vec<Case> {
    let listed = [
        CREATE,
        ATTACH,
        Need::Controller(Can::ListVolumes),
        Need::Controller(Can::ListVolumesPublishedNodes),
    ];
    let two = [CREATE, ATTACH, Need::OtherNode];
    vec![
        Case::must(
            "attach.is_listed",
            spec::LIST_VOLUMES,
            "published_node_ids tells where a volume is, and no longer once it is not",
            &listed,
            |t| async move {
                let volume = t.volume("v").await?;
                let nodes = async || {
                    let reply = super::entries_listed(&t).await?;
                    let entry = reply.into_iter().find(|entry| {
                        entry
                            .volume
                            .as_ref()
                            .is_some_and(|listed| listed.volume_id == volume.volume_id)
                    });
                    Ok::<_, Trouble>(
                        entry
                            .and_then(|entry| entry.status)
                            .unwrap_or_default()
                            .published_node_ids,
                    )
                };
                let before = nodes().await?;
                ensure!(
                    before.is_empty(),
                    "ListVolumes says that a new volume is on {before:?}"
                );
                t.call(t.attach_request(&volume, &t.bench().node_id))
                    .await
                    .ok()?;
                let there = nodes().await?;
                ensure!(
                    there.contains(&t.bench().node_id),
                    "the volume is on {:?}, but ListVolumes says {there:?}",
                    t.bench().node_id
                );
                t.call(detach(&volume.volume_id, &t.bench().node_id))
                    .await
                    .ok()?;
                let after = nodes().await?;
                ensure!(
                    !after.contains(&t.bench().node_id),
                    "the volume was taken from its node, but ListVolumes says {after:?}"
                );
                Ok(())
            },
        ),
        Case::must(
            "attach.second_node_is_refused",
            spec::CONTROLLER_PUBLISH,
            "a single-node volume on another node is FAILED_PRECONDITION",
            &two,
            |t| async move {
                let volume = t.volume("v").await?;
                t.call(t.attach_request(&volume, &t.bench().node_id))
                    .await
                    .ok()?;
                let other = t.bench().settings.other_node_id.clone().unwrap_or_default();
                t.call(t.attach_request(&volume, &other)).await.refused(
                    Code::FailedPrecondition,
                    "the volume is on another node and may be on one only",
                )
            },
        ),
        Case::must(
            "attach.moves_between_nodes",
            spec::CONTROLLER_PUBLISH,
            "a volume moves to another node once it has left the first",
            &two,
            |t| async move {
                let volume = t.volume("v").await?;
                let other = t.bench().settings.other_node_id.clone().unwrap_or_default();
                t.call(t.attach_request(&volume, &t.bench().node_id))
                    .await
                    .ok()?;
                t.call(detach(&volume.volume_id, &t.bench().node_id))
                    .await
                    .ok()?;
                t.call(t.attach_request(&volume, &other)).await.ok()?;
                t.call(detach(&volume.volume_id, &other))
                    .await
                    .ok()
                    .map(drop)
            },
        ),
        Case::must(
            "attach.limit_is_kept",
            spec::CONTROLLER_PUBLISH,
            "more volumes than max_volumes_per_node are refused with RESOURCE_EXHAUSTED",
            &[CREATE, ATTACH, Need::VolumeLimit(32)],
            |t| async move {
                let most = usize::try_from(t.bench().max_volumes).unwrap_or(0);
                for at in 0..most {
                    let volume = t.volume(&format!("v{at}")).await?;
                    let answer = t.call(t.attach_request(&volume, &t.bench().node_id)).await;
                    if answer.code() == Code::ResourceExhausted {
                        return Ok(()); // somebody else's volumes count too
                    }
                    answer.ok()?;
                }
                let volume = t.volume("over").await?;
                t.call(t.attach_request(&volume, &t.bench().node_id))
                    .await
                    .refused(
                        Code::ResourceExhausted,
                        "the node has max_volumes_per_node volumes already",
                    )
            },
        ),
        Case::must(
            "attach.survives_a_list",
            spec::LIST_VOLUMES,
            "listing does not disturb what is published",
            &[CREATE, ATTACH, Need::Controller(Can::ListVolumes)],
            |t| async move {
                let volume = t.volume("v").await?;
                let first = t
                    .call(t.attach_request(&volume, &t.bench().node_id))
                    .await
                    .ok()?;
                volumes_listed(&t).await?;
                let again = t
                    .call(t.attach_request(&volume, &t.bench().node_id))
                    .await
                    .ok()?;
                ensure!(
                    first == again,
                    "the answer was {first:?}, and {again:?} after a list"
                );
                Ok(())
            },
        ),
    ]
}
