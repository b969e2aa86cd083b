//! `CreateVolume`: its name is its identity.

use orlop_csi::client::ControllerCapability as Can;
use orlop_csi::proto;
use proto::volume_capability::access_mode::Mode;
use tonic::Code;

use super::CREATE;
use crate::case::{Case, Need, ensure};
use crate::make::{at_least, block_capability, mount_capability};
use crate::spec;
use crate::trial::Trial;

pub(super) fn cases() -> Vec<Case> {
    vec![
        Case::must(
            "create.works",
            spec::CREATE_VOLUME,
            "a volume is made, with an id",
            &[CREATE],
            |t| async move { t.volume("v").await.map(drop) },
        ),
        Case::must(
            "create.without_capacity",
            spec::CREATE_VOLUME,
            "capacity_range is optional",
            &[CREATE],
            |t| async move {
                let request = proto::CreateVolumeRequest {
                    capacity_range: None,
                    ..t.create_request("v")
                };
                t.create(request).await.map(drop)
            },
        ),
        Case::must(
            "create.repeat_is_idempotent",
            spec::CREATE_VOLUME,
            "the same request again gives the same volume",
            &[CREATE],
            |t| async move {
                let request = t.create_request("v");
                let first = t.create(request.clone()).await?;
                for _ in 0..5 {
                    let again = t.create(request.clone()).await?;
                    ensure!(
                        again.volume_id == first.volume_id,
                        "CreateVolume of name {:?} gave volume {:?} first and {:?} when repeated: two volumes for one name",
                        request.name,
                        first.volume_id,
                        again.volume_id
                    );
                }
                Ok(())
            },
        ),
        Case::must(
            "create.repeat_gives_equal_answer",
            spec::CREATE_VOLUME,
            "the answer to a repeated request has the same context, capacity and topology",
            &[CREATE],
            |t| async move {
                let request = t.create_request("v");
                let first = t.create(request.clone()).await?;
                let again = t.create(request).await?;
                ensure!(
                    again.volume_context == first.volume_context,
                    "volume_context was {:?}, and {:?} when repeated: it is immutable",
                    first.volume_context,
                    again.volume_context
                );
                ensure!(
                    again.capacity_bytes == first.capacity_bytes,
                    "capacity_bytes was {}, and {} when repeated",
                    first.capacity_bytes,
                    again.capacity_bytes
                );
                ensure!(
                    again.accessible_topology == first.accessible_topology,
                    "accessible_topology was {:?}, and {:?} when repeated",
                    first.accessible_topology,
                    again.accessible_topology
                );
                Ok(())
            },
        ),
        Case::must(
            "create.same_name_other_size_is_refused",
            spec::CREATE_VOLUME,
            "a name that exists with an incompatible size is ALREADY_EXISTS",
            &[CREATE],
            |t| async move {
                let request = t.create_request("v");
                let first = t.create(request.clone()).await?;
                let other = proto::CreateVolumeRequest {
                    capacity_range: Some(at_least(first.capacity_bytes.max(t.size()) * 2)),
                    ..request
                };
                t.call(other)
                    .await
                    .refused(Code::AlreadyExists, "the name exists with a smaller size")
            },
        ),
        Case::must(
            "create.same_name_smaller_limit_is_refused",
            spec::CREATE_VOLUME,
            "a name that exists with a size over the new limit is ALREADY_EXISTS",
            &[CREATE],
            |t| async move {
                let request = t.create_request("v");
                let first = t.create(request.clone()).await?;
                if first.capacity_bytes == 0 {
                    return Err(crate::case::Trouble::Skip(
                        "the driver doesn't tell capacity_bytes".into(),
                    ));
                }
                let other = proto::CreateVolumeRequest {
                    capacity_range: Some(proto::CapacityRange {
                        required_bytes: 0,
                        limit_bytes: first.capacity_bytes / 2,
                    }),
                    ..request
                };
                t.call(other).await.refused_with_any(
                    &[Code::AlreadyExists, Code::OutOfRange],
                    "the name exists with a larger size than limit_bytes",
                )
            },
        ),
        Case::should(
            "create.same_name_other_parameters_is_refused",
            spec::CREATE_VOLUME,
            "a name that exists with other parameters is ALREADY_EXISTS, or INVALID_ARGUMENT if they are unknown",
            &[CREATE],
            |t| async move {
                let request = t.create_request("v");
                t.create(request.clone()).await?;
                let mut other = request;
                let key = "orlop-conformance".to_owned();
                other.parameters.insert(key, "other".to_owned());
                t.call(other).await.refused_with_any(
                    &[Code::AlreadyExists, Code::InvalidArgument],
                    "the name exists with other parameters, which may mean another kind of storage",
                )
            },
        ),
        Case::must(
            "create.same_name_other_capabilities_is_refused",
            spec::CREATE_VOLUME,
            "a name that exists with other capabilities is ALREADY_EXISTS, unless the volume has those, too",
            &[CREATE, Need::MountVolumes, Need::BlockVolumes],
            |t| async move {
                let files = mount_capability(Mode::SingleNodeWriter, &t.bench().settings.fs_type);
                let device = vec![block_capability(Mode::SingleNodeWriter)];
                let request = proto::CreateVolumeRequest {
                    volume_capabilities: vec![files],
                    ..t.create_request("v")
                };
                let first = t.create(request.clone()).await?;
                let other = proto::CreateVolumeRequest {
                    volume_capabilities: device.clone(),
                    ..request
                };
                let answer = t.call(other).await;
                if !answer.is_ok() {
                    return answer.refused_with_any(
                        &[Code::AlreadyExists, Code::InvalidArgument],
                        "the name exists as a volume with a file system",
                    );
                }
                let again = Trial::created(answer)?;
                ensure!(
                    again.volume_id == first.volume_id,
                    "two volumes for one name: {:?} and {:?}",
                    first.volume_id,
                    again.volume_id
                );
                let validate = proto::ValidateVolumeCapabilitiesRequest {
                    volume_id: again.volume_id,
                    volume_context: again.volume_context,
                    volume_capabilities: device,
                    ..Default::default()
                };
                let reply = t.call(validate).await.ok()?;
                ensure!(
                    reply.confirmed.is_some(),
                    "CreateVolume says that the volume of this name is a block device as was asked, ValidateVolumeCapabilities says that it is none: {}",
                    reply.message
                );
                Ok(())
            },
        ),
        Case::must(
            "create.compatible_range_finds_the_volume",
            spec::CREATE_VOLUME,
            "another range that the existing volume fits gives that volume",
            &[CREATE],
            |t| async move {
                let request = t.create_request("v");
                let first = t.create(request.clone()).await?;
                let other = proto::CreateVolumeRequest {
                    capacity_range: Some(proto::CapacityRange {
                        required_bytes: t.size(),
                        limit_bytes: first.capacity_bytes.max(t.size()) * 4,
                    }),
                    ..request
                };
                let again = t.create(other).await?;
                ensure!(
                    again.volume_id == first.volume_id,
                    "two volumes for one name: {:?} and {:?}",
                    first.volume_id,
                    again.volume_id
                );
                Ok(())
            },
        ),
        Case::must(
            "create.other_names_are_other_volumes",
            spec::CREATE_VOLUME,
            "two names are two volumes",
            &[CREATE],
            |t| async move {
                let first = t.volume("a").await?;
                let second = t.volume("b").await?;
                ensure!(
                    first.volume_id != second.volume_id,
                    "two names gave one volume {:?}",
                    first.volume_id
                );
                Ok(())
            },
        ),
        Case::must(
            "create.names_are_case_sensitive",
            spec::CREATE_VOLUME,
            "names that differ in case only are two volumes",
            &[CREATE],
            |t| async move {
                let lower = t.volume("name").await?;
                let upper = t.volume("NAME").await?;
                ensure!(
                    lower.volume_id != upper.volume_id,
                    "names that differ in case gave one volume {:?}",
                    lower.volume_id
                );
                Ok(())
            },
        ),
        Case::must(
            "create.name_is_free_after_delete",
            spec::CREATE_VOLUME,
            "a name can be used again once its volume is deleted",
            &[CREATE],
            |t| async move {
                let request = t.create_request("v");
                let first = t.create(request.clone()).await?;
                t.call(t.delete_request(&first.volume_id)).await.ok()?;
                let other = proto::CreateVolumeRequest {
                    capacity_range: Some(at_least(t.size() * 2)),
                    ..request
                };
                t.create(other).await.map(drop)
            },
        ),
        Case::must(
            "create.several_capabilities",
            spec::CREATE_VOLUME,
            "a volume for several capabilities has all of them, or is refused with INVALID_ARGUMENT",
            &[CREATE],
            |t| async move {
                let capabilities =
                    vec![t.capability(), t.capability_for(Mode::SingleNodeReaderOnly)];
                let request = proto::CreateVolumeRequest {
                    volume_capabilities: capabilities.clone(),
                    ..t.create_request("v")
                };
                let reply = t
                    .call(request)
                    .await
                    .ok_or_any(&[Code::InvalidArgument], "both capabilities must be met")?;
                let Some(volume) = reply.and_then(|reply| reply.volume) else {
                    return Ok(());
                };
                let validate = proto::ValidateVolumeCapabilitiesRequest {
                    volume_id: volume.volume_id,
                    volume_context: volume.volume_context,
                    volume_capabilities: capabilities,
                    ..Default::default()
                };
                let reply = t.call(validate).await.ok()?;
                ensure!(
                    reply.confirmed.is_some(),
                    "CreateVolume took two capabilities, but ValidateVolumeCapabilities does not confirm them: {}",
                    reply.message
                );
                Ok(())
            },
        ),
        Case::must(
            "create.source_is_refused_without_capability",
            spec::CREATE_VOLUME,
            "a driver without CLONE_VOLUME refuses a source volume",
            &[CREATE, Need::NoController(Can::CloneVolume)],
            |t| async move {
                let source = t.volume("source").await?;
                let request = proto::CreateVolumeRequest {
                    volume_content_source: Some(crate::make::from_volume(&source.volume_id)),
                    ..t.create_request("clone")
                };
                t.call(request).await.refused_with_any(
                    &[Code::InvalidArgument, Code::Unimplemented],
                    "the driver has no CLONE_VOLUME; making an empty volume would lose data",
                )
            },
        ),
        Case::must(
            "create.snapshot_source_is_refused_without_capability",
            spec::CREATE_VOLUME,
            "a driver without snapshots refuses a source snapshot",
            &[CREATE, Need::NoController(Can::CreateDeleteSnapshot)],
            |t| async move {
                let request = proto::CreateVolumeRequest {
                    volume_content_source: Some(crate::make::from_snapshot(
                        "orlop-conformance-none",
                    )),
                    ..t.create_request("v")
                };
                t.call(request).await.refused_with_any(
                    &[Code::InvalidArgument, Code::NotFound, Code::Unimplemented],
                    "the driver has no snapshots; making an empty volume would lose data",
                )
            },
        ),
    ]
}
