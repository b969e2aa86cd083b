//! One volume and several nodes, one node and several volumes.

use orlop_csi::client::ControllerCapability as Can;
use orlop_csi::proto;
use orlop_csi::proto::volume_capability::access_mode::Mode;
use tonic::Code;

use super::{ATTACH, detach};
use crate::case::{Case, Need, ensure};
use crate::cases::{CREATE, nodes_listed, volumes_listed};
use crate::spec;

pub(super) fn cases() -> Vec<Case> {
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
                let nodes = || nodes_listed(&t, &volume.volume_id);
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
            "attach.leaving_one_node_keeps_the_others",
            spec::CONTROLLER_UNPUBLISH,
            "a volume on two nodes that is taken from one is still on the other",
            &[listed.as_slice(), &[Need::OtherNode]].concat(),
            |t| async move {
                let mode = Mode::MultiNodeMultiWriter;
                let (volume, capability) = t.volume_for("v", mode).await?;
                let here = t.bench().node_id.clone();
                let other = t.bench().settings.other_node_id.clone().unwrap_or_default();
                for node in [&here, &other] {
                    let request = proto::ControllerPublishVolumeRequest {
                        volume_capability: Some(capability.clone()),
                        ..t.attach_request(&volume, node)
                    };
                    t.call(request).await.ok()?;
                }
                t.call(detach(&volume.volume_id, &here)).await.ok()?;
                let left = nodes_listed(&t, &volume.volume_id).await?;
                ensure!(
                    left == [other.clone()],
                    "the volume was on {here:?} and {other:?} and was taken from {here:?}; ListVolumes says that it is on {left:?}"
                );
                Ok(())
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
