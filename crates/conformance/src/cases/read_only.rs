//! Read-only is really read-only.

use std::io::ErrorKind;

use orlop_csi::client::NodeCapability;
use orlop_csi::proto;
use proto::volume_capability::access_mode::Mode;

use super::CREATE;
use crate::case::{Case, Need, Trouble, ensure};
use crate::data;
use crate::make::{block_capability, mount_capability};
use crate::spec;
use crate::trial::Trial;

/// A write is refused because `readonly` is set.
pub(super) async fn refuses_writes(target: &str) -> Result<(), Trouble> {
    refuses_writes_because("readonly is set", target).await
}

/// A write is refused because the volume is read-only.
pub(super) async fn refuses_writes_because(why: &str, target: &str) -> Result<(), Trouble> {
    match data::try_write(target).await {
        Ok(()) => Err(Trouble::Against(format!(
            "{why}, but a write at {target} succeeded"
        ))),
        Err(ErrorKind::ReadOnlyFilesystem | ErrorKind::PermissionDenied) => Ok(()),
        Err(other) => Err(Trouble::Against(format!(
            "{why}; a write at {target} failed with {other}, not because the volume is read-only"
        ))),
    }
}

/// A volume with data, unpublished but staged.
async fn with_data(
    t: &Trial,
    capability: proto::VolumeCapability,
) -> Result<crate::make::Placed, Trouble> {
    let placed = t.staged_with("v", capability).await?;
    let target = t.target("writer")?;
    t.call(placed.publish_request(&target)).await.ok()?;
    data::write(&target, 1).await?;
    t.call(placed.unpublish_request(&target)).await.ok()?;
    Ok(placed)
}

pub(super) fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    for (kind, block) in [("mount", false), ("block", true)] {
        let need = if block {
            Need::BlockVolumes
        } else {
            Need::MountVolumes
        };
        let capability = move |t: &Trial, mode: Mode| {
            if block {
                block_capability(mode)
            } else {
                mount_capability(mode, &t.bench().settings.fs_type)
            }
        };
        cases.push(Case::must(
            format!("read_only.{kind}_refuses_writes"),
            spec::PUBLISH,
            format!("a {kind} volume published with readonly can't be written"),
            &[CREATE, need],
            move |t| async move {
                let placed = with_data(&t, capability(&t, Mode::SingleNodeWriter)).await?;
                let target = t.target("reader")?;
                t.call(proto::NodePublishVolumeRequest {
                    readonly: true,
                    ..placed.publish_request(&target)
                })
                .await
                .ok()?;
                refuses_writes(&target).await?;
                ensure!(
                    data::holds(&target, 1).await?,
                    "the volume's data can't be read where it is published with readonly"
                );
                Ok(())
            },
        ));
        cases.push(Case::must(format!("read_only.{kind}_after_a_writer"), spec::PUBLISH, format!("a {kind} volume published with readonly beside a writer reads, and leaves the writer writing"), &[CREATE, need, Need::Node(NodeCapability::SingleNodeMultiWriter)], move |t| async move {
            let capability = capability(&t, Mode::SingleNodeMultiWriter);
            let placed = t.staged_with("v", capability).await?;
            let (writer, reader) = (t.target("writer")?, t.target("reader")?);
            t.call(placed.publish_request(&writer)).await.ok()?;
            data::write(&writer, 1).await?;
            t.call(proto::NodePublishVolumeRequest { readonly: true, ..placed.publish_request(&reader) }).await.ok()?;
            ensure!(data::holds(&reader, 1).await?, "the reader doesn't see the writer's data");
            refuses_writes(&reader).await?;
            data::write(&writer, 2).await
        }));
        cases.push(Case::must(
            format!("read_only.{kind}_then_writable"),
            spec::PUBLISH,
            format!("a {kind} volume can be written again after it was published with readonly"),
            &[CREATE, need],
            move |t| async move {
                let placed = with_data(&t, capability(&t, Mode::SingleNodeWriter)).await?;
                let target = t.target("reader")?;
                t.call(proto::NodePublishVolumeRequest {
                    readonly: true,
                    ..placed.publish_request(&target)
                })
                .await
                .ok()?;
                t.call(placed.unpublish_request(&target)).await.ok()?;
                t.call(placed.publish_request(&target)).await.ok()?;
                data::write(&target, 2).await
            },
        ));
    }
    cases.push(Case::must(
        "read_only.repeat_stays_read_only",
        spec::PUBLISH,
        "publishing with readonly again stays read-only",
        &[CREATE],
        |t| async move {
            let placed = with_data(&t, t.capability()).await?;
            let target = t.target("reader")?;
            for _ in 0..3 {
                t.call(proto::NodePublishVolumeRequest {
                    readonly: true,
                    ..placed.publish_request(&target)
                })
                .await
                .ok()?;
            }
            refuses_writes(&target).await
        },
    ));
    cases
}
