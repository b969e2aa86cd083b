//! A driver that is killed in the middle of a call.

use std::fmt::Debug;
use std::time::Duration;

use orlop_csi::client::{ControllerCapability as Can, NodeCapability};
use orlop_csi::{Unary, proto};
use orlop_host::Occupant;
use tonic::Code;

use super::{ATTACH, RESTART, SNAPSHOTS, at, layers, restart};
use crate::case::{Case, Need, Trouble, ensure};
use crate::cases::CREATE;
use crate::make::at_least;
use crate::spec;
use crate::trial::Trial;

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

pub(super) fn cases() -> Vec<Case> {
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
