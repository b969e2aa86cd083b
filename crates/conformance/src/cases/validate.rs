//! `ValidateVolumeCapabilities`: what is confirmed must hold.

use orlop_csi::proto;
use proto::volume_capability::access_mode::Mode;
use tonic::Code;

use super::CREATE;
use crate::case::{Case, Need, ensure};
use crate::make::{block_capability, mount_capability};
use crate::spec;

fn ask(
    volume: &proto::Volume,
    capabilities: Vec<proto::VolumeCapability>,
) -> proto::ValidateVolumeCapabilitiesRequest {
    proto::ValidateVolumeCapabilitiesRequest {
        volume_id: volume.volume_id.clone(),
        volume_context: volume.volume_context.clone(),
        volume_capabilities: capabilities,
        ..Default::default()
    }
}

pub(super) fn cases() -> Vec<Case> {
    let mut cases = vec![
        Case::must(
            "validate.confirms_what_was_created",
            spec::VALIDATE,
            "the capabilities that a volume was created with are confirmed, and echoed",
            &[CREATE],
            |t| async move {
                let volume = t.volume("v").await?;
                let reply = t.call(ask(&volume, vec![t.capability()])).await.ok()?;
                let Some(confirmed) = reply.confirmed else {
                    ensure!(
                        false,
                        "a volume was made for {:?}, but that is not confirmed: {}",
                        t.capability(),
                        reply.message
                    );
                    return Ok(());
                };
                ensure!(
                    !confirmed.volume_capabilities.is_empty(),
                    "confirmed.volume_capabilities is empty, but it is required"
                );
                ensure!(
                    confirmed.volume_capabilities.len() == 1,
                    "one capability was asked for, {} are confirmed",
                    confirmed.volume_capabilities.len()
                );
                Ok(())
            },
        ),
        Case::must(
            "validate.unknown_volume",
            spec::VALIDATE,
            "an unknown volume is NOT_FOUND",
            &[CREATE],
            |t| async move {
                let unknown = proto::Volume {
                    volume_id: "orlop-conformance-none".into(),
                    ..Default::default()
                };
                t.call(ask(&unknown, vec![t.capability()]))
                    .await
                    .refused(Code::NotFound, "there is no such volume")
            },
        ),
        Case::must(
            "validate.repeat_is_equal",
            spec::VALIDATE,
            "the same question has the same answer",
            &[CREATE],
            |t| async move {
                let volume = t.volume("v").await?;
                let first = t.call(ask(&volume, vec![t.capability()])).await.ok()?;
                let again = t.call(ask(&volume, vec![t.capability()])).await.ok()?;
                ensure!(
                    first.confirmed.is_some() == again.confirmed.is_some(),
                    "confirmed the first time: {}, the second: {}",
                    first.confirmed.is_some(),
                    again.confirmed.is_some()
                );
                Ok(())
            },
        ),
        Case::must(
            "validate.all_or_nothing",
            spec::VALIDATE,
            "two capabilities are confirmed together or not at all",
            &[CREATE],
            |t| async move {
                let volume = t.volume("v").await?;
                let asked = vec![t.capability(), t.capability_for(Mode::MultiNodeMultiWriter)];
                let reply = t
                    .call(ask(&volume, asked))
                    .await
                    .ok_or_any(&[Code::InvalidArgument], "a capability may be unsupported")?;
                if let Some(confirmed) = reply.and_then(|reply| reply.confirmed) {
                    ensure!(
                        confirmed.volume_capabilities.len() == 2,
                        "two capabilities were asked for, {} are confirmed: either all are supported or confirmed must be empty",
                        confirmed.volume_capabilities.len()
                    );
                }
                Ok(())
            },
        ),
        Case::must(
            "validate.unsupported_file_system",
            spec::VALIDATE,
            "a file system that doesn't exist is not confirmed",
            &[CREATE, Need::MountVolumes],
            |t| async move {
                if t.bench().settings.block {
                    return Err(crate::case::Trouble::Skip(
                        "test volumes are raw block ones".into(),
                    ));
                }
                let volume = t.volume("v").await?;
                let asked = mount_capability(Mode::SingleNodeWriter, "orlopfs");
                let reply = t
                    .call(ask(&volume, vec![asked]))
                    .await
                    .ok_or_any(&[Code::InvalidArgument], "no such file system exists")?;
                if reply.and_then(|reply| reply.confirmed).is_some() {
                    t.warn("the driver confirms fs_type \"orlopfs\", which doesn't exist");
                }
                Ok(())
            },
        ),
        Case::must(
            "validate.leaves_the_volume",
            spec::VALIDATE,
            "validating changes nothing",
            &[CREATE],
            |t| async move {
                let request = t.create_request("v");
                let before = t.create(request.clone()).await?;
                t.call(ask(
                    &before,
                    vec![t.capability_for(Mode::SingleNodeReaderOnly)],
                ))
                .await
                .ok_or_any(&[Code::InvalidArgument], "the mode may be unsupported")?;
                let after = t.create(request).await?;
                ensure!(
                    after == before,
                    "the volume was {before:?}, and {after:?} after ValidateVolumeCapabilities"
                );
                Ok(())
            },
        ),
    ];
    // What CreateVolume takes, validation confirms; what it refuses, validation doesn't.
    for (id, mode) in super::MODES {
        for (kind, block) in [("mount", false), ("block", true)] {
            let title = format!(
                "CreateVolume and ValidateVolumeCapabilities agree on {} with {kind}",
                mode.as_str_name()
            );
            let need = if block {
                Need::BlockVolumes
            } else {
                Need::MountVolumes
            };
            cases.push(Case::must(format!("validate.agrees_on_{id}_{kind}"), spec::VALIDATE, title, &[CREATE, need], move |t| async move {
                let capability = if block { block_capability(mode) } else { mount_capability(mode, &t.bench().settings.fs_type) };
                let request = proto::CreateVolumeRequest { volume_capabilities: vec![capability.clone()], ..t.create_request("v") };
                let made = t.call(request).await.ok_or_any(&[Code::InvalidArgument], "the mode may be unsupported")?;
                let Some(volume) = made.and_then(|reply| reply.volume) else {
                    return Err(crate::case::Trouble::Skip(format!("the driver makes no such volumes ({} with {kind})", mode.as_str_name())));
                };
                let reply = t.call(ask(&volume, vec![capability])).await.ok()?;
                ensure!(reply.confirmed.is_some(), "CreateVolume made a volume for {} with {kind}, but ValidateVolumeCapabilities doesn't confirm it: {}", mode.as_str_name(), reply.message);
                Ok(())
            }));
        }
    }
    cases
}
