//! Data through snapshots, clones and growth.

use orlop_csi::client::ControllerCapability as Can;
use orlop_csi::proto;
use proto::volume_capability::access_mode::Mode;

use super::CREATE;
use crate::case::{Case, Need, Trouble, ensure};
use crate::data;
use crate::make::{Placed, block_capability, from_snapshot, from_volume, mount_capability};
use crate::spec;
use crate::trial::Trial;

/// A volume of a kind, published for writing.
async fn published(
    t: &Trial,
    tag: &str,
    block: bool,
    source: Option<proto::VolumeContentSource>,
) -> Result<(Placed, String), Trouble> {
    let capability = if block {
        block_capability(Mode::SingleNodeWriter)
    } else {
        mount_capability(Mode::SingleNodeWriter, &t.bench().settings.fs_type)
    };
    let request = proto::CreateVolumeRequest {
        volume_capabilities: vec![capability.clone()],
        volume_content_source: source,
        ..t.create_request(tag)
    };
    publish(t, tag, t.create(request).await?, capability).await
}

async fn publish(
    t: &Trial,
    tag: &str,
    volume: proto::Volume,
    capability: proto::VolumeCapability,
) -> Result<(Placed, String), Trouble> {
    let placed = t.staged(volume, capability).await?;
    let target = t.target(tag)?;
    t.call(placed.publish_request(&target)).await.ok()?;
    Ok((placed, target))
}

/// A clone of a published volume, published itself.
async fn cloned(
    t: &Trial,
    tag: &str,
    (source, target): &mut (Placed, String),
) -> Result<(Placed, String), Trouble> {
    let capability = source.capability.clone();
    let request = proto::CreateVolumeRequest {
        volume_capabilities: vec![capability.clone()],
        volume_content_source: Some(from_volume(&source.id())),
        ..t.create_request(tag)
    };
    let clone = t.clone_of_published(source, target, request).await?;
    publish(t, tag, clone, capability).await
}

pub(super) fn cases() -> Vec<Case> {
    [false, true].into_iter().flat_map(of).collect()
}

fn of(block: bool) -> Vec<Case> {
    let kind = if block { "block" } else { "mount" };
    let need = if block {
        Need::BlockVolumes
    } else {
        Need::MountVolumes
    };
    let snapshots = [CREATE, need, Need::Controller(Can::CreateDeleteSnapshot)];
    let clones = [CREATE, need, Need::Controller(Can::CloneVolume)];
    let id = |name: &str| format!("data.{kind}_{name}");
    vec![
        Case::must(
            id("is_restored"),
            spec::CREATE_SNAPSHOT,
            format!("a {kind} volume of a snapshot holds the data from before the cut"),
            &snapshots,
            move |t| async move {
                let (mut placed, target) = published(&t, "v", block, None).await?;
                for seed in [1, 2, 3] {
                    data::write(&target, seed).await?;
                }
                let made = t.snapshot_of_published(&mut placed, &target, "s").await?;
                let (_, restored) =
                    published(&t, "r", block, Some(from_snapshot(&made.snapshot_id))).await?;
                for seed in [1, 2, 3] {
                    ensure!(
                        data::holds(&restored, seed).await?,
                        "data that was written and synced before the snapshot is not in the volume that was made of it"
                    );
                }
                Ok(())
            },
        ),
        Case::must(
            id("is_cut_at_the_snapshot"),
            spec::CREATE_SNAPSHOT,
            format!("a {kind} volume of a snapshot holds nothing from after the cut"),
            &snapshots,
            move |t| async move {
                let (mut placed, target) = published(&t, "v", block, None).await?;
                data::write(&target, 1).await?;
                let made = t.snapshot_of_published(&mut placed, &target, "s").await?;
                data::spoil(&target, 1).await?;
                data::write(&target, 2).await?;
                let (_, restored) =
                    published(&t, "r", block, Some(from_snapshot(&made.snapshot_id))).await?;
                ensure!(
                    data::holds(&restored, 1).await?,
                    "data that was overwritten after the snapshot is overwritten in it too"
                );
                ensure!(
                    !data::holds(&restored, 2).await?,
                    "data that was written after the snapshot is in the volume that was made of it"
                );
                Ok(())
            },
        ),
        Case::must(
            id("snapshot_outlives_its_volume"),
            spec::CREATE_SNAPSHOT,
            format!(
                "a snapshot of a {kind} volume keeps its data when the volume is deleted, or the deletion is refused"
            ),
            &snapshots,
            move |t| async move {
                let (mut placed, target) = published(&t, "v", block, None).await?;
                data::write(&target, 1).await?;
                let made = t.snapshot_of_published(&mut placed, &target, "s").await?;
                t.take_down(&placed, &target).await?;
                if t.call(t.delete_request(&placed.id()))
                    .await
                    .ok_or_any(
                        &[tonic::Code::FailedPrecondition],
                        "the volume has a snapshot",
                    )?
                    .is_none()
                {
                    return Ok(());
                }
                let (_, restored) =
                    published(&t, "r", block, Some(from_snapshot(&made.snapshot_id))).await?;
                ensure!(
                    data::holds(&restored, 1).await?,
                    "the snapshot lost its data with its volume"
                );
                Ok(())
            },
        ),
        Case::must(
            id("restored_outlives_its_snapshot"),
            spec::DELETE_SNAPSHOT,
            format!(
                "a {kind} volume of a snapshot keeps its data when the snapshot is deleted, or the deletion is refused"
            ),
            &snapshots,
            move |t| async move {
                let (mut placed, target) = published(&t, "v", block, None).await?;
                data::write(&target, 1).await?;
                let made = t.snapshot_of_published(&mut placed, &target, "s").await?;
                let source = Some(from_snapshot(&made.snapshot_id));
                let (restored, target) = published(&t, "r", block, source).await?;
                t.take_down(&restored, &target).await?;
                let delete = proto::DeleteSnapshotRequest {
                    snapshot_id: made.snapshot_id,
                    ..Default::default()
                };
                t.call(delete).await.ok_or_any(
                    &[tonic::Code::FailedPrecondition],
                    "a volume was made of the snapshot",
                )?;
                let (_, target) = publish(&t, "r", restored.volume, restored.capability).await?;
                ensure!(
                    data::holds(&target, 1).await?,
                    "the volume lost its data with the snapshot that it was made of"
                );
                Ok(())
            },
        ),
        Case::must(
            id("restored_is_independent"),
            spec::CREATE_VOLUME,
            format!("two {kind} volumes of one snapshot are independent of each other"),
            &snapshots,
            move |t| async move {
                let (mut placed, target) = published(&t, "v", block, None).await?;
                data::write(&target, 1).await?;
                let made = t.snapshot_of_published(&mut placed, &target, "s").await?;
                let (_, one) =
                    published(&t, "a", block, Some(from_snapshot(&made.snapshot_id))).await?;
                let (_, two) =
                    published(&t, "b", block, Some(from_snapshot(&made.snapshot_id))).await?;
                data::spoil(&one, 1).await?;
                data::write(&one, 2).await?;
                ensure!(
                    data::holds(&two, 1).await? && !data::holds(&two, 2).await?,
                    "a write to one volume shows in another one of the same snapshot"
                );
                ensure!(
                    data::holds(&target, 1).await?,
                    "a write to a restored volume shows in the snapshot's source"
                );
                let (_, three) =
                    published(&t, "c", block, Some(from_snapshot(&made.snapshot_id))).await?;
                ensure!(
                    data::holds(&three, 1).await?,
                    "a write to a restored volume has changed the snapshot"
                );
                Ok(())
            },
        ),
        Case::must(
            id("is_cloned"),
            spec::CREATE_VOLUME,
            format!("a clone of a {kind} volume holds its data, and is independent of it"),
            &clones,
            move |t| async move {
                let mut source = published(&t, "v", block, None).await?;
                data::write(&source.1, 1).await?;
                let (_, clone) = cloned(&t, "c", &mut source).await?;
                let (_, target) = source;
                ensure!(
                    data::holds(&clone, 1).await?,
                    "data that was written and synced before the clone is not in it"
                );
                data::spoil(&clone, 1).await?;
                data::write(&target, 2).await?;
                ensure!(
                    data::holds(&target, 1).await?,
                    "a write to the clone shows in its source"
                );
                ensure!(
                    !data::holds(&clone, 2).await?,
                    "a write to the source shows in its clone"
                );
                Ok(())
            },
        ),
        Case::must(
            id("many_snapshots"),
            spec::CREATE_SNAPSHOT,
            format!("three snapshots of a {kind} volume each hold their own moment"),
            &snapshots,
            move |t| async move {
                let (mut placed, target) = published(&t, "v", block, None).await?;
                let mut made = Vec::new();
                for seed in [1, 2, 3] {
                    data::write(&target, seed).await?;
                    let tag = format!("s{seed}");
                    made.push(t.snapshot_of_published(&mut placed, &target, &tag).await?);
                }
                for (at, snapshot) in made.iter().enumerate() {
                    let (_, restored) = published(
                        &t,
                        &format!("r{at}"),
                        block,
                        Some(from_snapshot(&snapshot.snapshot_id)),
                    )
                    .await?;
                    for seed in [1, 2, 3_u64] {
                        let there = data::holds(&restored, seed).await?;
                        let wanted = seed <= at as u64 + 1;
                        ensure!(
                            there == wanted,
                            "snapshot {} of 3 {} the data of step {seed}",
                            at + 1,
                            if there { "holds" } else { "lacks" }
                        );
                    }
                }
                Ok(())
            },
        ),
        Case::must(
            id("clone_of_a_clone"),
            spec::CREATE_VOLUME,
            format!("a clone of a clone of a {kind} volume holds the data"),
            &clones,
            move |t| async move {
                let mut source = published(&t, "v", block, None).await?;
                data::write(&source.1, 1).await?;
                let mut clone = cloned(&t, "c", &mut source).await?;
                let (_, second) = cloned(&t, "d", &mut clone).await?;
                ensure!(
                    data::holds(&second, 1).await?,
                    "the clone of a clone lacks the data"
                );
                Ok(())
            },
        ),
    ]
}
