//! Calls to the controller whose caller gave up.

use std::time::Duration;

use orlop_csi::client::{ControllerCapability as Can, GroupCapability};
use orlop_csi::proto;

use super::given_up;
use crate::case::{Case, Need, ensure};
use crate::cases::CREATE;
use crate::make::at_least;
use crate::spec;

pub(super) fn cases(word: &'static str, patience: Duration) -> Vec<Case> {
    let id = |call: &str| format!("late.{call}_given_up_{word}");
    let title = |spec: &str| {
        format!(
            "{spec} can be repeated after its caller gave up {}",
            word.replace('_', " ")
        )
    };
    let snapshot = Need::Controller(Can::CreateDeleteSnapshot);
    let attach = Need::Controller(Can::PublishUnpublishVolume);
    vec![
        Case::must(
            id("create"),
            spec::TIMEOUTS,
            title(spec::CREATE_VOLUME),
            &[CREATE],
            move |t| async move {
                let request = t.create_request("v");
                let first = given_up(&t, request.clone(), patience)
                    .await?
                    .volume
                    .unwrap_or_default();
                let again = t.create(request).await?;
                ensure!(
                    again.volume_id == first.volume_id,
                    "one name gave volumes {:?} and {:?}",
                    first.volume_id,
                    again.volume_id
                );
                Ok(())
            },
        ),
        Case::must(
            id("delete"),
            spec::TIMEOUTS,
            title(spec::DELETE_VOLUME),
            &[CREATE],
            move |t| async move {
                let volume = t.volume("v").await?;
                given_up(&t, t.delete_request(&volume.volume_id), patience)
                    .await
                    .map(drop)
            },
        ),
        Case::must(
            id("attach"),
            spec::TIMEOUTS,
            title(spec::CONTROLLER_PUBLISH),
            &[CREATE, attach],
            move |t| async move {
                let volume = t.volume("v").await?;
                given_up(&t, t.attach_request(&volume, &t.bench().node_id), patience)
                    .await
                    .map(drop)
            },
        ),
        Case::must(
            id("detach"),
            spec::TIMEOUTS,
            title(spec::CONTROLLER_UNPUBLISH),
            &[CREATE, attach],
            move |t| async move {
                let volume = t.volume("v").await?;
                t.call(t.attach_request(&volume, &t.bench().node_id))
                    .await
                    .ok()?;
                let request = proto::ControllerUnpublishVolumeRequest {
                    volume_id: volume.volume_id,
                    node_id: t.bench().node_id.clone(),
                    ..Default::default()
                };
                given_up(&t, request, patience).await.map(drop)
            },
        ),
        Case::must(
            id("snapshot"),
            spec::TIMEOUTS,
            title(spec::CREATE_SNAPSHOT),
            &[CREATE, snapshot],
            move |t| async move {
                let volume = t.volume("v").await?;
                let request = t.snapshot_request(&volume.volume_id, "s");
                let first = given_up(&t, request.clone(), patience)
                    .await?
                    .snapshot
                    .unwrap_or_default();
                let again = t.snapshot(&volume.volume_id, "s").await?;
                ensure!(
                    again.snapshot_id == first.snapshot_id,
                    "one name gave snapshots {:?} and {:?}",
                    first.snapshot_id,
                    again.snapshot_id
                );
                Ok(())
            },
        ),
        Case::must(
            id("delete_snapshot"),
            spec::TIMEOUTS,
            title(spec::DELETE_SNAPSHOT),
            &[CREATE, snapshot],
            move |t| async move {
                let volume = t.volume("v").await?;
                let made = t.snapshot(&volume.volume_id, "s").await?;
                given_up(
                    &t,
                    proto::DeleteSnapshotRequest {
                        snapshot_id: made.snapshot_id,
                        ..Default::default()
                    },
                    patience,
                )
                .await
                .map(drop)
            },
        ),
        Case::must(
            id("expand"),
            spec::TIMEOUTS,
            title(spec::CONTROLLER_EXPAND),
            &[CREATE, Need::Controller(Can::ExpandVolume)],
            move |t| async move {
                let volume = t.volume("v").await?;
                let request = proto::ControllerExpandVolumeRequest {
                    volume_id: volume.volume_id,
                    capacity_range: Some(at_least(t.size() * 2)),
                    volume_capability: Some(t.capability()),
                    ..Default::default()
                };
                let reply = given_up(&t, request, patience).await?;
                ensure!(
                    reply.capacity_bytes >= t.size() * 2,
                    "capacity_bytes is {}",
                    reply.capacity_bytes
                );
                Ok(())
            },
        ),
        Case::must(
            id("group"),
            spec::TIMEOUTS,
            title(spec::CREATE_GROUP),
            &[
                CREATE,
                Need::Group(GroupCapability::CreateDeleteGetVolumeGroupSnapshot),
            ],
            move |t| async move {
                let (a, b) = (t.volume("a").await?, t.volume("b").await?);
                let request = proto::CreateVolumeGroupSnapshotRequest {
                    name: t.name("g"),
                    source_volume_ids: vec![a.volume_id, b.volume_id],
                    ..Default::default()
                };
                let members = given_up(&t, request, patience)
                    .await?
                    .group_snapshot
                    .unwrap_or_default()
                    .snapshots
                    .len();
                ensure!(members == 2, "the group has {members} members");
                Ok(())
            },
        ),
    ]
}
