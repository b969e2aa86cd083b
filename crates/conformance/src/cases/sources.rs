//! Volumes made of snapshots and of other volumes.

use orlop_csi::client::ControllerCapability as Can;
use orlop_csi::proto;
use tonic::Code;

use super::{CREATE, volumes_listed};
use crate::case::{Case, Need, Trouble, ensure};
use crate::make::{at_least, from_snapshot, from_volume};
use crate::spec;
use crate::trial::Trial;

#[derive(Clone, Copy, PartialEq)]
enum Kind {
    Snapshot,
    Volume,
}

impl Kind {
    fn word(self) -> &'static str {
        match self {
            Self::Snapshot => "snapshot",
            Self::Volume => "volume",
        }
    }

    fn needs(self) -> [Need; 2] {
        match self {
            Self::Snapshot => [CREATE, Need::Controller(Can::CreateDeleteSnapshot)],
            Self::Volume => [CREATE, Need::Controller(Can::CloneVolume)],
        }
    }

    /// Something to make a volume of, with its size.
    async fn source(
        self,
        t: &Trial,
        tag: &str,
    ) -> Result<(proto::VolumeContentSource, i64), Trouble> {
        let volume = t.volume(tag).await?;
        let size = volume.capacity_bytes.max(t.size());
        match self {
            Self::Snapshot => {
                let snapshot = t.snapshot(&volume.volume_id, tag).await?;
                Ok((
                    from_snapshot(&snapshot.snapshot_id),
                    snapshot.size_bytes.max(size),
                ))
            }
            Self::Volume => Ok((from_volume(&volume.volume_id), size)),
        }
    }

    fn unknown(self) -> proto::VolumeContentSource {
        match self {
            Self::Snapshot => from_snapshot("orlop-conformance-none"),
            Self::Volume => from_volume("orlop-conformance-none"),
        }
    }
}

fn made_of(
    t: &Trial,
    tag: &str,
    source: proto::VolumeContentSource,
    size: i64,
) -> proto::CreateVolumeRequest {
    proto::CreateVolumeRequest {
        volume_content_source: Some(source),
        capacity_range: Some(at_least(size)),
        ..t.create_request(tag)
    }
}

/// A volume that is made of something, and what the list says of it.
async fn listed_of(t: &Trial, kind: Kind) -> Result<(proto::Volume, Vec<proto::Volume>), Trouble> {
    let (source, size) = kind.source(t, "s").await?;
    let volume = t.create(made_of(t, "v", source, size)).await?;
    let mut entries = volumes_listed(t).await?;
    entries.retain(|entry| entry.volume_id == volume.volume_id);
    Ok((volume, entries))
}

pub(super) fn cases() -> Vec<Case> {
    [Kind::Snapshot, Kind::Volume]
        .into_iter()
        .flat_map(of)
        .collect()
}

fn of(kind: Kind) -> Vec<Case> {
    let word = kind.word();
    let needs = kind.needs();
    let [create, can] = needs;
    let listed = [create, can, Need::Controller(Can::ListVolumes)];
    let id = |name: &str| format!("sources.{word}_{name}");
    vec![
        Case::must(
            id("works"),
            spec::CREATE_VOLUME,
            format!("a volume is made of a {word}, and says so in content_source"),
            &needs,
            move |t| async move {
                let (source, size) = kind.source(&t, "s").await?;
                let volume = t.create(made_of(&t, "v", source.clone(), size)).await?;
                ensure!(
                    volume.content_source.as_ref() == Some(&source),
                    "the volume was made of {source:?}, its content_source is {:?}",
                    volume.content_source
                );
                Ok(())
            },
        ),
        Case::must(
            id("is_listed"),
            spec::LIST_VOLUMES,
            format!("a volume of a {word} is listed, once"),
            &listed,
            move |t| async move {
                let (volume, entries) = listed_of(&t, kind).await?;
                ensure!(
                    entries.len() == 1,
                    "volume {:?} is listed {} times",
                    volume.volume_id,
                    entries.len()
                );
                Ok(())
            },
        ),
        Case::should(
            id("is_listed_with_it"),
            spec::LIST_VOLUMES,
            format!("the list tells that a volume is made of a {word}, as CreateVolume did"),
            &listed,
            move |t| async move {
                let (volume, entries) = listed_of(&t, kind).await?;
                for entry in entries {
                    ensure!(
                        entry.content_source == volume.content_source,
                        "CreateVolume told the content_source {:?}, ListVolumes {:?}",
                        volume.content_source,
                        entry.content_source
                    );
                }
                Ok(())
            },
        ),
        Case::must(
            id("repeat_is_idempotent"),
            spec::CREATE_VOLUME,
            format!("the same request for a volume of a {word} gives the same volume"),
            &needs,
            move |t| async move {
                let (source, size) = kind.source(&t, "s").await?;
                let first = t.create(made_of(&t, "v", source.clone(), size)).await?;
                let again = t.create(made_of(&t, "v", source, size)).await?;
                ensure!(
                    again.volume_id == first.volume_id,
                    "one name gave volumes {:?} and {:?}",
                    first.volume_id,
                    again.volume_id
                );
                ensure!(
                    again.content_source == first.content_source,
                    "content_source was {:?}, and {:?} when repeated",
                    first.content_source,
                    again.content_source
                );
                Ok(())
            },
        ),
        Case::must(
            id("unknown"),
            spec::CREATE_VOLUME,
            format!("a volume of an unknown {word} is NOT_FOUND, and nothing is made"),
            &needs,
            move |t| async move {
                t.call(made_of(&t, "v", kind.unknown(), t.size()))
                    .await
                    .refused(Code::NotFound, "there is no such source")?;
                t.volume("v").await.map(drop)
            },
        ),
        Case::must(
            id("same_name_without_source"),
            spec::CREATE_VOLUME,
            format!("a name that exists without the {word} as its source is ALREADY_EXISTS"),
            &needs,
            move |t| async move {
                let (source, size) = kind.source(&t, "s").await?;
                let plain = proto::CreateVolumeRequest {
                    capacity_range: Some(at_least(size)),
                    ..t.create_request("v")
                };
                t.create(plain).await?;
                t.call(made_of(&t, "v", source, size)).await.refused(
                    Code::AlreadyExists,
                    "the volume of this name was made without a source",
                )
            },
        ),
        Case::must(
            id("same_name_with_source"),
            spec::CREATE_VOLUME,
            format!(
                "a name that exists with a {word} as its source is ALREADY_EXISTS for an empty volume"
            ),
            &needs,
            move |t| async move {
                let (source, size) = kind.source(&t, "s").await?;
                t.create(made_of(&t, "v", source, size)).await?;
                let plain = proto::CreateVolumeRequest {
                    capacity_range: Some(at_least(size)),
                    ..t.create_request("v")
                };
                t.call(plain).await.refused(
                    Code::AlreadyExists,
                    "the volume of this name was made with a source",
                )
            },
        ),
        Case::must(
            id("same_name_other_source"),
            spec::CREATE_VOLUME,
            format!("a name that exists with another {word} as its source is ALREADY_EXISTS"),
            &needs,
            move |t| async move {
                let (one, size) = kind.source(&t, "a").await?;
                let (other, _) = kind.source(&t, "b").await?;
                t.create(made_of(&t, "v", one, size)).await?;
                t.call(made_of(&t, "v", other, size)).await.refused(
                    Code::AlreadyExists,
                    "the volume of this name was made with another source",
                )
            },
        ),
        Case::must(
            id("into_a_smaller_volume"),
            spec::CREATE_VOLUME,
            format!(
                "a volume smaller than its {word} is refused with OUT_OF_RANGE, or made large enough"
            ),
            &needs,
            move |t| async move {
                let (source, size) = kind.source(&t, "s").await?;
                let request = proto::CreateVolumeRequest {
                    capacity_range: Some(proto::CapacityRange {
                        required_bytes: size / 4,
                        limit_bytes: size / 2,
                    }),
                    ..made_of(&t, "v", source, size)
                };
                t.call(request).await.refused_with_any(
                    &[Code::OutOfRange, Code::InvalidArgument],
                    "the source's data doesn't fit",
                )
            },
        ),
        Case::must(
            id("into_a_larger_volume"),
            spec::CREATE_VOLUME,
            format!("a volume larger than its {word} is made so, or refused with OUT_OF_RANGE"),
            &needs,
            move |t| async move {
                let (source, size) = kind.source(&t, "s").await?;
                let reply = t
                    .call(made_of(&t, "v", source, size * 2))
                    .await
                    .ok_or_any(&[Code::OutOfRange], "larger volumes may be unsupported")?;
                let Some(volume) = reply.and_then(|reply| reply.volume) else {
                    return Ok(());
                };
                ensure!(
                    volume.capacity_bytes == 0 || volume.capacity_bytes >= size * 2,
                    "{} bytes were asked for, the volume has {}",
                    size * 2,
                    volume.capacity_bytes
                );
                let placed = t.staged(volume, t.capability()).await?;
                let target = t.target("v")?;
                t.call(placed.publish_request(&target)).await.ok()?;
                let seen = crate::data::size_at(&target).await?;
                ensure!(
                    seen >= size / 10 * 14,
                    "the volume has {} bytes, but at its target path only {seen} are seen: the file system was not grown",
                    size * 2
                );
                Ok(())
            },
        ),
        Case::must(
            id("without_capacity"),
            spec::CREATE_VOLUME,
            format!("without capacity_range a volume is as large as its {word}"),
            &needs,
            move |t| async move {
                let (source, size) = kind.source(&t, "s").await?;
                let request = proto::CreateVolumeRequest {
                    capacity_range: None,
                    ..made_of(&t, "v", source, size)
                };
                let volume = t.create(request).await?;
                ensure!(
                    volume.capacity_bytes == 0 || volume.capacity_bytes >= size,
                    "the source has {size} bytes, the volume {}",
                    volume.capacity_bytes
                );
                Ok(())
            },
        ),
        Case::must(
            id("outlives_its_source"),
            spec::CREATE_VOLUME,
            format!(
                "the volume stays usable when its {word} is deleted, or the deletion is refused"
            ),
            &needs,
            move |t| async move {
                let (source, size) = kind.source(&t, "s").await?;
                let volume = t.create(made_of(&t, "v", source.clone(), size)).await?;
                use proto::volume_content_source::Type;
                let deleted = match source.r#type {
                    Some(Type::Snapshot(source)) => {
                        let request = proto::DeleteSnapshotRequest {
                            snapshot_id: source.snapshot_id,
                            ..Default::default()
                        };
                        t.call(request)
                            .await
                            .ok_or_any(&[Code::FailedPrecondition], "a volume may depend on it")?
                            .is_some()
                    }
                    Some(Type::Volume(source)) => t
                        .call(t.delete_request(&source.volume_id))
                        .await
                        .ok_or_any(&[Code::FailedPrecondition], "a volume may depend on it")?
                        .is_some(),
                    None => false,
                };
                if !deleted {
                    return Ok(());
                }
                let placed = t.staged(volume, t.capability()).await?;
                let target = t.target("v")?;
                t.call(placed.publish_request(&target)).await.ok()?;
                crate::data::write(&target, 1).await
            },
        ),
    ]
}
