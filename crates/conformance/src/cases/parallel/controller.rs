//! The same call to the controller, many times at once.

use std::collections::BTreeSet;

use orlop_csi::client::{ControllerCapability as Can, GroupCapability};
use orlop_csi::proto;

use super::storm;
use crate::case::{Case, Need, Trouble, ensure};
use crate::cases::CREATE;
use crate::make::at_least;
use crate::spec;

fn one(ids: impl Iterator<Item = String>, what: &str) -> Result<(), Trouble> {
    let ids: BTreeSet<_> = ids.collect();
    ensure!(
        ids.len() <= 1,
        "one name gave {} {what}: {ids:?}",
        ids.len()
    );
    Ok(())
}

pub(super) fn cases(callers: usize) -> Vec<Case> {
    let case = |name: &str, spec: &'static str, needs: &[Need]| {
        (
            format!("parallel.{name}_by_{callers}"),
            spec,
            format!("{callers} equal calls at once are as good as one: {spec}"),
            needs.to_vec(),
        )
    };
    let snapshot = Need::Controller(Can::CreateDeleteSnapshot);
    let attach = Need::Controller(Can::PublishUnpublishVolume);
    let mut cases = Vec::new();
    let (id, spec, title, needs) = case("create", spec::CREATE_VOLUME, &[CREATE]);
    cases.push(Case::must(id, spec, title, &needs, move |t| async move {
        let replies = storm(&t, t.create_request("v"), callers).await?;
        one(
            replies
                .into_iter()
                .map(|reply| reply.volume.unwrap_or_default().volume_id),
            "volumes",
        )
    }));
    let (id, spec, title, needs) = case("delete", spec::DELETE_VOLUME, &[CREATE]);
    cases.push(Case::must(id, spec, title, &needs, move |t| async move {
        let volume = t.volume("v").await?;
        storm(&t, t.delete_request(&volume.volume_id), callers)
            .await
            .map(drop)
    }));
    let (id, spec, title, needs) = case("attach", spec::CONTROLLER_PUBLISH, &[CREATE, attach]);
    cases.push(Case::must(id, spec, title, &needs, move |t| async move {
        let volume = t.volume("v").await?;
        let replies = storm(&t, t.attach_request(&volume, &t.bench().node_id), callers).await?;
        let contexts: BTreeSet<_> = replies
            .into_iter()
            .map(|reply| reply.publish_context)
            .collect();
        ensure!(
            contexts.len() == 1,
            "one publication has {} contexts: {contexts:?}",
            contexts.len()
        );
        Ok(())
    }));
    let (id, spec, title, needs) = case("detach", spec::CONTROLLER_UNPUBLISH, &[CREATE, attach]);
    cases.push(Case::must(id, spec, title, &needs, move |t| async move {
        let volume = t.volume("v").await?;
        t.call(t.attach_request(&volume, &t.bench().node_id))
            .await
            .ok()?;
        let request = proto::ControllerUnpublishVolumeRequest {
            volume_id: volume.volume_id,
            node_id: t.bench().node_id.clone(),
            ..Default::default()
        };
        storm(&t, request, callers).await.map(drop)
    }));
    let (id, spec, title, needs) = case("snapshot", spec::CREATE_SNAPSHOT, &[CREATE, snapshot]);
    cases.push(Case::must(id, spec, title, &needs, move |t| async move {
        let volume = t.volume("v").await?;
        let replies = storm(&t, t.snapshot_request(&volume.volume_id, "s"), callers).await?;
        one(
            replies
                .into_iter()
                .map(|reply| reply.snapshot.unwrap_or_default().snapshot_id),
            "snapshots",
        )
    }));
    let (id, spec, title, needs) = case(
        "delete_snapshot",
        spec::DELETE_SNAPSHOT,
        &[CREATE, snapshot],
    );
    cases.push(Case::must(id, spec, title, &needs, move |t| async move {
        let volume = t.volume("v").await?;
        let made = t.snapshot(&volume.volume_id, "s").await?;
        storm(
            &t,
            proto::DeleteSnapshotRequest {
                snapshot_id: made.snapshot_id,
                ..Default::default()
            },
            callers,
        )
        .await
        .map(drop)
    }));
    let (id, spec, title, needs) = case("restore", spec::CREATE_VOLUME, &[CREATE, snapshot]);
    cases.push(Case::must(id, spec, title, &needs, move |t| async move {
        let volume = t.volume("v").await?;
        let made = t.snapshot(&volume.volume_id, "s").await?;
        let request = proto::CreateVolumeRequest {
            volume_content_source: Some(crate::make::from_snapshot(&made.snapshot_id)),
            ..t.create_request("r")
        };
        let replies = storm(&t, request, callers).await?;
        one(
            replies
                .into_iter()
                .map(|reply| reply.volume.unwrap_or_default().volume_id),
            "volumes",
        )
    }));
    let (id, spec, title, needs) = case(
        "clone",
        spec::CREATE_VOLUME,
        &[CREATE, Need::Controller(Can::CloneVolume)],
    );
    cases.push(Case::must(id, spec, title, &needs, move |t| async move {
        let volume = t.volume("v").await?;
        let request = proto::CreateVolumeRequest {
            volume_content_source: Some(crate::make::from_volume(&volume.volume_id)),
            ..t.create_request("c")
        };
        let replies = storm(&t, request, callers).await?;
        one(
            replies
                .into_iter()
                .map(|reply| reply.volume.unwrap_or_default().volume_id),
            "volumes",
        )
    }));
    let (id, spec, title, needs) = case(
        "expand",
        spec::CONTROLLER_EXPAND,
        &[CREATE, Need::Controller(Can::ExpandVolume)],
    );
    cases.push(Case::must(id, spec, title, &needs, move |t| async move {
        let volume = t.volume("v").await?;
        let request = proto::ControllerExpandVolumeRequest {
            volume_id: volume.volume_id,
            capacity_range: Some(at_least(t.size() * 2)),
            volume_capability: Some(t.capability()),
            ..Default::default()
        };
        let replies = storm(&t, request, callers).await?;
        let sizes: BTreeSet<_> = replies
            .into_iter()
            .map(|reply| reply.capacity_bytes)
            .collect();
        ensure!(
            sizes.len() == 1,
            "one expansion has {} results: {sizes:?}",
            sizes.len()
        );
        Ok(())
    }));
    let (id, spec, title, needs) = case(
        "group",
        spec::CREATE_GROUP,
        &[
            CREATE,
            Need::Group(GroupCapability::CreateDeleteGetVolumeGroupSnapshot),
        ],
    );
    cases.push(Case::must(id, spec, title, &needs, move |t| async move {
        let (a, b) = (t.volume("a").await?, t.volume("b").await?);
        let request = proto::CreateVolumeGroupSnapshotRequest {
            name: t.name("g"),
            source_volume_ids: vec![a.volume_id, b.volume_id],
            ..Default::default()
        };
        let replies = storm(&t, request, callers).await?;
        for reply in &replies {
            let members = reply
                .group_snapshot
                .as_ref()
                .map_or(0, |group| group.snapshots.len());
            ensure!(
                members == 2,
                "a group of two volumes was answered with {members} members"
            );
        }
        one(
            replies
                .into_iter()
                .map(|reply| reply.group_snapshot.unwrap_or_default().group_snapshot_id),
            "groups",
        )
    }));
    let (id, spec, title, needs) = case(
        "modify",
        spec::MODIFY_VOLUME,
        &[
            CREATE,
            Need::Controller(Can::ModifyVolume),
            Need::MutableParameters,
        ],
    );
    cases.push(Case::must(id, spec, title, &needs, move |t| async move {
        let volume = t.volume("v").await?;
        let request = proto::ControllerModifyVolumeRequest {
            volume_id: volume.volume_id,
            mutable_parameters: t.bench().settings.mutable_parameters.clone(),
            ..Default::default()
        };
        storm(&t, request, callers).await.map(drop)
    }));
    cases
}
