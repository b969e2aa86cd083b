//! What the driver says is left.

use orlop_csi::client::ControllerCapability as Can;
use orlop_csi::proto;
use tonic::Code;

use crate::case::{Case, Need, Trouble, ensure};
use crate::cases::CREATE;
use crate::make::at_least;
use crate::spec;

/// `GetCapacity`.
pub(super) fn cases() -> Vec<Case> {
    let needs = [Need::Controller(Can::GetCapacity)];
    let with_volumes = [Need::Controller(Can::GetCapacity), CREATE];
    vec![
        Case::must(
            "capacity.get_works",
            spec::GET_CAPACITY,
            "GetCapacity needs no arguments",
            &needs,
            |t| async move {
                let reply = t.call(proto::GetCapacityRequest::default()).await.ok()?;
                ensure!(
                    reply.available_capacity >= 0,
                    "available_capacity is {}",
                    reply.available_capacity
                );
                Ok(())
            },
        ),
        Case::must(
            "capacity.get_takes_arguments",
            spec::GET_CAPACITY,
            "GetCapacity takes capabilities, parameters and topology",
            &needs,
            |t| async move {
                let request = proto::GetCapacityRequest {
                    volume_capabilities: vec![t.capability()],
                    parameters: t.bench().settings.parameters.clone(),
                    accessible_topology: t.bench().topology.clone(),
                };
                let reply = t.call(request).await.ok()?;
                ensure!(
                    reply.available_capacity >= 0,
                    "available_capacity is {}",
                    reply.available_capacity
                );
                Ok(())
            },
        ),
        Case::must(
            "capacity.get_bounds_are_sane",
            spec::GET_CAPACITY,
            "maximum_volume_size and minimum_volume_size are not negative and in order",
            &needs,
            |t| async move {
                let reply = t.call(proto::GetCapacityRequest::default()).await.ok()?;
                let (most, least) = (reply.maximum_volume_size, reply.minimum_volume_size);
                ensure!(most.unwrap_or(0) >= 0, "maximum_volume_size is {most:?}");
                ensure!(least.unwrap_or(0) >= 0, "minimum_volume_size is {least:?}");
                if let (Some(most), Some(least)) = (most, least) {
                    ensure!(
                        least <= most,
                        "minimum_volume_size {least} is over maximum_volume_size {most}"
                    );
                }
                Ok(())
            },
        ),
        Case::must(
            "capacity.get_maximum_is_kept",
            spec::GET_CAPACITY,
            "a volume over maximum_volume_size is refused",
            &with_volumes,
            |t| async move {
                let reply = t
                    .call(proto::GetCapacityRequest {
                        parameters: t.bench().settings.parameters.clone(),
                        ..Default::default()
                    })
                    .await
                    .ok()?;
                let Some(most) = reply
                    .maximum_volume_size
                    .filter(|most| *most > 0 && *most < i64::MAX / 4)
                else {
                    return Err(Trouble::Skip(
                        "the driver tells no maximum_volume_size".into(),
                    ));
                };
                let request = proto::CreateVolumeRequest {
                    capacity_range: Some(at_least(most * 2)),
                    ..t.create_request("v")
                };
                t.call(request).await.refused_with_any(
                    &[Code::OutOfRange, Code::ResourceExhausted],
                    "it is twice the maximum_volume_size that GetCapacity tells",
                )
            },
        ),
        Case::must(
            "capacity.get_does_not_grow_by_creating",
            spec::GET_CAPACITY,
            "a new volume doesn't raise what is available",
            &with_volumes,
            |t| async move {
                let ask = || proto::GetCapacityRequest {
                    parameters: t.bench().settings.parameters.clone(),
                    ..Default::default()
                };
                // Somebody else may free space meanwhile, but hardly at each try.
                let mut seen = Vec::new();
                for at in 0..5 {
                    let before = t.call(ask()).await.ok()?.available_capacity;
                    t.volume(&format!("v{at}")).await?;
                    let after = t.call(ask()).await.ok()?.available_capacity;
                    if after <= before.saturating_add(t.size() / 2) {
                        return Ok(());
                    }
                    seen.push(format!("{before} before it, {after} after"));
                }
                Err(Trouble::Against(format!(
                    "more bytes were available after a volume was made than before, each time: {}",
                    seen.join("; ")
                )))
            },
        ),
        Case::must(
            "capacity.get_comes_back_by_deleting",
            spec::GET_CAPACITY,
            "what a volume took is available again once it is deleted",
            &with_volumes,
            |t| async move {
                let ask = || proto::GetCapacityRequest {
                    parameters: t.bench().settings.parameters.clone(),
                    ..Default::default()
                };
                let before = t.call(ask()).await.ok()?.available_capacity;
                let volume = t.volume("v").await?;
                t.call(t.delete_request(&volume.volume_id)).await.ok()?;
                let mut after = 0;
                for _ in 0..20 {
                    after = t.call(ask()).await.ok()?.available_capacity;
                    if after >= before.saturating_sub(t.size() / 2) {
                        return Ok(());
                    }
                    tokio::time::sleep(std::time::Duration::from_millis(100)).await;
                }
                t.warn(format!("{before} bytes were available before a volume was made and deleted, {after} after"));
                Ok(())
            },
        ),
        Case::must(
            "capacity.get_of_nowhere",
            spec::GET_CAPACITY,
            "a place that the driver doesn't know has no capacity",
            &[
                Need::Controller(Can::GetCapacity),
                Need::Plugin(orlop_csi::client::PluginService::VolumeAccessibilityConstraints),
            ],
            |t| async move {
                let Some(mut nowhere) = t.bench().topology.clone() else {
                    return Err(Trouble::Skip("the node tells no topology".into()));
                };
                nowhere
                    .segments
                    .values_mut()
                    .for_each(|value| *value = "orlop-conformance-nowhere".into());
                let request = proto::GetCapacityRequest {
                    accessible_topology: Some(nowhere),
                    ..Default::default()
                };
                let reply = t.call(request).await.ok_or_any(
                    &[Code::InvalidArgument, Code::NotFound],
                    "the place doesn't exist",
                )?;
                let told = reply.map_or(0, |reply| reply.available_capacity);
                ensure!(
                    told == 0,
                    "{told} bytes are said to be available at a place that doesn't exist"
                );
                Ok(())
            },
        ),
    ]
}
